"""Making pydantic-ai's model objects. Imported at the first request only; sends nothing itself."""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import urlsplit

from openai.types.chat import ChatCompletion
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

CHAT = "openai-chat"
OPENAI_FORMATS = (CHAT, "openai", "openai-responses")


def connect(name: str, base_url: str | None, api_key: str | None) -> Model:
    """The model `provider:model`, with a client of its own.

    Raises pydantic-ai's `UserError` for a provider it does not know, a missing key, or an
    argument that the provider has no use for, and `ImportError` where its SDK is missing.
    """

    def provider(kind: str) -> Provider[Any]:
        return _provider(kind, base_url, api_key)

    kind, _, model = name.partition(":")
    if kind == CHAT:
        return _ChatModel(model, provider=provider(kind))
    return infer_model(name, provider)


def _provider(kind: str, base_url: str | None, api_key: str | None) -> Provider[Any]:
    if base_url is not None and kind in OPENAI_FORMATS:
        from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

        # The host is in the name because replayed reasoning may only go back to who signed it.
        service = f"openai-compatible@{urlsplit(base_url).hostname}"
        return OpenAICompatibleProvider(service, base_url=base_url, api_key=api_key)
    given = {key: value for key, value in (("base_url", base_url), ("api_key", api_key)) if value is not None}
    if not given:
        return infer_provider(kind)
    provider = infer_provider_class(kind)
    unknown = given.keys() - inspect.signature(provider).parameters.keys()
    if unknown:
        raise UserError(f"provider {kind!r} takes no {' and no '.join(sorted(unknown))}")
    return provider(**given)


class _ChatModel(OpenAIChatModel):
    """The OpenAI chat format as servers really speak it: ids and arguments of calls may be null or missing.

    pydantic-ai refuses such a response as a whole. Identity is ours here, so an empty id is enough.
    """

    def _validate_completion(self, response: ChatCompletion) -> Any:
        for choice in response.choices or ():
            for call in getattr(choice.message, "tool_calls", None) or ():
                call.id = getattr(call, "id", None) or ""
                function = getattr(call, "function", None)
                if function is not None:
                    function.arguments = getattr(function, "arguments", None) or ""
        return super()._validate_completion(response)

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _ChatStream


class _ChatStream(OpenAIStreamedResponse):
    """A stream without a finish reason was cut off by somebody in between; pydantic-ai would take it as whole."""

    def _missing_finish_reason(self) -> Any:
        return None
