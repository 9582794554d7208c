"""A gateway that says what a test wrote down, over real HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


class FakeGateway:
    """Answers requests from `answers`, and the event stream from `streams`, one list a connection.

    Fields:
        answers: `"METHOD /path"` to a list of `(status, body)`; the last one is repeated. Status 0
            closes the connection without an answer.
        streams: the events of the first connection, of the second, ...; each ends with its list.
        headers: of every answer that is no stream.
        seen: every request as `(method, path, body, headers)`.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.streams: list[list[Json]] = []
        self.seen: list[tuple[str, str, Any, dict[str, str]]] = []
        self.headers: dict[str, str] = {}
        self.url = ""
        self._streamed = 0

    def bodies(self, method: str, path: str) -> list[Any]:
        return [body for m, p, body, _ in self.seen if (m, p) == (method, path)]

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        rows = self.answers.get(f"{method} {path}")
        if rows is None:
            return 404, {"error": {"code": "not_found", "message": f"no {path}"}}
        return rows.pop(0) if len(rows) > 1 else rows[0]

    def stream(self) -> tuple[int, list[Json]]:
        number = self._streamed
        self._streamed += 1
        before = sum(len(events) for events in self.streams[:number])
        return before, self.streams[number] if number < len(self.streams) else []


@contextmanager
def fake_gateway() -> Iterator[FakeGateway]:
    gateway = FakeGateway()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            return

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = self.path.partition("?")[0]
            gateway.seen.append((self.command, path, body, dict(self.headers)))
            self.close_connection = True
            if path.endswith("/events"):
                self.send_events()
                return
            status, answer = gateway.answer(self.command, path)
            if not status:
                return
            data = json.dumps(answer).encode() if answer is not None else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in gateway.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def send_events(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            before, events = gateway.stream()
            for number, event in enumerate(events, before + 1):
                line = f"id: {number}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n: ping\n\n"
                self.wfile.write(line.encode())
            self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_DELETE = respond  # noqa: N815

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
