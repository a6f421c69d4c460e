"""A real model with no key and no network: SmolLM2-135M behind an OpenAI-compatible server on this machine.

A model of this size writes sound arguments under a grammar, but left to choose it calls a tool for
ever, and it cannot read a result in the chat format. `OneToolAtATime` decides both for it. Larger
models need none of this: `ProviderModel` alone will do.
"""

from __future__ import annotations

from typing import Any

from adjourn import ModelRequest, ModelResponse, ProviderModel, ResultTurn, UserTurn

BASE_URL = "http://127.0.0.1:8080/v1"
MAX_TOKENS = 96


class OneToolAtATime:
    """Calls the first tool once for each user message, then says in a sentence what came of it."""

    def __init__(self, inner: ProviderModel) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        *_, last = request.conversation
        if isinstance(last, ResultTurn):
            told = f"The tool {last.tool} returned: {last.content}. Say in one short sentence what happened."
            return await self.inner.request(
                ModelRequest(instructions=request.instructions, conversation=(UserTurn(text=told),))
            )
        settings = request.settings | {"extra_body": self._body(request)}
        return await self.inner.request(request.model_copy(update={"settings": settings}))

    @staticmethod
    def _body(request: ModelRequest) -> dict[str, Any]:
        # Named outright: with a free choice this server ignores the limit on tokens.
        choice = {"type": "function", "function": {"name": request.tools[0].name}} if request.tools else "none"
        return {"max_tokens": MAX_TOKENS, "tool_choice": choice}


model = OneToolAtATime(
    ProviderModel(
        "openai-chat:smollm2",
        base_url=BASE_URL,
        settings={"temperature": 0, "extra_body": {"max_tokens": MAX_TOKENS}},
        fill_content=True,  # this server refuses a null content beside tool calls
    )
)
