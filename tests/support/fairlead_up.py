"""A whole Fairlead, started with `fairlead up` in a folder of its own, as its users start it.

    with FairleadUp(tmp_path / "home", sets=["agents.main.mode=allow-all"]) as up:
        session = up.session()
        up.prompt(session, "hello")
        ended = up.wait_idle(session)          # the entries `run_end` of all that was prompted
        assert ended[-1]["outcome"] == "completed"
        up.kill("agent")                       # kill -9; the supervisor starts it again
        up.wait_restarted("agent")

All calls block and are bounded; in an async test call them with `asyncio.to_thread`. The admin token is
fixed (`up.token`), the ports are free ones, and the log files are in `up.home / "logs"`. When a start or
a wait fails, the assertion carries the last lines of what was printed.
"""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.processes import recorded_pids
from tests.support.waiting import WAIT_S

Json = dict[str, Any]

# What the machine of a developer has set and a test must not see.
_FOREIGN = ("FAIRLEAD_", "OPENAI_", "ANTHROPIC_", "NATS_")


# A start takes two seconds on a machine with nothing else to do. A stop takes half a minute where services
# and nats-server use all the time that `fairlead up` gives them.
START_S = 80.0
STOP_S = 60.0


class HttpError(AssertionError):
    """The server answered with an error status."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"HTTP {status}: {body}")
        self.status = status
        self.body = body


class FairleadUp:
    """One `fairlead up`; `stop` and `start` again keep its home.

    Args:
        home: becomes FAIRLEAD_HOME.
        sets: `key=value` pairs for `--set`.
        workers: for `--workers`, as `agent=2,tools=2`.
        environ: added to the environment (`OPENAI_BASE_URL` for a scripted model, `FAIRLEAD_TEST`, ...).
        arguments: more words for the command line.
        under: a program and its arguments that start it, such as `setpriv`.
    """

    starts = "stack"

    def __init__(
        self,
        home: Path,
        *,
        sets: Sequence[str] = (),
        workers: str = "",
        environ: dict[str, str] | None = None,
        arguments: Sequence[str] = (),
        under: Sequence[str] = (),
    ) -> None:
        self.home = home
        self.port = free_port()
        self.token = f"test-token-{os.urandom(12).hex()}"
        self.workspace = home.parent / f"{home.name}-workspace"
        self.process: subprocess.Popen[bytes] | None = None
        self.printed = home.parent / f"{home.name}.out"
        self._arguments = [word for pair in sets for word in ("--set", pair)]
        self._arguments += ["--workers", workers] if workers else []
        self._arguments += list(arguments)
        self._more = environ or {}
        self._under = list(under)
        self._prompted: dict[str, set[int]] = {}

    # -- life --------------------------------------------------------------

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of `fairlead` commands against this home; compiled files are kept."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        own.pop("PYTHONDONTWRITEBYTECODE", None)
        return {
            **own,
            "FAIRLEAD_HOME": str(self.home),
            "FAIRLEAD_PORT": str(self.port),
            "FAIRLEAD_TOKEN": self.token,
            "FAIRLEAD_WORKSPACE": str(self.workspace),
            "NO_COLOR": "1",
            **self._more,
        }

    def launch(self) -> "FairleadUp":
        """Start it and do not wait."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        with self.printed.open("ab") as out:
            self.process = subprocess.Popen(
                [*self._under, *FAIRLEAD, "up", *self._arguments],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return self

    def start(self, timeout_s: float = START_S) -> "FairleadUp":
        """Start it and wait until `/readyz` says 200."""
        self.launch()
        self.wait_ready(timeout_s)
        return self

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait until `/readyz` says 200."""
        last: Any = "no answer"
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self.process, "launch() first"
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.tail()}"
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, last = self.call("GET", "/readyz", timeout_s=2.0)
                if status == 200:
                    return
            time.sleep(0.03)
        raise AssertionError(f"not ready within {timeout_s:.0f} s: {last}\n{self.tail()}")

    def stop(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM, and the exit status. Kills after `timeout_s`. Harmless when it does not run."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=10)
                raise AssertionError(f"did not stop within {timeout_s:.0f} s\n{self.tail()}") from None
        return self.process.returncode

    def __enter__(self) -> "FairleadUp":
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        running = [_handle(pid) for pid in self.pids().values()]
        try:
            self.stop()
        finally:  # nothing outlives its test
            for handle in [*running, *(_handle(pid) for pid in self._runners())]:
                _kill(handle)

    def _runners(self) -> list[int]:
        """Runners of sandbox `local` that are still there: each holds the lock that names it."""
        found = []
        for lock in self.home.glob("tools/*/runners*/*/lock"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(lock.read_text())
                if str(lock.parent).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def tail(self, lines: int = 40) -> str:
        """The last lines that were printed."""
        if not self.printed.exists():
            return ""
        return "\n".join(self.printed.read_text(errors="replace").splitlines()[-lines:])

    def wait_printed(self, text: str, timeout_s: float = WAIT_S) -> None:
        """Wait until `text` was printed."""
        deadline = time.monotonic() + timeout_s
        while text not in self.printed.read_text(errors="replace"):
            assert time.monotonic() < deadline, (
                f"{text!r} was not printed within {timeout_s:g} s\n{self.tail()}"
            )
            time.sleep(0.02)

    # -- processes ---------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """Process numbers by name: `nats`, `gateway`, `agent` (with several: `agent-1`, ...), ..."""
        return recorded_pids(self.home)

    def kill(self, name: str, signum: signal.Signals = signal.SIGKILL) -> int:
        """Signal one process; its number."""
        pid = self.pids()[name]
        self._last_killed = {name: pid}
        os.kill(pid, signum)
        return pid

    def wait_restarted(self, name: str, *, old_pid: int | None = None, timeout_s: float = WAIT_S) -> int:
        """Wait until `name` runs under another number than `old_pid` (default: the one killed last)."""
        old = old_pid if old_pid is not None else self._last_killed[name]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            pid = self.pids().get(name, old)
            if pid != old:
                return pid
            time.sleep(0.02)
        raise AssertionError(f"{name} was not started again within {timeout_s:.0f} s\n{self.tail()}")

    # -- HTTP --------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = 20.0,
    ) -> tuple[int, Any]:
        """Status and decoded body of one request with the admin token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        fields = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            fields["Content-Type"] = "application/json"
        try:
            connection.request(method, path, data, fields)
            response = connection.getresponse()
            raw = response.read()
            try:
                return response.status, json.loads(raw) if raw else None
            except ValueError:
                return response.status, raw.decode(errors="replace")
        finally:
            connection.close()

    def api(self, method: str, path: str, body: Any = None, *, patience_s: float = 15.0) -> Any:
        """The decoded body of a 2xx answer. While the gateway is away it is asked again.

        Raises:
            HttpError: any other status.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                status, answer = self.call(method, path, body)
            except (OSError, http.client.HTTPException):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                continue
            if 200 <= status < 300:
                return answer
            if status == 503 and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            raise HttpError(status, answer)

    # -- sessions ----------------------------------------------------------

    def session(self, **fields: Any) -> str:
        """A new session (`agent`, `mode`, `title`); its id."""
        return str(self.api("POST", "/api/sessions", fields)["id"])

    def prompt(self, session: str, text: str, *, kind: str = "prompt", key: str | None = None) -> Json:
        """Prompt (or `steer`, `followup`) with an idempotency key; `{seq, key}`. Safe to retry."""
        key = key or os.urandom(8).hex()
        answer: Json = self.api("POST", f"/api/sessions/{session}/{kind}", {"text": text, "key": key})
        self._prompted.setdefault(session, set()).add(answer["seq"])
        return answer

    def abort(self, session: str) -> Json:
        answer: Json = self.api("POST", f"/api/sessions/{session}/abort", {})
        return answer

    def entries(self, session: str, after: int = 0) -> list[Json]:
        """All entries of the log after a sequence, oldest first."""
        found: list[Json] = []
        at: int | None = after
        while at is not None:
            page = self.api("GET", f"/api/sessions/{session}/entries?after={at}&limit=1000")
            found += page["entries"]
            at = page["next"]
        return found

    def wait_idle(self, session: str, timeout_s: float = 40.0) -> list[Json]:
        """Wait until all that was prompted through this object has ended; all `run_end` entries."""
        deadline = time.monotonic() + timeout_s
        entries: list[Json] = []
        while True:
            entries += self.entries(session, after=entries[-1]["seq"] if entries else 0)
            ends = [entry for entry in entries if entry["type"] == "run_end"]
            settled = {
                seq
                for entry in ends
                if not entry["outcome"].startswith("waiting_")
                for seq in entry.get("seqs", [])
            }
            settled |= {
                seq for entry in entries if entry["type"] == "dropped" for seq in entry.get("seqs", [])
            }
            open_prompts = self._prompted.get(session, set()) - settled
            if not open_prompts and (ends or not self._prompted.get(session)):
                return ends
            if time.monotonic() > deadline:
                shown = "\n".join(json.dumps(entry)[:300] for entry in entries[-15:])
                raise AssertionError(
                    f"prompts {sorted(open_prompts)} did not end within {timeout_s:.0f} s\n"
                    f"{shown}\n{self.tail()}"
                )
            time.sleep(0.05)

    def ask(self, text: str, *, session: str | None = None, timeout_s: float = 40.0, **fields: Any) -> Json:
        """Prompt and wait; `{session, outcome, text, entries}` with the last words of the assistant."""
        session = session or self.session(**fields)
        self.prompt(session, text)
        ends = self.wait_idle(session, timeout_s)
        entries = self.entries(session)
        return {
            "session": session,
            "outcome": ends[-1]["outcome"],
            "text": last_words(entries),
            "entries": entries,
        }

    def events(
        self, session: str, *, after: int = 0, last_event_id: str | None = None, timeout_s: float = 30.0
    ) -> Iterator[Json]:
        """Server-sent events as `{**data, "id": ..., "event": ...}`, until the server closes.

        Raises:
            TimeoutError: nothing, not even a comment, for `timeout_s`.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        try:
            connection.request("GET", f"/api/sessions/{session}/events?after={after}", headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise HttpError(response.status, response.read().decode(errors="replace"))
            fields: dict[str, str] = {}
            while line := response.readline():
                text = line.decode().rstrip("\r\n")
                if not text:
                    if "data" in fields:
                        data = json.loads(fields["data"])
                        yield {**data, "id": fields.get("id"), "event": fields.get("event")}
                    fields = {}
                elif not text.startswith(":"):
                    name, _, value = text.partition(":")
                    fields[name] = fields.get(name, "") + value.removeprefix(" ")
        finally:
            connection.close()

    def wait_approval(self, session: str, timeout_s: float = WAIT_S) -> Json:
        """The first pending approval of a session."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = self.api("GET", f"/api/approvals?session={session}")["approvals"]
            if found:
                approval: Json = found[0]
                return approval
            time.sleep(0.05)
        raise AssertionError(f"no approval was asked for within {timeout_s:.0f} s\n{self.tail()}")

    def decide(self, approval_id: str, decision: str = "once", reason: str = "") -> Json:
        """Answer an approval: `once`, `session`, `always` or `deny`."""
        body = {"decision": decision, **({"reason": reason} if reason else {})}
        answer: Json = self.api("POST", f"/api/approvals/{approval_id}", body)
        return answer

    # -- the command line --------------------------------------------------

    def cli(
        self,
        *words: str,
        input_text: str | None = None,
        timeout_s: float = 60.0,
        environ: dict[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run `fairlead <words>` against this home."""
        return subprocess.run(
            [*FAIRLEAD, *words],
            env={**self.environ, **(environ or {})},
            input=input_text if input_text is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


FAIRLEAD = [sys.executable, "-m", "fairlead.main"]


def _handle(pid: int) -> int:
    """A descriptor of the process, whose number may be another's once it has ended; -1 without one."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def _kill(handle: int) -> None:
    """Kill the process of a descriptor and close it."""
    if handle < 0:
        return
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)


def last_words(entries: Sequence[Json]) -> str:
    """The text of the last assistant message."""
    for entry in reversed(entries):
        message = entry.get("message", {})
        if entry["type"] == "message" and message.get("role") == "assistant":
            return "".join(block.get("text", "") for block in message["content"] if block["type"] == "text")
    return ""
