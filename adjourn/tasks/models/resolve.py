"""From what an agent names as its model to a model. May not import a provider before a string asks for one."""

from __future__ import annotations

from functools import cache

from adjourn.schemas.errors import DefinitionError
from adjourn.tasks.models.protocol import Model
from adjourn.tasks.models.providers import ProviderModel
from adjourn.tasks.models.retry import RetryingModel


def resolve(model: str | Model) -> Model:
    """The model that `model` stands for.

    A string is `provider:name`, for example `openai:gpt-5.4-mini`, and becomes a `ProviderModel`
    with retries. The same string gives the same object, so that agents share its connections.
    An object is used as it is: wrap it in a `RetryingModel` to have retries.

    Raises `DefinitionError` for a string of another form and `ConfigurationError` where the
    provider layer is not installed.
    """
    return _provider(model) if isinstance(model, str) else model


@cache
def _provider(name: str) -> Model:
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        raise DefinitionError(f"model {name!r}", "is not provider:name", "write for example 'openai:gpt-5.4-mini'")
    return RetryingModel(ProviderModel(name))
