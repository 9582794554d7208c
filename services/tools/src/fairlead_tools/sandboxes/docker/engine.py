"""The Docker engine: what is asked of it, in threads, and what its refusals mean."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import docker
import requests
from docker.errors import APIError, DockerException, NotFound

from fairlead_tools.sandboxes.channel import ChannelLostError
from fairlead_tools.sandboxes.docker.stream import ExecStream, open_exec
from fairlead_tools.sandboxes.sandbox import SandboxRefusedError

TIMEOUT_S = 60
PROBE_TIMEOUT_S = 3.0

Inspected = dict[str, Any]
T = TypeVar("T")


class NameTakenError(Exception):
    """A container of that name is there already."""


class Engine:
    """The engine that `DOCKER_HOST` names, else the one on the usual socket."""

    def __init__(self, address: str = "") -> None:
        self.address = address or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self._client: Any = None

    # -- blocking ------------------------------------------------------------

    def problem(self, image: str, runtime: str) -> str:
        """Why no container of this image can be made here; empty when one can. Takes some milliseconds."""
        if not self.address.startswith(("unix://", "tcp://", "http://")):
            return f"DOCKER_HOST must be unix:// or tcp://, got {self.address[:80]!r}"
        path = self.address.removeprefix("unix://")
        if path != self.address and not Path(path).exists():
            return f"no Docker engine listens on {path}"
        try:
            # A client of its own: this one is asked now and then, and must not wait for long.
            with contextlib.closing(self._connect(PROBE_TIMEOUT_S)) as client:
                known = client.info().get("Runtimes", {}) if runtime else {}
                client.inspect_image(image)
        except NotFound:
            return f"the image {image} does not exist; `make sandbox-image` builds the usual one"
        except (DockerException, requests.RequestException) as error:
            return f"the Docker engine does not answer: {_short(error)}"
        if runtime and runtime not in known:
            return f"the engine has no runtime {runtime!r}, only {', '.join(sorted(known))}"
        return ""

    def _connect(self, timeout_s: float) -> Any:
        return docker.APIClient(base_url=self.address, version="auto", timeout=cast(int, timeout_s))

    def _api(self) -> Any:
        if self._client is None:
            self._client = self._connect(TIMEOUT_S)
        return self._client

    def close(self) -> None:
        """Let go of its connections."""
        if self._client is not None:
            self._client.close()

    # -- waiting in threads --------------------------------------------------

    async def _ask(self, what: Callable[[Any], T]) -> T:
        try:
            return await asyncio.to_thread(lambda: what(self._api()))
        except APIError:
            raise
        except (DockerException, requests.RequestException) as error:
            raise ChannelLostError(f"the Docker engine does not answer: {_short(error)}") from error

    async def find(self, name: str) -> Inspected | None:
        """The container of this name or id."""
        return await self._found(lambda api: api.inspect_container(name))

    async def image(self, name: str) -> Inspected | None:
        """What is known of an image."""
        return await self._found(lambda api: api.inspect_image(name))

    async def _found(self, what: Callable[[Any], Inspected]) -> Inspected | None:
        try:
            return await self._ask(what)
        except NotFound:
            return None
        except APIError as error:
            raise ChannelLostError(f"the Docker engine: {_short(error)}") from error

    async def create(self, name: str, image: str, host: dict[str, Any], **config: Any) -> str:
        """Make a container; its id.

        Raises:
            NameTakenError: there is one of that name.
            SandboxRefusedError: the engine does not make such a one.
        """

        def make(api: Any) -> str:
            made = api.create_container(
                image, name=name, host_config=api.create_host_config(**host), **config
            )
            return str(made["Id"])

        try:
            return await self._ask(make)
        except APIError as error:
            if error.status_code == 409:
                raise NameTakenError(name) from error
            raise SandboxRefusedError(f"the engine cannot create the container: {_short(error)}") from error

    async def start(self, container_id: str) -> None:
        """Start a container; one that runs already is left alone.

        Raises:
            SandboxRefusedError: it cannot be started. ChannelLostError: it is gone.
        """
        try:
            await self._ask(lambda api: api.start(container_id))
        except NotFound as error:
            raise ChannelLostError("the container was removed before it started") from error
        except APIError as error:
            await self.clear(container_id)
            raise SandboxRefusedError(f"the container does not start: {_short(error)}") from error

    async def unpause(self, name: str) -> None:
        """Let a paused container go on."""
        with contextlib.suppress(APIError):
            await self._ask(lambda api: api.unpause(name))

    async def remove(self, container_id: str) -> None:
        """Kill and remove a container; safe to repeat. By its id: its name may be another one's by now."""
        with contextlib.suppress(APIError):  # it is gone, or someone else is removing it
            await self._ask(lambda api: api.remove_container(container_id, v=True, force=True))

    async def clear(self, container_id: str) -> None:
        """Remove a container, unless it runs; safe to repeat."""
        with contextlib.suppress(APIError):
            await self._ask(lambda api: api.remove_container(container_id, v=True))

    async def listed(self, labels: dict[str, str]) -> list[Inspected]:
        """Containers with all of these labels, in whatever state."""
        wanted = [f"{name}={value}" for name, value in labels.items()]
        try:
            return await self._ask(lambda api: api.containers(all=True, filters={"label": wanted}))
        except APIError as error:
            raise ChannelLostError(f"the Docker engine: {_short(error)}") from error

    async def last_words(self, name: str) -> str:
        """The end of what its main process said."""
        try:
            said: bytes = await self._ask(lambda api: api.logs(name, tail=5))
        except (APIError, ChannelLostError):
            return ""
        return said.decode("utf-8", "replace").strip()[-500:]

    async def execute(self, name: str, command: list[str]) -> ExecStream:
        """Run a command as root in a running container, with its streams.

        Raises:
            ChannelLostError: the container does not run any more, or the engine does not answer.
        """
        try:
            made = await self._ask(lambda api: api.exec_create(name, command, stdin=True, user="0:0"))
        except APIError as error:
            raise ChannelLostError(f"the container does not run: {_short(error)}") from error
        return await open_exec(self.address, made["Id"])


def _short(error: Exception) -> str:
    text = getattr(error, "explanation", "") or str(error)
    return " ".join(str(text).split())[:300]
