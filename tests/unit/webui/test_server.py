"""The file server on a real bus."""

import asyncio
import json
from pathlib import Path

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_webui.files import load
from fairlead_webui.server import FileServer


async def test_files_are_answered_with_headers_and_a_raw_body_until_the_service_stops(
    bus: Bus, tmp_path: Path
) -> None:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "index.html").write_bytes(b"<!doctype html>page")
    stop = asyncio.Event()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(FileServer(bus, load(folder)).run(stop))
        await asyncio.sleep(0)
        for _ in range(3):
            reply = await bus.request(subjects.WEBUI_FILE, json.dumps({"path": "/s/abc"}).encode())
            assert reply.data == b"<!doctype html>page"
            assert reply.headers["status"] == "200"
            assert reply.headers["content-type"].startswith("text/html")
        stop.set()
        await running
