"""What is left of limits, to the last turn, call, token and cent."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from adjourn import Limits, Run, Usage
from adjourn.schemas.records.actions import ActionState, Child, Origin, PendingAction, Resolution
from adjourn.schemas.records.items import RetryItem, StoredItem, SuspensionItem
from adjourn.tasks.engine.budgets import Amount, Budget, Shortage
from adjourn.tasks.engine.history import History

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHARE = Limits(turns=4, tool_calls=5, tokens=60, cost=0.7)
USED = {"turns": 2, "tool_calls": 3, "usage": {"input_tokens": 40, "output_tokens": 1, "requests": 2, "cost": "0.5"}}


def amount(**of: Any) -> Amount:
    usage = Usage(input_tokens=of.get("tokens", 0), cost=Decimal(str(of.get("cost", 0))))
    return Amount(of.get("turns", 0), of.get("tool_calls", 0), usage)


@pytest.mark.parametrize("limit", ["turns", "tool_calls", "tokens", "cost"])
@pytest.mark.parametrize(
    ("most", "used", "reserved", "parts", "part"),
    [(12, 0, 0, 2, 6), (12, 2, 0, 2, 5), (12, 2, 4, 2, 3), (12, 2, 4, 6, 1), (12, 8, 4, 2, 0), (12, 20, 0, 2, 0)],
)
def test_what_is_left_is_what_is_neither_used_nor_reserved(
    limit: str, most: int, used: int, reserved: int, parts: int, part: int
) -> None:
    one_turn = limit == "turns"  # of these the parent keeps one for itself, and a part of all else
    sharers = parts if one_turn else parts - 1
    limits = Limits.model_validate({"turns": None, limit: most + one_turn})
    budget = Budget(limits, amount(**{limit: used}), 0, amount(**{limit: reserved}))
    share = budget.share(sharers)
    if part == 0:
        assert share == Shortage(limit, 0, parts)
    else:
        assert isinstance(share, Limits)
        assert share.model_dump() == {**dict.fromkeys(Limits.model_fields), limit: part}


def test_too_little_for_all_is_nothing_for_any() -> None:
    assert Budget(Limits(turns=8), amount(turns=2), 0, amount()).share(6) == Shortage("turns", 5, 6)


@pytest.mark.parametrize(("seconds", "part"), [(0, 60), (59.5, 0.5), (60, None), (70, None)])
def test_time_is_not_divided(seconds: float, part: float | None) -> None:
    share = Budget(Limits(turns=None, seconds=60), amount(), seconds, amount()).share(3)
    assert share == (Shortage("seconds", 0, 1) if part is None else Limits(turns=None, seconds=part))


def test_of_two_limits_the_tighter_counts() -> None:
    mine, others = Limits(turns=5, tokens=None, cost=2), Limits(turns=None, tokens=9, cost=1)
    assert mine.within(others) == others.within(mine) == Limits(turns=5, tokens=9, cost=1)


# --- what is recorded of children -----------------------------------------------------------------


def wait(name: str, caller: str, resolution: Resolution | None = None, **fields: Any) -> ActionState:
    """A wait for a child."""
    child = Child(
        run_id=f"run_{name}",
        thread_id="thr_1",
        agent="digger",
        caller=caller,
        key=name,
        digest="",
        text="",
        limits=SHARE,
        path=(),
        root_thread_id="thr_0",
        depth=1,
        group="g",
        **fields,
    )
    origin = Origin(
        tool="digger",
        wait_point="task",
        tool_call_id=f"call_{name}",
        message_id="run_0:1",
        run_id="run_0",
        thread_id="thr_0",
        block_path=(),
    )
    action = PendingAction(
        id=name, name="digger.task", input=None, resume_schema={}, status="pending", origin=origin, opened_at=NOW
    )
    return ActionState(
        action=action, style="task", ordinal=0, digest="", fingerprint={}, child=child, resolution=resolution
    )


def ended(status: Any, *, child: str = "cancelled", **resume: Any) -> Resolution:
    said = {"status": child, "output": None, **resume}
    # As it is read from its row: what is no value of an answer stands in `data`.
    return Resolution(status=status, resolved_at=NOW, **{"resume" if status == "submitted" else "data": said})


RUN = Run(id="run_0", thread_id="thr_0", agent="boss", status="running", created_at=NOW, updated_at=NOW)


def test_shares_of_children_that_still_run_are_reserved_for_the_run_and_for_who_called_them() -> None:
    log = History.of((), [wait("a", "call_x"), wait("b", "root"), wait("c", "call_x", is_share=False)])
    share = Amount(4, 5, Usage(input_tokens=60, cost=Decimal("0.7")))
    assert Budget.of_run(RUN, Limits(), log).reserved == share.plus(share)
    assert Budget.of_agent(Limits(), "call_x", RUN, log).reserved == share
    assert Budget.of_agent(Limits(), "call_y", RUN, log).reserved == Amount(0, 0, Usage())


@pytest.mark.parametrize("status", ["submitted", "cancelled"])
def test_what_a_child_has_used_counts_for_its_caller_whatever_became_of_the_wait(status: Any) -> None:
    log = History.of((), [wait("a", "call_x", ended(status, **USED))])
    budget = Budget.of_agent(Limits(), "call_x", RUN, log)
    assert budget.used == Amount(2, 3, Usage.model_validate(USED["usage"]))
    assert budget.reserved == Amount(0, 0, Usage())


def test_what_a_child_has_used_counts_after_a_retry_too() -> None:
    items = [StoredItem("run_0", 2, SuspensionItem(call_id="call_a", action_id="a", name="digger.task"))]
    items.append(StoredItem("run_0", 3, RetryItem(by=None)))
    log = History.of(items, [wait("a", "call_x", ended("submitted", child="failed", **USED))])
    assert log.replaced == {"a"}
    assert Budget.of_agent(Limits(), "call_x", RUN, log).used.turns == 2


def test_a_child_of_which_an_older_version_did_not_say_what_it_used_counts_for_nothing() -> None:
    log = History.of((), [wait("a", "call_x", ended("submitted"))])
    assert Budget.of_agent(Limits(), "call_x", RUN, log).used == Amount(0, 0, Usage())
