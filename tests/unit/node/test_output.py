"""Log files and what is shown of them."""

import io
import json
from pathlib import Path

import pytest

from fairlead_node.supervisor import output
from fairlead_node.supervisor.output import Console, LogFile, readable, teller


def test_a_json_line_is_shown_readably() -> None:
    line = json.dumps(
        {"event": "tool_finished", "level": "warning", "service": "tools", "tool": "bash", "n": 3}
    )
    assert readable(line) == ("warning tool_finished tool=bash n=3", "warning")
    hidden = json.dumps({"event": "mcp_failed", "level": "info", "why": "\x1b[8mx\u202e"})
    assert readable(hidden)[0] == r'mcp_failed why="\u001b[8mx\u202e"'
    assert readable("plain words") == ("plain words", "")
    assert readable('{"no": "event"}') == ('{"no": "event"}', "")


def test_lines_carry_the_name_of_who_says_them() -> None:
    stream = io.StringIO()
    console = Console(stream, colour=False)
    console.say("one\ntwo")
    teller(console, "agent-1")('{"event": "ready", "level": "info"}')
    assert stream.getvalue() == "fairlead  | one\nfairlead  | two\nagent-1   | ready\n"


def test_colours_only_where_they_are_wanted() -> None:
    stream = io.StringIO()
    Console(stream, colour=True).line("agent", "x")
    assert "\033[" in stream.getvalue()
    assert not output.wants_colour(stream, {})


def test_a_full_log_is_moved_and_three_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_LOG_BYTES", 100)
    log = LogFile(tmp_path, "agent")
    for number in range(50):
        log.write(f"line {number:04}".encode())
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.log", "agent.log.1", "agent.log.2"]
    kept = b"".join((tmp_path / name).read_bytes() for name in ("agent.log.2", "agent.log.1", "agent.log"))
    lines = kept.decode().splitlines()
    assert lines == [f"line {number:04}" for number in range(50 - len(lines), 50)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
