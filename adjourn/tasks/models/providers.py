"""Real models, through pydantic-ai's model layer. Owns clients, their timeouts and their life.

pydantic-ai is imported when the first request is made, not before: it costs most of a second,
and a process that only runs scripted models, or none, does without it. The translation is in
`provider_messages`, the naming of failures in `provider_errors`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from adjourn.schemas.contracts.definition_checks import check_flag, check_instance, check_seconds
from adjourn.schemas.errors import ConfigurationError, DefinitionError, ModelRequestError
from adjourn.schemas.records.messages import ModelRequest, ModelResponse
from adjourn.tasks.models.protocol import Deltas

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderLayerModel
    from pydantic_ai.native_tools import AbstractNativeTool

    _Ask = Callable[[ProviderLayerModel, ModelRequest], Awaitable[ModelResponse]]

READ_TIMEOUT = 120.0
"""Seconds without a byte after which a request is given up. It bounds a response that is not streamed."""


@dataclass(frozen=True, repr=False)
class _Target:
    """Where the requests go. No repr: it may hold a key."""

    name: str
    base_url: str | None
    api_key: str | None


class ProviderModel:
    """A model of any provider that pydantic-ai speaks, or behind any URL that speaks an OpenAI format.

    `name` is `provider:model`. Keys and addresses come from the provider's usual environment
    variables unless `base_url` and `api_key` are given; with `openai-chat:NAME` (or `openai:NAME`
    for the Responses format) and a `base_url`, no variable is read, so that a key for OpenAI is
    never sent to somebody else.

    `settings` (temperature, max_tokens and so on) apply to every request; a request's own win.
    `native_tools` are run by the provider. `fill_content` sends `""` where an assistant message
    holds tool calls only: some OpenAI-compatible servers refuse the usual null.

    One client for each event loop, made at the first request and kept, with a 5 s limit for
    connecting and `read_timeout` seconds of silence, by default 120; `timeout` in the settings is the same. The
    provider's own retries are off: wrap it in a `RetryingModel`.

    Raises `ConfigurationError` where pydantic-ai is not installed, and `DefinitionError` for arguments that do not
    go together.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Any] | None = None,
        native_tools: Sequence[AbstractNativeTool] = (),
        read_timeout: float | None = None,
        fill_content: bool = False,
    ) -> None:
        if find_spec("pydantic_ai") is None:
            raise ConfigurationError(f"model {name}", "pydantic-ai is not installed", "pip install pydantic-ai-slim")
        where = f"model {name!r}"
        check_flag(where, "fill_content", fill_content)
        check_instance(where, "settings", settings, Mapping)
        if read_timeout is not None:
            check_seconds(where, "read_timeout", read_timeout)
            if settings is not None and "timeout" in settings:
                raise DefinitionError(where, "it has read_timeout and a timeout in its settings", "give one of the two")
        self._target = _Target(name, base_url, api_key)
        silence = READ_TIMEOUT if read_timeout is None else read_timeout
        self._settings = {"max_retries": 0, "timeout": silence, **(settings or {})}
        self._native_tools = tuple(native_tools)
        self._fill_content = fill_content
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, ProviderLayerModel] = WeakKeyDictionary()
        self._building = threading.Lock()

    @property
    def name(self) -> str:
        return self._target.name

    def __repr__(self) -> str:
        return f"ProviderModel({self.name!r})"

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask the provider once. Raises `ModelRequestError`, whose text holds no key."""
        return await self._with_client(self._ask, request)

    async def stream(self, request: ModelRequest, deltas: Deltas) -> ModelResponse:
        """`request`, told piece by piece. A response that ends before it is whole is a retryable error."""
        return await self._with_client(partial(self._ask_streaming, deltas=deltas), request)

    async def _with_client(self, ask: _Ask, request: ModelRequest) -> ModelResponse:
        loop = asyncio.get_running_loop()
        try:
            # In a thread: the import and the reading of certificates would hold up every other run on this loop.
            client = self._clients.get(loop)
            if client is None:
                client = await asyncio.to_thread(self._client, loop)
            return await ask(client, request)
        except ModelRequestError:
            raise
        except Exception as error:
            from adjourn.tasks.models.provider_errors import describe

            # All of them, for each SDK has a tree of its own. Not chained: their texts can repeat headers or a key.
            raise describe(self.name, error, secrets=self._secrets(loop)) from None

    async def aclose(self) -> None:
        """Close the client of the running event loop. The next request makes a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            async with client:  # entered only to be left: leaving it is what closes the connections
                pass

    async def _ask(self, client: ProviderLayerModel, request: ModelRequest) -> ModelResponse:
        from pydantic_ai.direct import model_request

        from adjourn.tasks.models.provider_messages import from_response

        response = await model_request(client, **self._arguments(client, request))
        return from_response(response, self.name, client.system)

    async def _ask_streaming(
        self, client: ProviderLayerModel, request: ModelRequest, *, deltas: Deltas
    ) -> ModelResponse:
        from pydantic_ai.direct import model_request_stream

        from adjourn.tasks.models.provider_messages import from_response
        from adjourn.tasks.models.provider_streams import told

        async with model_request_stream(client, **self._arguments(client, request)) as streamed:
            response = await told(streamed, deltas, self.name)
        return from_response(response, self.name, client.system)

    def _arguments(self, client: ProviderLayerModel, request: ModelRequest) -> dict[str, Any]:
        """What the provider layer is handed beside the client."""
        from adjourn.tasks.models.provider_messages import to_messages, to_parameters

        return {
            "messages": to_messages(request, self.name, client.system, fill_content=self._fill_content),
            "model_settings": {**self._settings, **request.settings},
            "model_request_parameters": to_parameters(request, self._native_tools),
        }

    def _client(self, loop: asyncio.AbstractEventLoop) -> ProviderLayerModel:
        from adjourn.tasks.models.provider_clients import connect

        with self._building:
            if loop not in self._clients:
                self._clients[loop] = connect(self._target.name, self._target.base_url, self._target.api_key)
            return self._clients[loop]

    def _secrets(self, loop: asyncio.AbstractEventLoop) -> tuple[str, ...]:
        sdk = getattr(self._clients.get(loop), "client", None)
        return tuple(key for key in (self._target.api_key, getattr(sdk, "api_key", None)) if isinstance(key, str))
