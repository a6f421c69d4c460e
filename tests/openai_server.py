"""A local server that speaks the OpenAI chat-completions format, and fails as real ones do.

What it answers is scripted: a list of replies, one per request and the last for every one after,
or a function of the request body. It stands on the standard library, in threads of its own, so
that workers in other processes can be pointed at `base_url`. It knows nothing of Adjourn.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

POLL = 0.02
"""Seconds between two looks at whether the server is to close."""

STALL_LIMIT = 60.0
"""Seconds after which even a stalled reply lets go of its thread, if nobody closed the server."""


@dataclass(frozen=True)
class Reply:
    """What is sent for one request, whole or as a stream of `chunks`.

    After them, or instead of all: `stall` sends nothing until the server closes, `drop` cuts the connection.
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    stall: bool = False
    drop: bool = False
    chunks: tuple[Any, ...] | None = None


Handler = Callable[[dict[str, Any]], Reply]


def tool_call(name: str, arguments: Any, id: Any = "call_1") -> dict[str, Any]:
    """A call as it stands in a response. `arguments` and `id` go out as they are, null included."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(text: str | None = None, *calls: dict[str, Any], **message: Any) -> Reply:
    """A whole response with text, calls, or both; further keys go into its message."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "test-model",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if calls else "stop",
                "message": {
                    "role": "assistant",
                    "content": text,
                    **({"tool_calls": calls} if calls else {}),
                    **message,
                },
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
    return Reply(body=body)


def fragment(text: str | None = None, *calls: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A piece of a streamed response; of a call, what `call_fragment` makes."""
    delta = {"content": text, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "test-model"}
    return {**head, "choices": [choice], **more}


def call_fragment(index: int, arguments: str | None, name: str | None = None, id: Any = None) -> dict[str, Any]:
    """A piece of a call; only the first has its name and id."""
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


USED: dict[str, Any] = {
    **fragment(),
    "choices": [],
    "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
}
"""What comes last in a stream."""


def streamed(*chunks: dict[str, Any], stall: bool = False, drop: bool = False) -> Reply:
    return Reply(chunks=chunks, stall=stall, drop=drop)


def failure(status: int, message: str = "no", *, code: str | None = None, retry_after: str | None = None) -> Reply:
    """An error response, with a `Retry-After` header where given."""
    error = {"error": {"message": message, "type": "error", "code": code, "param": None}}
    return Reply(status, error, {} if retry_after is None else {"Retry-After": retry_after})


STALLED = Reply(stall=True)
DROPPED = Reply(drop=True)


class OpenAIServer:
    """The server, on a free port, while it is entered.

    `requests` holds every body, `headers` the headers of each and `peers` the connection it came
    on; `asked` is set when the first has come.
    """

    def __init__(self, replies: Sequence[Reply] | Handler) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.peers: list[tuple[str, int]] = []
        self.asked = threading.Event()
        self._replies = replies
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _reply(self, body: dict[str, Any], headers: dict[str, str], peer: tuple[str, int]) -> Reply:
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            self.peers.append(peer)
            self.asked.set()
            if callable(self._replies):
                return self._replies(body)
            return self._replies[min(len(self.requests), len(self._replies)) - 1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class RequestHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = {key.lower(): value for key, value in self.headers.items()}
                reply = server._reply(body, headers, self.client_address)
                cut = reply.stall or reply.drop
                if reply.chunks is not None:
                    self._stream(reply.chunks, whole=not cut)
                if reply.stall:
                    server._closing.wait(STALL_LIMIT)
                if cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif reply.chunks is None:
                    self._send(reply)

            def _send(self, reply: Reply) -> None:
                content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                for key, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _stream(self, chunks: Sequence[Any], *, whole: bool) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for each in [*map(json.dumps, chunks), *(["[DONE]"] if whole else [])]:
                    event = f"data: {each}\n\n".encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                if whole:
                    self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: Any) -> None:
                """Silent: a failed test prints its own requests."""

        return RequestHandler
