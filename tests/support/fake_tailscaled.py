"""A tailscaled that is none: its local API over a unix socket, and the proxy of `tailscale serve`.

Runs as a process of its own, for the gateway asks the kernel whose connection it is. It is strict where the
real one is (source: tailscale 1.9x `ipn/localapi/serve.go`, `localapi.go`, `ipn/ipnlocal/serve.go`): Host,
ETag, types of the configuration, what a port may become. `/play/...` is for tests.
"""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

HOST = "box.tail1.ts.net"
ANN, BOB, TAGGED = "100.64.0.1", "fd7a:115c:a1e0::2", "100.64.0.3"
PEERS = {
    ANN: {"login": "Ann@example.com", "name": "Ann", "tags": []},
    BOB: {"login": "bób@example.com", "name": "Bób", "tags": []},
    TAGGED: {"login": "tagged-devices", "name": "Tagged Devices", "tags": ["tag:ci"]},
}
_HANDLER = {"Path", "Proxy", "Text", "AcceptAppCaps", "Redirect"}
_LISTENER = {"HTTPS", "HTTP", "TCPForward", "TerminateTLS", "ProxyProtocol"}


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.config: dict[str, Any] | None = None
        self.backend = "Running"
        self.certificates = [HOST]
        self.caps = {
            "https": None,
            "funnel": None,
            "https://tailscale.com/cap/funnel-ports?ports=443,8443": None,
        }
        self.may_write = True
        self.interfere = 0  # so many writes find that another one came first
        self.writes = 0

    def etag(self) -> str:
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()


def checked(config: Any) -> dict[str, Any]:
    """The configuration, if Go could decode it as `ipn.ServeConfig` and tailscaled would take it."""
    assert isinstance(config, dict), "not an object"
    assert set(config) <= {"TCP", "Web", "Services", "AllowFunnel", "Foreground"}, f"unknown keys {config}"
    for port, listener in (config.get("TCP") or {}).items():
        assert 0 < int(port) < 65536, f"bad port {port}"
        assert set(listener) <= _LISTENER, f"unknown keys {listener}"
    for place, web in (config.get("Web") or {}).items():
        assert place.rpartition(":")[2] in (config.get("TCP") or {}), f"no listener for {place}"
        for mount, handler in web["Handlers"].items():
            assert mount.startswith("/"), f"bad mount {mount}"
            assert set(handler) <= _HANDLER, f"unknown keys {handler}"
    for place, is_on in (config.get("AllowFunnel") or {}).items():
        assert isinstance(is_on, bool), "AllowFunnel takes booleans"
        assert ":" in place, f"bad place {place}"
    return config


class _Handler(BaseHTTPRequestHandler):
    state: _State
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if (
            self.headers.get("Referer")
            or self.headers.get("Origin")
            or (self.headers.get("Host") not in ("", None, "local-tailscaled.sock"))
        ):
            return self._answer(403, b"invalid localapi request")
        with self.state.lock if not url.path.startswith("/play/") else contextlib.nullcontext():
            match (self.command, url.path):
                case "GET", "/localapi/v0/whois":
                    self._whois(query)
                case "GET", "/localapi/v0/status":
                    self._status()
                case "GET", "/localapi/v0/serve-config":
                    self._answer(200, json.dumps(self.state.config).encode(), Etag=self.state.etag())
                case "POST", "/localapi/v0/serve-config":
                    self._set(body)
                case "POST", "/play/state":
                    for key, value in json.loads(body).items():
                        setattr(self.state, key, value)
                    self._answer(200, b"{}")
                case "GET", "/play/state":
                    shown = {"config": self.state.config, "writes": self.state.writes}
                    self._answer(200, json.dumps(shown).encode())
                case "POST", "/play/proxy":
                    self._proxy(json.loads(body))
                case _:
                    self._answer(404, b"not found")
        return None

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _whois(self, query: dict[str, str]) -> None:
        address = query.get("addr", "")
        if not address:
            return self._answer(400, b"missing 'addr' parameter\n")
        peer = PEERS.get(address)
        if peer is None:
            return self._answer(404, b"no match for IP:port\n")
        node: dict[str, Any] = {"ID": 1, "Name": "laptop.tail1.ts.net.", "Addresses": [f"{address}/32"]}
        if peer["tags"]:
            node["Tags"] = peer["tags"]
        profile = {"ID": 7, "LoginName": peer["login"], "DisplayName": peer["name"]}
        found = {"Node": node, "UserProfile": profile, "CapMap": {}}
        return self._answer(200, json.dumps(found, indent="\t").encode())

    def _status(self) -> None:
        state = self.state
        node = {"DNSName": f"{HOST}.", "CapMap": state.caps}
        found = {"BackendState": state.backend, "Self": node, "CertDomains": state.certificates}
        self._answer(200, json.dumps(found).encode())

    def _set(self, body: bytes) -> None:
        state = self.state
        if not state.may_write:
            return self._answer(403, b"serve config denied\n")
        try:
            config = checked(json.loads(body))
            for port, listener in ((state.config or {}).get("TCP") or {}).items():
                wanted = (config.get("TCP") or {}).get(port)
                same = wanted is None or bool(wanted.get("HTTPS")) == bool(listener.get("HTTPS"))
                assert same, f"cannot change the serve type of port {port}"
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError) as error:
            return self._answer(500, json.dumps({"error": f"updating config: {error}"}).encode())
        if state.interfere > 0:
            state.interfere -= 1
            state.config = {**(state.config or {}), "TCP": {**((state.config or {}).get("TCP") or {}),
                            str(9000 + state.interfere): {"TCPForward": "127.0.0.1:9"}}}  # fmt: skip
        etag = self.headers.get("If-Match")
        if etag and etag != state.etag():
            return self._answer(412, b"etag mismatch\n")
        state.config = config
        state.writes += 1
        return self._answer(200, b"")

    def _proxy(self, asked: dict[str, Any]) -> None:
        """One request as `tailscale serve` passes it on to `target`."""
        host, _, port = asked["target"].partition(":")
        dropped = {"tailscale-user-login", "tailscale-user-name", "tailscale-user-profile-pic",
                   "tailscale-funnel-request", "tailscale-headers-info", "x-forwarded-for"}  # fmt: skip
        headers = {k: v for k, v in asked.get("headers", {}).items() if k.lower() not in dropped}
        headers |= {"Host": HOST, "X-Forwarded-Host": HOST, "X-Forwarded-Proto": "https"}
        headers["X-Forwarded-For"] = asked["from"]
        peer = PEERS.get(asked["from"])
        if asked.get("funnel"):
            headers["Tailscale-Funnel-Request"] = "?1"
        elif peer is not None and not peer["tags"]:
            headers["Tailscale-User-Login"] = _encoded(str(peer["login"]))
            headers["Tailscale-User-Name"] = _encoded(str(peer["name"]))
        headers |= asked.get("as_is", {})
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request(asked["method"], asked["path"], asked.get("body", "").encode() or None, headers)
        answer = connection.getresponse()
        told = {"status": answer.status, "text": answer.read().decode(), "headers": dict(answer.getheaders())}
        connection.close()
        self._answer(200, json.dumps(told).encode())

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        return


def _encoded(value: str) -> str:
    """As Go's `mime.QEncoding.Encode`."""
    if value.isascii():
        return value
    raw = "".join(chr(b) if chr(b).isalnum() and b < 128 else f"={b:02X}" for b in value.encode())
    return f"=?utf-8?q?{raw}?="


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True


class FakeTailscaled:
    """The process, as tests see it."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.process = process

    def play(self, method: str, path: str, body: object = None) -> Any:
        """What is for tests alone."""
        raw = json.dumps(body).encode() if body is not None else b""
        connection = http.client.HTTPConnection("local-tailscaled.sock", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(30)
        connection.sock.connect(str(self.path))
        connection.request(method, f"/play/{path}", raw)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def set(self, **state: Any) -> None:
        """Change its state."""
        self.play("POST", "state", state)

    @property
    def config(self) -> Any:
        """What it serves."""
        return self.play("GET", "state")["config"]

    def proxy(self, target: str, method: str, path: str, source: str, **more: Any) -> Any:
        """The answer to a request that comes from the tailnet: status, text and headers."""
        body = json.dumps(more.pop("body")) if "body" in more else ""
        asked = {"target": target, "method": method, "path": path, "from": source, "body": body, **more}
        return self.play("POST", "proxy", asked)


@contextlib.contextmanager
def fake_tailscaled(path: Path) -> Iterator[FakeTailscaled]:
    """Running."""
    process = subprocess.Popen([sys.executable, __file__, str(path)])
    made = FakeTailscaled(path, process)
    deadline = time.monotonic() + 20
    while True:
        try:
            made.play("GET", "state")
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    try:
        yield made
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)


if __name__ == "__main__":
    _Handler.state = _State()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(sys.argv[1])
    _Server(sys.argv[1], _Handler).serve_forever()
