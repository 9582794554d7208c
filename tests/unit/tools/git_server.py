"""A git server and its API on this machine: git's own back end over HTTP, and pull requests in memory."""

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TOKEN = "a-token-that-no-model-saw"


class GitServer(ThreadingHTTPServer):
    """Serves repositories below `root` to who has the token. `mood`: what goes wrong next."""

    starts = "process"

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.seen: list[tuple[str, str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.mood = ""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def environment(self) -> dict[str, str]:
        return {
            "FAIRLEAD_GIT_TOKEN": TOKEN,
            "FAIRLEAD_GIT_HOST": self.host,
            "FAIRLEAD_GIT_API": f"http://{self.host}/api",
        }


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    with GitServer(root) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        if self.path.startswith("/api/"):
            self._api(json.loads(body) if body else None)
        else:
            self._git(body)

    def _git(self, body: bytes) -> None:
        word = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") != f"Basic {word}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.root), "REMOTE_USER": "somebody",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "GIT_HTTP_EXPORT_ALL": "1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HOME": "/nowhere",
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, timeout=60, check=False
        )
        if self.server.mood == "cut" and path.endswith("git-receive-pack") and self.command == "POST":
            self.server.mood = ""
            self.close_connection = True
            self.connection.close()  # it was taken, and no one hears of it
            return
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        status, headers = 200, []
        for line in head.decode().splitlines():
            name, _, value = line.partition(": ")
            if name == "Status":
                status = int(value.split()[0])
            else:
                headers.append((name, value))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    def _api(self, body: Any) -> None:
        self.server.seen.append((self.command, self.path, body))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._say(401, {"message": "Bad credentials"})
            return
        path, _, query = self.path.partition("?")
        if path == "/api/repos/somebody/project" and self.command == "GET":
            self._say(200, {"default_branch": "main"})
            return
        if path != "/api/repos/somebody/project/pulls":
            self._say(404, {"message": "Not Found"})
            return
        if self.command == "GET":
            rows = [each for each in self.server.pulls if f"head=somebody:{each['head']}&" in query]
            self._say(200, rows)
            return
        if any(each["head"] == body["head"] for each in self.server.pulls):
            self._say(422, {"message": "Validation Failed", "errors": ["already exists"]})
            return
        number = len(self.server.pulls) + 1
        made = {**body, "number": number, "html_url": f"http://{self.server.host}/pull/{number}"}
        if self.server.mood != "lost":
            self.server.pulls.append(made)
        if self.server.mood in ("silent", "lost"):
            self.close_connection = True
            self.connection.close()
            return
        self._say(201, made)

    def _say(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
