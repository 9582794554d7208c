"""Containers that tests make: whether there is an engine, which are a test's own, and their removal."""

import functools
import os
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from docker.errors import DockerException, NotFound

PLAIN_IMAGE = "python:3.11-slim-bookworm"
WAIT_S = 30.0


@functools.cache
def api() -> Any:
    """A client of the engine."""
    return docker.APIClient(base_url=os.environ.get("DOCKER_HOST"), version="auto", timeout=60)


@functools.cache
def missing(image: str = PLAIN_IMAGE) -> str:
    """Why no containers can be made here; empty when they can."""
    try:
        api().inspect_image(image)
    except NotFound:
        return f"the engine has no image {image}"
    except (DockerException, requests.RequestException) as error:
        return f"no Docker engine: {str(error)[:80]}"
    return ""


def needs_docker(test: Any) -> Any:
    """Marks a test that makes containers."""
    return pytest.mark.docker(pytest.mark.skipif(bool(missing()), reason=missing())(test))


def identity_of(state: Path) -> str:
    """Names the containers of the executors with this state folder."""
    path = state / "identity"
    return path.read_text("ascii") if path.exists() else ""


def containers(identity: str, **labels: str) -> list[dict[str, Any]]:
    """All containers of one host."""
    if not identity:
        return []
    wanted = {"fairlead.identity": identity, **labels}
    filters = {"label": [f"{name}={value}" for name, value in wanted.items()]}
    found: list[dict[str, Any]] = api().containers(all=True, filters=filters)
    return found


def running(identity: str) -> list[str]:
    """The ids of those that run commands."""
    return [each["Id"] for each in containers(identity) if each["State"] == "running" and _is_sandbox(each)]


def _is_sandbox(container: dict[str, Any]) -> bool:
    return bool(container["Labels"].get("fairlead.journal"))


def remove_all(identity: str) -> None:
    """End and remove them."""
    for each in containers(identity):
        try:
            api().remove_container(each["Id"], force=True, v=True)
        except (NotFound, DockerException):
            continue
