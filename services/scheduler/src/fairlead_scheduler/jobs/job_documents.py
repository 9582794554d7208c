"""Jobs as JSON objects: read, written without what is not set, and changed by a patch."""

import msgspec

from fairlead_common.cron.jobs import Document, Job
from fairlead_common.errors import InvalidInputError

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_ID_CHARS = 40  # `cron-<id>-<slot>-<attempt>` has to be the id of a session


def job_of(document: Document) -> Job:
    """The typed view of a job's document.

    Raises:
        InvalidInputError: it does not fit; the text names the field.
    """
    try:
        return msgspec.convert(document, Job)
    except msgspec.ValidationError as error:
        problem, _, where = str(error).partition(" - at `$.")
        raise InvalidInputError(where.rstrip("`") or "job", problem) from error


def document_of(part: msgspec.Struct) -> Document:
    """The JSON object of a part, without the keys that are not set."""
    plain = msgspec.to_builtins(part)
    return _without_none(plain)


def _without_none(value: Document) -> Document:
    return {
        key: _without_none(child) if isinstance(child, dict) else child
        for key, child in value.items()
        if child is not None
    }


def patched(document: Document, patch: Document) -> Document:
    """`document` after a patch: objects are merged, null removes, a schedule or another kind replaces."""
    merged = dict(document)
    for key, value in patch.items():
        there = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif (
            isinstance(value, dict)
            and isinstance(there, dict)
            and key != "schedule"
            and _same_kind(there, value)
        ):
            merged[key] = patched(there, value)
        else:
            merged[key] = value
    return merged


def _same_kind(there: Document, value: Document) -> bool:
    return "kind" not in value or there.get("kind") == value["kind"]
