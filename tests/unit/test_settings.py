"""Settings: what the environment says, and what they never show."""

from __future__ import annotations

import pytest

from adjourn.schemas.errors import ConfigurationError
from adjourn.schemas.internal.tuning import Tuning
from adjourn.worker.broker.brokers import resume_broker, wakeup_broker
from adjourn.worker.config.settings import Settings, load_settings, redacted, unknown_variables

URLS = {
    "ADJOURN_DATABASE_URL": "postgresql://ann:s3cret@db:5432/app",
    "ADJOURN_REDIS_URL": "redis://:s3cret@cache:6379/0",
}

TRANSPORTS = "adjourn.store.redis.transport"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in URLS.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_they_come_from_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ADJOURN_CONCURRENCY", "7")
    environment.setenv("ADJOURN_ROLES", "turns, sweep")
    environment.setenv("ADJOURN_TUNING__LEASE_SECONDS", "9")
    settings = load_settings()
    assert (settings.concurrency, settings.roles) == (7, ("turns", "sweep"))
    assert settings.tuning == Tuning(lease_seconds=9)
    assert settings.database == URLS["ADJOURN_DATABASE_URL"]
    assert settings.broker == settings.redis == URLS["ADJOURN_REDIS_URL"]


def test_what_is_given_goes_before_the_environment_and_none_is_not_given() -> None:
    settings = load_settings(redis_url="redis://elsewhere:1/2", database_url=None)
    assert (settings.redis, settings.database) == ("redis://elsewhere:1/2", URLS["ADJOURN_DATABASE_URL"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADJOURN_CONCURRENCY", "many"),
        ("ADJOURN_CONCURRENCY", "0"),
        ("ADJOURN_ROLES", "turns,naps"),
        ("ADJOURN_ROLES", ","),
        ("ADJOURN_LOG_LEVEL", "LOUD"),
        ("ADJOURN_TUNING__LEASE_SECONDS", "-1"),
        ("ADJOURN_TUNING__NAPS", "1"),
        ("ADJOURN_TUNING", "not json"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_variable(
    environment: pytest.MonkeyPatch, name: str, value: str
) -> None:
    environment.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "ask"),
    [
        ("DATABASE_URL", None, "database"),
        ("DATABASE_URL", "", "database"),
        ("DATABASE_URL", "mysql://ann:s3cret@db/app", "database"),
        ("REDIS_URL", None, "redis"),
        ("REDIS_URL", "http://ann:s3cret@cache", "redis"),
        ("BROKER_URL", "kafka://ann:s3cret@queue", "broker"),
        ("REDIS_URL", None, "broker"),
    ],
)
def test_a_url_that_cannot_be_one_is_named_and_never_shown(name: str, value: str | None, ask: str) -> None:
    given = {"database_url": URLS["ADJOURN_DATABASE_URL"], "redis_url": URLS["ADJOURN_REDIS_URL"], name.lower(): value}
    settings = Settings(**given)
    with pytest.raises(ConfigurationError) as caught:
        getattr(settings, ask)
    assert caught.value.setting == f"ADJOURN_{name}"
    assert "s3cret" not in str(caught.value)


def test_no_password_shows() -> None:
    settings = load_settings(broker_url="amqp://ann:s3cret@queue:5672//")
    shown = f"{settings!r} {settings} {settings.model_dump()} {wakeup_broker(settings)!r}"
    assert "s3cret" not in shown
    for url in (settings.database, settings.redis, settings.broker, "postgresql://db/x?password=s3cret"):
        assert "s3cret" not in redacted(url)
    assert redacted("postgresql://ann:s3cret@db:5432/app") == "postgresql://ann:***@db:5432/app"
    assert redacted("redis://cache/0") == "redis://cache/0"


def test_a_child_process_sees_the_same_settings(environment: pytest.MonkeyPatch) -> None:
    settings = load_settings(
        roles="sweep", concurrency=3, tuning={"lease_seconds": 2.5, "tool_timeout_seconds": 7}, app="a:b"
    )
    for name in URLS:
        environment.delenv(name)
    for name, value in settings.as_environment().items():
        environment.setenv(name, value)
    assert load_settings() == settings


def test_a_mistyped_variable_is_found(environment: pytest.MonkeyPatch) -> None:
    known = {"ADJOURN_CONCURRENCY": "1", "ADJOURN_TUNING__LEASE_SECONDS": "1", "PATH": "x", **URLS}
    assert unknown_variables(known) == []
    assert unknown_variables({**known, "ADJOURN_CONCURENCY": "1", "ADJOURN_TUNING__NAPS": "1"}) == [
        "ADJOURN_CONCURENCY",
        "ADJOURN_TUNING__NAPS",
    ]


@pytest.mark.parametrize(
    ("url", "redis", "quorum", "tls"),
    [
        ("redis://h/0", True, False, False),
        ("valkey://h/0", True, False, False),
        ("rediss://h/0", True, False, True),
        ("valkeys://h/0", True, False, True),
        ("amqp://h//", False, True, False),
        ("amqps://h//", False, True, False),
    ],
)
def test_the_url_alone_says_how_the_broker_is_used(url: str, redis: bool, quorum: bool, tls: bool) -> None:
    settings = load_settings(broker_url=url)
    assert settings.broker_is_redis == redis
    for broker in (wakeup_broker(settings), resume_broker(settings)):
        assert (broker.quorum, broker.tls is not None) == (quorum, tls)
        arguments = broker.queue("q").queue_arguments
        assert arguments == ({"x-queue-type": "quorum"} if quorum else None)
        assert broker.connection().transport.driver_type == ("redis" if redis else "amqp")


def test_what_is_not_acknowledged_is_kept_for_answers_and_not_for_wakeups() -> None:
    settings = load_settings(resume_visibility_seconds=100)
    wakeups, answers = wakeup_broker(settings), resume_broker(settings)
    assert (wakeups.transport, wakeups.options.get("visibility_timeout")) == (f"{TRANSPORTS}:Transport", None)
    assert (answers.transport, answers.options["visibility_timeout"]) == (f"{TRANSPORTS}:TakingTransport", 100)
