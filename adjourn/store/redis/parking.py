"""The parking index: one small record in Redis per open action.

It is there to validate an answer without reading the action from PostgreSQL, which decides whether the action is
open and in time. A record may be missing or left over at any moment, so no failure of Redis is a failure of a run.

Redis is not trusted. Each record is signed with the deployment's key, over all of it and the action's id, so nobody
who can write to Redis can change who may answer, or what. A record that is not signed counts as missing. An old one
is harmless: what a record says of its action (who, what, its origin) is never changed, and the rest is PostgreSQL's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from adjourn.schemas.internal.signatures import signed, verified
from adjourn.schemas.internal.tuning import Tuning
from adjourn.schemas.records.actions import PendingAction
from adjourn.store.redis.connection import Command

log = logging.getLogger(__name__)

_SECONDS_PER_DAY: Final = 86_400
EXPIRY_SECONDS: Final = Tuning().parking_record_days * _SECONDS_PER_DAY
_RECORD: Final = "adjourn:parking:"
_NOT_NEEDED: Final = {"suspend_schema"}
"""An answer is not validated against it."""
_SENTINEL: Final = "adjourn:intact"


class Parking:
    """The index in one Redis. No method raises for a Redis that is down; it is logged.

    `key` gives the deployment's signing key (`Database.signing_key`), and may raise `StoreUnavailableError`.
    """

    def __init__(self, client: redis.Redis, key: Callable[[], bytes]) -> None:
        self._redis = client
        self._key = key

    def put(self, records: Sequence[PendingAction], expiry: float = EXPIRY_SECONDS) -> None:
        """Keep records for `expiry` seconds."""
        if not records:
            return
        pipeline: Any = self._redis.pipeline(transaction=False)
        for command in keeping(records, self._key(), expiry):
            pipeline.execute_command(*command)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            log.warning("parking records not kept", extra={"count": len(records), "error": str(error)})

    def get(self, action_id: str) -> PendingAction | None:
        """The record of an action; `None` if there is none that was signed, which says nothing about the action."""
        try:
            found = self._redis.get(_key(action_id))
            if found is None:
                return None
            text = verified(str(found), self._key(), _purpose(action_id))
            if text is None:
                log.warning("parking record was not written by this deployment", extra={"action_id": action_id})
                return None
            return PendingAction.model_validate_json(text)
        except (redis.RedisError, ValueError) as error:  # not text, or not a record of this version
            log.warning("parking record not read", extra={"action_id": action_id, "error": type(error).__name__})
            return None

    def drop(self, ids: Sequence[str]) -> None:
        """Forget the records of actions that have ended."""
        if not ids:
            return
        try:
            self._redis.delete(*map(_key, ids))
        except redis.RedisError as error:
            log.warning("parking records not dropped", extra={"count": len(ids), "error": str(error)})

    def intact(self) -> bool:
        """False if this Redis has lost what it held since `mark`, or was never marked: wake-ups may be gone too.

        True while Redis is down: there is nothing to rebuild it in yet.
        """
        try:
            return bool(self._redis.exists(_SENTINEL))
        except redis.RedisError as error:
            log.warning("Redis not reached", extra={"error": str(error)})
            return True

    def mark(self) -> None:
        """Say that everything that was lost is being made up for."""
        try:
            self._redis.set(_SENTINEL, "1")
        except redis.RedisError as error:
            log.warning("Redis not marked", extra={"error": str(error)})


def keeping(records: Sequence[PendingAction], key: bytes, expiry: float = EXPIRY_SECONDS) -> list[Command]:
    """The commands that keep these records, signed with `key`, so that they can ride with what else is sent."""
    milliseconds = max(1, int(expiry * 1000))
    return [
        (
            "SET",
            _key(record.id),
            signed(record.model_dump_json(exclude=_NOT_NEEDED), key, _purpose(record.id)),
            "PX",
            milliseconds,
        )
        for record in records
    ]


def forgetting(ids: Sequence[str]) -> list[Command]:
    """The command that forgets the records of these actions, if there are any."""
    return [("DEL", *map(_key, ids))] if ids else []


def _purpose(action_id: str) -> str:
    """What a record is signed for: the record of one action is none of another."""
    return f"parking record 1 {action_id}"


def _key(action_id: str) -> str:
    return _RECORD + action_id
