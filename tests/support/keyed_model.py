"""A model provider that takes some keys and refuses all others, with an error that repeats the key."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class KeyedModel:
    """An OpenAI-compatible server in a thread. `keys` is what it takes, `used` what requests came with."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)
        self.used: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self._is_known():
                    self._json(200, {"object": "list", "data": [{"id": "keyed", "object": "model"}]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                if not self._is_known():
                    return
                words = [{"delta": {"role": "assistant", "content": "hello from keyed"}, "index": 0}]
                end: list[dict[str, Any]] = [{"delta": {}, "finish_reason": "stop", "index": 0}]
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                chunks = [{"choices": words}, {"choices": end}, {"choices": [], "usage": usage}]
                body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
                self._send(200, body.encode(), "text/event-stream")

            def _is_known(self) -> bool:
                key = self.headers.get("Authorization", "").removeprefix("Bearer ")
                owner.used.append(key)
                if key in owner.keys:
                    return True
                message = f"Incorrect API key provided: {key}. {key} is not known here."
                self._json(401, {"error": {"message": message, "code": "invalid_api_key", "param": key}})
                return False

            def _json(self, status: int, body: dict[str, Any]) -> None:
                self._send(status, json.dumps(body).encode(), "application/json")

            def _send(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
