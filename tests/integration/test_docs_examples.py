"""Examples of the documentation, run as written and with nothing installed but what is written."""

import asyncio
import json
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import nats
from packaging.requirements import Requirement

from fairlead_common.permissions import nkey
from tests.integration.foreign_tools_fixture import DOCUMENT, block
from tests.support.nats_server import NatsServer


def installed(requirement: str, folder: Path) -> Path:
    """A folder with what `pip install <requirement>` brings, of what is installed here."""
    folder.mkdir()
    todo, done = [Requirement(requirement)], set()
    while todo:
        wanted = todo.pop()
        if wanted.name in done:
            continue
        done.add(wanted.name)
        found = distribution(wanted.name)
        for name in {
            file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")
        }:
            (folder / name).symlink_to(str(found.locate_file(name)))
        for text in found.requires or []:
            needed = Requirement(text)
            extras = [*wanted.extras, ""]
            if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(needed)
    return folder


async def test_the_weather_service_runs_with_what_the_document_says_to_install(tmp_path: Path) -> None:
    said = re.search(r'`pip install "?([^`"]+)"?`', DOCUMENT.read_text())
    assert said
    seed = nkey.new_seed()
    (tmp_path / "weather.nk").write_text(seed)
    user = f"authorization {{ users: [ {{ nkey: {nkey.public_key(seed)} }}, {{ user: a, password: b }} ] }}"
    server = NatsServer(tmp_path / "nats", extra=user).start()
    program = tmp_path / "weather.py"
    program.write_text(block("# weather.py"))
    packages = installed(said[1], tmp_path / "packages")
    run = f"import sys, runpy; sys.path.insert(0, {str(packages)!r}); runpy.run_path({str(program)!r})"
    environ = {"NATS_URL": server.url, "NATS_NKEY": str(tmp_path / "weather.nk")}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-S", "-c", run], env=environ, stdout=log, stderr=log)
    client = await nats.connect(server.url, user="a", password="b")
    try:
        answer = None
        async with asyncio.timeout(40):
            while answer is None:
                assert process.poll() is None, (tmp_path / "log").read_text()
                try:
                    answer = await client.request("weather.now", b'{"city": "Oslo"}', timeout=2)
                except nats.errors.Error:
                    await asyncio.sleep(0.05)
        assert json.loads(answer.data) == {"city": "Oslo", "celsius": 21}
    finally:
        await client.close()
        process.kill()
        process.wait(timeout=20)
        server.stop()
