"""A deployment of compose.yaml of a test's own: project, secrets, port, volumes; and its gateway's API."""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.api import Api
from tests.support.containers import PLAIN_IMAGE, api, missing
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
SERVICES = ("nats", "gateway", "agent", "tools", "scheduler", "webui")
SOCKET = Path("/var/run/docker.sock")
BASES = (PLAIN_IMAGE, "nats:2-alpine", "node:22-slim")
LABEL = "fairlead.engine"
USER = 10001  # of all our containers
HOME = "/var/lib/fairlead"
RECOVERY_S = 60.0
VERSION = os.environ.get("FAIRLEAD_TEST_VERSION", "test")  # tag of the images; another for a second checkout
SETTINGS = {
    "agents.main.mode": "allow-all",
    "agents.boxed": {"mode": "allow-all", "sandbox": {"kind": "docker"}},
    "models.demo_delay_s": 0,
    "cron.min_interval_s": 1,
    "sandboxes.docker.image": PLAIN_IMAGE,
    "sandboxes.docker.warm": 0,
}

Json = dict[str, Any]


def _problem() -> str:
    found = next((problem for image in BASES if (problem := missing(image))), "")
    if found or not shutil.which("docker"):
        return found or "no docker command"
    compose = subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=20, check=False)
    return "no docker compose" if compose.returncode else ""


NEEDS_COMPOSE = [
    pytest.mark.docker,
    pytest.mark.skipif(bool(_problem()), reason=_problem()),
    pytest.mark.timeout(900),  # the first build of the images
]


class Deployment:
    """What `docker compose` was told to run.

    Args:
        store: a folder for the streams, instead of a volume.
        root: the sources, with their compose.yaml.
        version: tag of the images.
    """

    starts = "stack"

    def __init__(
        self,
        folder: Path,
        settings: Json,
        *,
        store: Path | None = None,
        root: Path = ROOT,
        version: str = VERSION,
    ) -> None:
        self._root = root
        self.project = "flt" + os.urandom(4).hex()
        self.secrets = folder / "secrets"
        self.port = free_port()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
            "COMPOSE_PROJECT_NAME": self.project,
            "DOCKER_BUILDKIT": "1",
            "FAIRLEAD_VERSION": version,
            "FAIRLEAD_SECRETS": str(self.secrets),
            "FAIRLEAD_PORT": str(self.port),
            "FAIRLEAD_OVERRIDES": json.dumps(settings),
            "DOCKER_GID": str(SOCKET.stat().st_gid) if SOCKET.exists() else "999",
        }
        if store is not None:
            options = {"type": "none", "o": "bind", "device": str(store)}
            more = folder / "store.json"
            more.write_text(json.dumps({"volumes": {"nats": {"driver_opts": options}}}))
            self._environment["COMPOSE_FILE"] = f"{root / 'compose.yaml'}:{more}"

    def set(self, name: str, value: str) -> None:
        """A setting of the commands that follow."""
        self._environment[name] = value

    def make_secrets(self) -> None:
        subprocess.run(
            [ROOT / "scripts/make-secrets", self.secrets], env=self._environment, check=True, timeout=60
        )

    def tool(self, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """`tools/<name>` with these words."""
        return subprocess.run(
            [ROOT / "scripts" / name, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def nats_user(self, *words: str) -> str:
        """What `scripts/nats-user` says."""
        done = self.tool("nats-user", *words)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    @property
    def token(self) -> str:
        return (self.secrets / "gateway-token").read_text()

    def compose(self, *arguments: str, timeout_s: float = 120, check: bool = True) -> str:
        """What it said.

        Raises:
            AssertionError: it failed; the text has its output and the state of all.
        """
        done = self._compose(*arguments, timeout_s=timeout_s)
        if done.returncode and check:
            state = self.state() if arguments[0] != "logs" else ""
            raise AssertionError(f"{' '.join(done.args)}: {done.stderr[-2000:]}\n{state}")
        return done.stdout

    def _compose(self, *arguments: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["docker", "compose", "--env-file", os.devnull, *arguments],
            cwd=self._root,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def doctor(self, *words: str) -> list[Json]:
        """What each check of `fairlead doctor` found.

        Args:
            words: for `docker compose`: how the command line is started.

        Raises:
            AssertionError: it ended without a report.
        """
        done = self._compose(*words, "doctor", "--json", "--timeout", "20", timeout_s=60)
        assert done.returncode in (0, 1), (
            f"doctor: {done.returncode} {done.stdout[-500:]} {done.stderr[-2000:]}"
        )
        return list(json.loads(done.stdout)["checks"])

    def build(self) -> None:
        """All images, one after the other: layers that they share are made once."""
        for service in SERVICES:
            self.compose("build", "-q", service, timeout_s=600)

    def up(self, *arguments: str) -> float:
        """Seconds until everything was healthy."""
        began = time.monotonic()
        self.compose("--profile", "*", "config", "-q")
        self.compose("up", "-d", "--wait", *arguments, timeout_s=150)
        return time.monotonic() - began

    def containers(self, service: str = "") -> list[Json]:
        """What the engine knows of the containers of a service, or of all."""
        wanted = {"com.docker.compose.project": self.project, "com.docker.compose.service": service}
        labels = [f"{name}={value}" for name, value in wanted.items() if value]
        found = api().containers(all=True, filters={"label": labels})
        return [api().inspect_container(each["Id"]) for each in found]

    def state(self, service: str = "") -> str:
        """For a failure's text: how the containers of a service, or of all, are, and what they said last."""
        names = [service] if service else []
        lines = [
            f"{each['Name']}: {each['RestartCount']} restarts, {each['State']}"
            for each in self.containers(service)
        ]
        return "\n".join([*lines, self.compose("logs", "--tail", "15", *names, check=False)[-12_000:]])

    def run_in(self, service: str, *command: str, timeout_s: float = 30, check: bool = True) -> str:
        return self.compose("exec", "-T", service, *command, timeout_s=timeout_s, check=check)

    def command_line(self, *words: str) -> str:
        """What `fairlead` says to the owner of the deployment."""
        return self.compose("run", "--rm", "-T", "cli", *words)

    def gateway(self) -> Api:
        return Api(f"http://127.0.0.1:{self.port}", self.token)

    def try_prompt(self, session: str, key: str) -> tuple[int, str]:
        """Status and text of one attempt, without patience; 0 if no one answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/sessions/{session}/prompt",
            json.dumps({"text": "hello", "key": key}).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=15) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def remove(self) -> None:
        """Everything but the images."""
        boxes = next((each["Mountpoint"] for each in self._volumes() if each["Name"].endswith("_boxes")), "")
        for each in api().containers(all=True, filters={"label": [LABEL]}) if boxes else []:
            if any(mount["Source"].startswith(boxes) for mount in each["Mounts"]):
                api().remove_container(each["Id"], force=True)
        self.compose("--profile", "*", "down", "-v", "-t", "0", "--remove-orphans", check=False)
        shutil.rmtree(self.secrets, ignore_errors=True)

    def _volumes(self) -> list[Json]:
        wanted = f"com.docker.compose.project={self.project}"
        return list(api().volumes(filters={"label": wanted})["Volumes"] or [])
