"""The system lines of a session that its model has not read yet, as `fairlead sessions show` prints them."""

from typing import Any

from fairlead_common.protocol.custom_entries import SYSTEM_EVENT
from fairlead_common.session_log.system_events import line_of

Json = dict[str, Any]


def waiting_lines(entries: list[Json]) -> list[str]:
    """The lines, oldest first.

    Args:
        entries: of one branch, oldest first.
    """
    read = {item for entry in entries if entry["type"] == "message" for item in entry.get("items", ())}
    return [
        f"[waits for the next turn] {line_of(str(entry.get('data', {}).get('text', '')), entry.get('ts', 0))}"
        for entry in entries
        if entry["type"] == "custom" and entry.get("name") == SYSTEM_EVENT and entry["id"] not in read
    ]
