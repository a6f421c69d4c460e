"""Which deployment a client or a command talks to: the one of the environment, else the embedded servers that run.

Looks; starts nothing.
"""

from __future__ import annotations

from pydantic import SecretStr

from adjourn.schemas.errors import ConfigurationError
from adjourn.worker.config.settings import PREFIX, Settings, load_settings
from adjourn.worker.embedded.servers import running_servers

DATABASE_VARIABLE = PREFIX + "DATABASE_URL"
URL_VARIABLES = frozenset({DATABASE_VARIABLE, PREFIX + "REDIS_URL", PREFIX + "BROKER_URL"})
"""What names a deployment. A child that is to see another one must not inherit them."""


def find_deployment(**overrides: object) -> Settings:
    """Settings of the deployment that the environment names; without a database in it, of the embedded servers.

    `overrides` are fields of `Settings`; those that are `None` do not count. Raises
    `ConfigurationError` if a variable is wrong, or nothing is named and nothing runs.
    """
    settings = load_settings(**overrides)
    if settings.database_url is not None:
        return settings
    running = running_servers()
    if running is None:
        raise ConfigurationError(
            DATABASE_VARIABLE,
            "is not set, and no embedded servers are running",
            "set it to a URL like postgresql://user:password@host:5432/name, or start `adjourn dev`",
        )
    return at_servers(settings, *running)


def at_servers(settings: Settings, database_url: str, redis_url: str) -> Settings:
    """The same settings for these servers, with the queues in Redis."""
    return settings.model_copy(
        update={"database_url": SecretStr(database_url), "redis_url": SecretStr(redis_url), "broker_url": None}
    )
