"""Settings: what a deployment says about itself, read from `ADJOURN_*` variables.

Owns the names, the defaults and the reason of every number. Reads the environment and nothing
else; connects to nothing. URLs are secrets here: they show with their password masked, in logs
and in errors alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict, SettingsError

from adjourn.schemas.errors import ConfigurationError
from adjourn.schemas.internal.tuning import Tuning

PREFIX = "ADJOURN_"
BUILD_VARIABLE = PREFIX + "BUILD"
Role = Literal["turns", "resume", "sweep"]
ROLES: tuple[Role, ...] = get_args(Role)

POSTGRES_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
REDIS_SCHEMES = ("redis", "rediss", "valkey", "valkeys")
AMQP_SCHEMES = ("amqp", "amqps", "pyamqp")

NOT_SETTINGS = frozenset({PREFIX + "DATA_DIR"})
"""Variables of ours that say nothing about a deployment: where the embedded servers of this machine are."""


class Settings(BaseSettings):
    """One deployment. Every field is a variable: `concurrency` is `ADJOURN_CONCURRENCY`,
    a number of `tuning` is `ADJOURN_TUNING__LEASE_SECONDS`.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = None
    """PostgreSQL, `postgresql://user:password@host:5432/name`."""
    redis_url: SecretStr | None = None
    """Redis or Valkey, `redis://host:6379/0`: parking records, live events and, by default, the queues."""
    broker_url: SecretStr | None = None
    """Where the queues are, if not in Redis: `amqp://user:password@host:5672//` for RabbitMQ."""
    app: str | None = None
    """The registry of agents and tools, `module:attribute`."""

    build: str | None = Field(default=None, min_length=1)
    """What this state of your code is called among those deployed side by side: a version, a commit. Else it is
    what the `App` says, or derived from the code. The order of builds is that in which they were deployed."""

    roles: Annotated[tuple[Role, ...], NoDecode] = ROLES
    """What a worker process does, comma-separated: `turns` drives runs, `resume` reads answers, `sweep` finds
    what was forgotten. Parts that run apart can be scaled apart."""
    concurrency: int = Field(default=100, gt=0, le=1000)
    """Turns in flight per process. A turn mostly waits for a model, and a waiting thread is cheap."""
    database_pool_size: int = Field(default=20, gt=0)
    """Connections to PostgreSQL per process. Held for single statements, never during a model call, so far
    fewer than turns are needed."""
    redis_pool_size: int = Field(default=50, gt=0)
    """Connections to Redis per process, at most. The default of ten loses acknowledgements under many threads."""
    publish_pool_size: int = Field(default=10, gt=0)
    """Broker connections that publish wake-ups, per process, at most; opened as they are needed."""

    resume_threads: int = Field(default=2, gt=0)
    """Readers of the resume queue per process; one answer that waits for a lock does not hold up the rest."""
    resume_prefetch: int = Field(default=50, gt=0)
    """Answers that one reader takes ahead: enough to hide the round trip, few enough to share with others."""
    resume_visibility_seconds: float = Field(default=30, gt=0)
    """When an answer that a dead reader had taken comes back. Judging one takes milliseconds; the hour that
    is usual for tasks would leave a run parked for an hour after a crash."""

    suspect_processes: int = Field(default=2, gt=0)
    """Suspect runs at once, each in a process of its own. Few: each costs a whole interpreter."""
    suspect_seconds: float = Field(default=900, gt=0)
    """How long a suspect run may keep its process before it is killed, which counts as a death."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    tuning: Tuning = Tuning()

    @field_validator("roles", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("roles")
    @classmethod
    def _at_least_one(cls, value: tuple[Role, ...]) -> tuple[Role, ...]:
        if not value:
            raise ValueError(f"name at least one of {', '.join(ROLES)}")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @property
    def database(self) -> str:
        """The database URL. Raises `ConfigurationError` if it is missing or of another kind."""
        return _url(self.database_url, "DATABASE_URL", POSTGRES_SCHEMES, "postgresql://user:password@host:5432/name")

    @property
    def redis(self) -> str:
        """The Redis URL, in Redis's own schemes. Raises `ConfigurationError` if it is missing or of another kind."""
        url = _url(self.redis_url, "REDIS_URL", REDIS_SCHEMES, "redis://host:6379/0")
        return _as_redis(url)

    @property
    def broker(self) -> str:
        """The URL of the queues: the broker's if set, else Redis's. Raises `ConfigurationError`."""
        if self.broker_url is None:
            return self.redis
        url = _url(self.broker_url, "BROKER_URL", REDIS_SCHEMES + AMQP_SCHEMES, "amqp://user:password@host:5672//")
        return _as_redis(url)

    @property
    def broker_is_redis(self) -> bool:
        return urlsplit(self.broker).scheme in REDIS_SCHEMES

    @property
    def broker_setting(self) -> str:
        """The variable that says where the broker is."""
        return PREFIX + ("REDIS_URL" if self.broker_url is None else "BROKER_URL")

    def as_environment(self) -> dict[str, str]:
        """These settings as variables, for a child process. Holds the passwords: it goes into no log."""
        variables: dict[str, str] = {}
        for name, value in self:
            if isinstance(value, Tuning):
                dumped = value.model_dump(exclude_none=True)
                variables |= {f"{PREFIX}TUNING__{key.upper()}": str(number) for key, number in dumped.items()}
            elif value is not None:
                text = value.get_secret_value() if isinstance(value, SecretStr) else value
                variables[PREFIX + name.upper()] = ",".join(text) if isinstance(text, tuple) else str(text)
        return variables


def load_settings(**overrides: object) -> Settings:
    """Settings from the environment, `overrides` first.

    Raises `ConfigurationError`, which names the variable, if a value is not understood.
    """
    try:
        return Settings(**{name: value for name, value in overrides.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = PREFIX + "__".join(str(part) for part in first["loc"] if isinstance(part, str)).upper()
        raise ConfigurationError(name, first["msg"], "correct the variable or unset it for the default") from None
    except SettingsError:
        # The only field that may be given whole, as JSON.
        raise ConfigurationError(PREFIX + "TUNING", "is not a JSON object", f"set {PREFIX}TUNING__… instead") from None


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Names in `environ` that look like settings and are none: most often a typing mistake."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    nested = {f"{PREFIX}TUNING__{name.upper()}" for name in Tuning.model_fields}
    ours = known | nested | NOT_SETTINGS
    return sorted(name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in ours)


def redacted(url: str) -> str:
    """The URL with its password and its query masked, for logs and messages."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username
    netloc = f"{user}:***@{host}" if parts.password is not None else f"{user}@{host}" if user else host
    return urlunsplit((parts.scheme, netloc, parts.path, "***" if parts.query else "", ""))


def _url(secret: SecretStr | None, name: str, schemes: tuple[str, ...], example: str) -> str:
    if secret is None or not secret.get_secret_value():
        raise ConfigurationError(PREFIX + name, "is not set", f"set it to a URL like {example}")
    url = secret.get_secret_value()
    if urlsplit(url).scheme not in schemes:
        raise ConfigurationError(
            PREFIX + name, f"has scheme {urlsplit(url).scheme!r}", f"use a URL like {example} ({', '.join(schemes)})"
        )
    return url


def _as_redis(url: str) -> str:
    """Valkey speaks the protocol of Redis, but the clients only know the names of Redis."""
    for theirs, ours in (("valkeys://", "rediss://"), ("valkey://", "redis://")):
        if url.startswith(theirs):
            return ours + url.removeprefix(theirs)
    return url
