"""Who may import what. The rules are in docs/architecture.md; this test reads the import statements."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.main import _COMMANDS
from tests.support.sources import parsed

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {"agent", "gateway", "scheduler", "tools", "webui"}
# Each of these may import those after it, and no service; nobody imports the first.
PROGRAM = ["fairlead", "fairlead_node", "fairlead_remote", "fairlead_common"]
CLIENT_COMMANDS = {
    *("down", "login", "run", "sessions", "approve", "steer", "abort", "cron", "wake", "heartbeat", "status"),
    *("version", "completion"),
}
CLIENT = {"fairlead", "fairlead_common", "fairlead_sdk"}  # what is there without the extra `server`

# An outside package and the only places (folder or file prefixes under the source roots) that import it.
OWNERS = {
    "nats": ["fairlead_common/", "fairlead_sdk/"],
    "litellm": ["fairlead_agent/models/litellm_backend.py"],
    "docker": ["fairlead_tools/sandboxes/docker/"],
    "fastapi": ["fairlead_gateway/"],
    "starlette": ["fairlead_gateway/"],
    "uvicorn": ["fairlead_gateway/"],
    "apscheduler": ["fairlead_scheduler/"],
    "jsonschema": ["fairlead_agent/", "fairlead_tools/"],
    "click": ["fairlead/"],
    "cryptography": ["fairlead_remote/authority.py"],
    "ddgs": ["fairlead_tools/web/search_ddgs.py"],
    "lxml": ["fairlead_tools/web/extract.py"],
    "pypdf": ["fairlead_tools/"],
    "trafilatura": ["fairlead_tools/web/extract.py"],
    "mcp": ["fairlead_tools/mcp_servers/sdk.py"],
    "mcp_types": ["fairlead_tools/mcp_servers/sdk.py"],
}


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import, also of those inside functions."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def problems(place: str, source: str) -> list[str]:
    """What this source, at `<package>/<file>`, imports against the rules."""
    own = place.partition("/")[0]
    found = []
    for line, package in imported(source):
        service = package.removeprefix("fairlead_")
        if service in SERVICES and package.startswith("fairlead_") and package != own:
            found.append(f"{place}:{line}: {own} imports the service {package}; services talk over NATS")
        if package in PROGRAM and package != own and package not in _below(own):
            found.append(f"{place}:{line}: {own} imports {package}, which is above it")
        if package in OWNERS and not any(place.startswith(owner) for owner in OWNERS[package]):
            found.append(f"{place}:{line}: imports {package}, which belongs to {', '.join(OWNERS[package])}")
    return found


def _below(own: str) -> list[str]:
    """What a package may import of those that make up the program."""
    return PROGRAM[PROGRAM.index(own) + 1 :] if own in PROGRAM else PROGRAM[-1:]


def sources() -> list[tuple[str, Path]]:
    roots = [*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")]
    return [
        (path.relative_to(root).as_posix(), path) for root in roots for path in sorted(root.rglob("*.py"))
    ]


def test_every_import_keeps_the_rules() -> None:
    files = sources()
    assert {place.partition("/")[0] for place, _ in files} >= {f"fairlead_{name}" for name in SERVICES}
    assert [line for place, path in files for line in problems(place, path.read_text())] == []


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("fairlead_gateway/app.py", "import fairlead_agent.session.loop"),
        ("fairlead_agent/session/loop.py", "def late():\n    from nats.aio.client import Client"),
        ("fairlead_agent/session/loop.py", "import litellm"),
        ("fairlead_common/bus/bus.py", "import fairlead_tools"),
        ("fairlead/run.py", "from fairlead_gateway import app"),
        ("fairlead_tools/main.py", "import fairlead"),
        ("fairlead_agent/main.py", "from fairlead_remote import rights"),
        ("fairlead_common/bus/bus.py", "from fairlead_node.document import load"),
        ("fairlead_remote/registrar.py", "def late():\n    from fairlead_node.document import load"),
        ("fairlead_node/supervisor.py", "from fairlead.client import Client"),
        ("fairlead_common/config.py", "import click"),
    ],
)
def test_a_forbidden_import_is_found(place: str, source: str) -> None:
    assert len(problems(place, source)) == 1


def loaded_at_once(path: Path) -> set[str]:
    """Top-level packages that a module imports when it is imported itself."""
    found = set()
    for node in parsed(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_commands_over_http_do_without_the_platform() -> None:
    folder = ROOT / "libs/cli/src/fairlead/commands"
    needing = {
        name
        for name, (module, _) in _COMMANDS.items()
        if {"fairlead_node", "fairlead_remote"}
        & {package for _, package in imported((folder / f"{module}.py").read_text())}
    }
    assert set(_COMMANDS) - needing == CLIENT_COMMANDS


def test_the_client_loads_nothing_of_the_platform() -> None:
    for path in (ROOT / "libs/cli/src/fairlead").glob("*.py"):
        ours = {name for name in loaded_at_once(path) if name.startswith("fairlead")}
        assert ours <= CLIENT, path


def test_main_only_wires() -> None:
    """A `main.py` of a service holds no classes and is short."""
    for place, path in sources():
        if path.name == "main.py" and place.partition("/")[0] != "fairlead":
            tree = parsed(path.read_text())
            assert not [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)], place
            assert len(path.read_text().splitlines()) <= 150, place
