"""What a server is given of the executor's own environment: little, and secrets only where they are named."""

import os
from collections.abc import Mapping
from pathlib import Path

from fairlead_common.config.secret import Secret
from fairlead_common.errors import InvalidInputError

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
MAX_SECRET_BYTES = 65_536


def resolved(values: Mapping[str, str | Secret], where: str) -> dict[str, str]:
    """The values, secrets read from where they are on this host.

    Raises:
        InvalidInputError: a secret cannot be had; the text names its place, never its value.
    """
    found = {}
    for name, value in values.items():
        text = value if isinstance(value, str) else _secret(value, f"{where}.{name}")
        if "\0" in text or (where.endswith("headers") and ("\n" in text or "\r" in text)):
            raise InvalidInputError(f"{where}.{name}", "must be one line of text")
        found[name] = text
    return found


def inherited() -> dict[str, str]:
    """The few variables that every command may have."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def _secret(secret: Secret, where: str) -> str:
    if secret.from_env:
        if secret.from_env.startswith("FAIRLEAD_"):
            raise InvalidInputError(where, f"{secret.from_env} is one of Fairlead's own variables")
        if secret.from_env not in os.environ:
            raise InvalidInputError(where, f"the executor has no variable {secret.from_env}")
        return os.environ[secret.from_env]
    if not secret.from_file:
        return ""
    try:
        with Path(secret.from_file).open("rb") as file:
            data = file.read(MAX_SECRET_BYTES + 1)
        if len(data) > MAX_SECRET_BYTES:
            raise InvalidInputError(where, f"{secret.from_file}: at most {MAX_SECRET_BYTES} bytes")
        return data.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise InvalidInputError(where, f"{secret.from_file}: {reason}") from error
