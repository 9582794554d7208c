"""Clients that ask for much and read nothing of it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from tests.integration.gateway_fixture import TOKEN

Ask = Literal["events", "websocket", "response", "entries", "flood", "chat", "mcp"]

FLOOD = 100  # requests that one client sends at once
_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@asynccontextmanager
async def reads_nothing(port: int, ask: Ask, name: str) -> AsyncIterator[None]:
    """One such client of the gateway at `port`.

    Args:
        ask: the events of a session, the same over the WebSocket API, a stored response as a stream, a page
            of the log; `flood`: as many pages as it can ask for, over the WebSocket API; `chat`: a completion
            as a stream; `mcp`: a transcript from the MCP server.
        name: of the session, or the response; of `chat`: the prompt.
    """
    loop, sock = asyncio.get_running_loop(), socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # else the kernel reads megabytes for it
    sock.setblocking(False)
    try:
        async with asyncio.timeout(30):
            await loop.sock_connect(sock, ("127.0.0.1", port))
            match ask:
                case "events":
                    await loop.sock_sendall(sock, get(f"/api/sessions/{name}/events"))
                case "response":
                    await loop.sock_sendall(sock, get(f"/v1/responses/{name}?stream=true"))
                case "entries":
                    await loop.sock_sendall(sock, get(f"/api/sessions/{name}/entries"))
                case "chat":
                    messages = [{"role": "user", "content": name}]
                    body = {"model": "main", "stream": True, "messages": messages}
                    await loop.sock_sendall(sock, _post("/v1/chat/completions", body))
                case "mcp":
                    read = {"method": "resources/read", "params": {"uri": f"fairlead://session/{name}"}}
                    await loop.sock_sendall(sock, _post("/mcp", {"jsonrpc": "2.0", "id": 1, **read}))
                case "websocket" | "flood":
                    await loop.sock_sendall(sock, _HANDSHAKE)
                    await loop.sock_recv(sock, 4096)
                    await loop.sock_sendall(sock, _frame("connect", token=TOKEN))
        if ask == "websocket":
            await loop.sock_sendall(sock, _frame("subscribe", session=name))
        if ask == "flood":
            sock.send(_frame("sessions.entries", session=name) * FLOOD)  # what the system takes of it
        yield
    finally:
        sock.close()


def get(path: str) -> bytes:
    """A request by HTTP."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


def _post(path: str, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _frame(method: str, **params: Any) -> bytes:
    """A request of the WebSocket API, as a client has to send it: masked, here with zeros."""
    body = json.dumps({"type": "req", "id": "1", "method": method, "params": params}).encode()
    size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + body
