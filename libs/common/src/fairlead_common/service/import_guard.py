"""Keeps optional imports of libraries out of the services: 22 MB and a quarter of a second each.

nats-py imports aiohttp for WebSockets and structlog imports rich for colourful tracebacks, if they are
there. Fairlead uses neither, and both are there in most installations, for others' sake. Every
service package calls `import_lean` before it imports anything else.
"""

import importlib
import sys


def import_lean() -> None:
    """Import nats-py and structlog without what they only would like to have."""
    _import_without("structlog", "rich", "better_exceptions")
    _import_without("nats", "aiohttp")


def _import_without(module: str, *unwanted: str) -> None:
    hidden = [name for name in unwanted if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment] # documented: makes `import name` fail
    try:
        importlib.import_module(module)
    finally:
        for name in hidden:
            del sys.modules[name]
