"""Outcomes: what came of a call, as the executor and in the end the model gets it."""

from __future__ import annotations

from typing import Any

Outcome = dict[str, Any]


def outcome(
    status: str,
    text: str,
    *,
    is_error: bool = False,
    exit_code: int | None = None,
    details: dict[str, Any] | None = None,
) -> Outcome:
    """An outcome of words. `status` as in the wire contract: ok, error, cancelled, timed_out, unknown."""
    made: Outcome = {"status": status, "content": [{"type": "text", "text": text}], "is_error": is_error}
    if exit_code is not None:
        made["exit_code"] = exit_code
    if details:
        made["details"] = details
    return made


def done(text: str, **details: Any) -> Outcome:
    """The tool did what it was asked."""
    return outcome("ok", text, details=details)


def failed(text: str) -> Outcome:
    """The tool could not, or was refused, and nothing was changed."""
    return outcome("error", text, is_error=True)


def image(note: str, media_type: str, data: str) -> Outcome:
    """A picture; `data` is base64."""
    content: list[dict[str, Any]] = [
        {"type": "text", "text": note},
        {"type": "image", "media_type": media_type, "data": data},
    ]
    return {"status": "ok", "content": content, "is_error": False}


def unknown(why: str, output: str | None = None) -> Outcome:
    """Nobody can know whether the call took effect; it will not be tried again."""
    text = f"{why} It may have run, wholly, in part or not at all: look before you repeat it."
    if output:
        text += f"\nThe end of its output:\n{output}"
    return outcome("unknown", text, is_error=True)
