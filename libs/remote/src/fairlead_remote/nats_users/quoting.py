"""Text within the configuration of a nats-server."""

import json

from fairlead_common.installation.errors import CONFIG, CommandError


def quoted(text: object) -> str:
    """A string as nats-server reads it: letters of all languages as they are.

    Raises:
        CommandError: it holds what cannot be written there.
    """
    string = str(text)
    if any(ord(each) < 32 or ord(each) == 127 or "\ud800" <= each <= "\udfff" for each in string):
        raise CommandError(
            f"invalid value {string!r} for the nats-server configuration: control characters are not allowed",
            CONFIG,
        )
    return json.dumps(string, ensure_ascii=False)
