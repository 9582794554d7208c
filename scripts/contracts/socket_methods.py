"""The page that lists the methods of the WebSocket API."""

from fairlead_gateway.routes import OPERATIONS
from fairlead_gateway.websocket.methods import method_names

_HEAD = """# Methods of the WebSocket API

Written by `make contracts`. What a method takes and answers is documented with its operation in
[openapi.json](openapi.json). Params are the names in the path, the parameters of the query and the fields
of the body. [websocket.md](../websocket.md) describes the rest.

| method | operation | scope | |
|---|---|---|---|
"""


def socket_methods() -> str:
    """The page."""
    rows = [
        f"| `{name}` | `{each.method} {each.path}` | {each.scope} | {each.text} |"
        for name, each in sorted(method_names(OPERATIONS).items())
    ]
    return _HEAD + "\n".join(rows) + "\n"
