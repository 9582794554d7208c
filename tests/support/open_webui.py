"""An unmodified Open WebUI in a virtual environment of its own, spoken to as its page does."""

import contextlib
import fcntl
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.support.ports import free_port

VERSION = "0.12.4"
Json = dict[str, Any]

# Parts of it for voice, browsing and embedding on this machine: gigabytes that no test here needs.
_LEFT_OUT = (
    "torch",
    "sentence-transformers",
    "accelerate",
    "faster-whisper",
    "playwright",
    "onnxruntime",
    "rapidocr-onnxruntime",
    "opencv-python",
    "opencv-python-headless",
    "unstructured",
)


def install(folder: Path, uv: str) -> Path:
    """A virtual environment with Open WebUI, made in `folder` unless it is there: about 1.1 GB.

    Raises:
        subprocess.SubprocessError: it cannot be installed.
    """
    venv = folder / "venv"
    installed = folder / f"installed-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else who installs it is bounded, too
        if not installed.exists():
            _install(folder, venv, uv)
            installed.touch()
    return venv


def _install(folder: Path, venv: Path, uv: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    overrides = folder / "overrides.txt"
    overrides.write_text("".join(f"{name} ; sys_platform == 'never'\n" for name in _LEFT_OUT))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "-q", "-p", version, str(venv)], check=True, timeout=120)
    options = ["-q", "--python", str(venv / "bin/python"), "--override", str(overrides)]
    command = [uv, "pip", "install", *options, f"open-webui=={VERSION}"]
    subprocess.run(command, check=True, timeout=1200)


class OpenWebUI:
    """One running Open WebUI with one user, who is its administrator.

    Args:
        url: base URL of the API that it uses, with `/v1`.
        environ: more settings.
    """

    starts = "process"

    def __init__(
        self, venv: Path, folder: Path, url: str, key: str, environ: dict[str, str] | None = None
    ) -> None:
        self._venv = venv
        self._folder = folder
        self._port = free_port()
        self._token = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._environ = {
            "PATH": f"{venv}/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "DATA_DIR": str(folder / "data"),
            "WEBUI_SECRET_KEY": "for-tests-only",
            "OPENAI_API_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "ENABLE_OLLAMA_API": "False",
            "RAG_EMBEDDING_ENGINE": "openai",
            "OFFLINE_MODE": "True",
            "HF_HUB_OFFLINE": "1",
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            **(environ or {}),
        }

    def __enter__(self) -> "OpenWebUI":
        self._folder.mkdir(parents=True, exist_ok=True)
        log = (self._folder / "log").open("wb")
        command = [f"{self._venv}/bin/open-webui", "serve", "--host", "127.0.0.1", "--port", str(self._port)]
        with log:
            self._process = subprocess.Popen(
                command, cwd=self._folder, env=self._environ, stdout=log, stderr=log
            )
        try:
            self._wait_ready()
            name = {"name": "Ann", "email": "ann@example.com", "password": "a-password-for-tests"}
            self._token = self.call("POST", "/api/v1/auths/signup", name)["token"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout=10)

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join((self._folder / "log").read_text(errors="replace").splitlines()[-40:])

    def call(self, method: str, path: str, body: Json | None = None) -> Any:
        """The decoded answer to one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        assert response.status == 200, f"{path}: {response.status} {raw[:500]!r}\n{self.tail()}"
        return json.loads(raw)

    def models(self) -> list[str]:
        """The models that it offers."""
        return [model["id"] for model in self.call("GET", "/api/models")["data"]]

    def turn(self, text: str, chat: Json | None = None, *, model: str = "main") -> Json:
        """Say `text` in a new chat, or in `chat`; the chat once the answer and all side tasks are there."""
        said, answer = str(uuid.uuid4()), str(uuid.uuid4())
        history = chat["chat"]["history"] if chat else {"messages": {}, "currentId": None}
        path: list[Json] = []
        at = history["currentId"]
        while at:
            path.insert(0, history["messages"][at])
            at = path[0].get("parentId")
        messages = [{"role": each["role"], "content": each["content"]} for each in path]
        user = {
            "id": said,
            "parentId": history["currentId"],
            "childrenIds": [answer],
            "role": "user",
            "content": text,
            "timestamp": int(time.time()),
            "models": [model],
        }
        first = chat is None
        body: Json = {
            "stream": True,
            "model": model,
            "messages": [*messages, {"role": "user", "content": text}],
            "params": {},
            "features": {},
            "variables": {},
            "session_id": str(uuid.uuid4()),
            "id": answer,
            "parent_id": history["currentId"],
            "user_message": user,
            "background_tasks": {
                **({"title_generation": True, "tags_generation": True} if first else {}),
                "follow_up_generation": True,
            },
        }
        if chat:
            body["chat_id"] = chat["id"]
        chat_id = self.call("POST", "/api/chat/completions", body).get("chat_id") or body["chat_id"]
        return self._answered(chat_id, answer)

    def _answered(self, chat_id: str, answer: str, timeout_s: float = 90.0) -> Json:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            chat: Json = self.call("GET", f"/api/v1/chats/{chat_id}")
            message = chat["chat"]["history"]["messages"].get(answer, {})
            busy = self.call("GET", f"/api/tasks/chat/{chat_id}")["task_ids"]
            if message.get("done") and not busy:
                return chat
            time.sleep(0.2)
        raise AssertionError(f"no answer within {timeout_s:g} s\n{self.tail()}")

    def _wait_ready(self, timeout_s: float = 180.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.poll() is None, f"ended with {self._process.returncode}\n{self.tail()}"
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError, ValueError):
                self.call("GET", "/health")
                return
            time.sleep(0.3)
        raise AssertionError(f"not ready within {timeout_s:g} s\n{self.tail()}")


if __name__ == "__main__":
    try:
        install(Path(sys.argv[1]), sys.argv[2])
    except (OSError, subprocess.SubprocessError) as problem:
        sys.exit(f"Open WebUI cannot be installed: {problem}")
