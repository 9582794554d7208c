"""What may be meant by a name that the server does not know."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from fairlead.printable import printable
from fairlead.table import shortened

_MOST: Final = 3
_LABEL_CHARS: Final = 40
_PREFIX_CHARS: Final = 4  # of an id that was cut short


class _List(NamedTuple):
    """A list of names: its path and field, the field of the name, and that of what people call it."""

    path: str
    field: str
    name: str
    label: str = ""


_LISTS: Final = {
    "/api/users/": _List("/api/users", "users", "name"),
    "/api/tokens/": _List("/api/tokens", "tokens", "id", "name"),
    "/api/credentials/": _List("/api/credentials", "credentials", "name"),
    "/api/cron/jobs/": _List("/api/cron/jobs?all=true&limit=1000", "jobs", "id", "name"),
    "/api/sessions/": _List("/api/sessions?limit=200", "sessions", "id", "title"),
    "/api/heartbeat": _List("/api/agents", "agents", "name"),
}


def hint_for(path: str, body: object, ask: Callable[[str], Any]) -> str:
    """The names that may be meant, of what a refused request is about; empty: none is near.

    Args:
        ask: gives the answer to a GET of a path.
    """
    for prefix, where in _LISTS.items():
        if not path.startswith(prefix):
            continue
        name = unquote(urlsplit(path).path.removeprefix(prefix).partition("/")[0])
        if not name and isinstance(body, dict):
            name = str(body.get("agent", ""))
        rows = ask(where.path)[where.field]
        labels = {str(row[where.name]): str(row.get(where.label) or "") for row in rows}
        return did_you_mean(name, labels, labels)
    return ""


def did_you_mean(name: str, names: Iterable[str], labels: dict[str, str] | None = None) -> str:
    """`; did you mean a (its label) or b?`, empty: none is near."""
    known = list(names)
    called = {each: label for each, label in (labels or {}).items() if label}
    found: list[str] = []
    if len(name) >= _PREFIX_CHARS:
        found += [each for each in known if each.startswith(name)]
    found += get_close_matches(name, known, n=_MOST)
    for label in get_close_matches(name, called.values(), n=_MOST):
        found += [each for each in known if called.get(each) == label]
    near = [
        f"{each} ({shortened(printable(called[each]), _LABEL_CHARS)})" if each in called else each
        for each in list(dict.fromkeys(found))[:_MOST]
    ]
    return f"; did you mean {' or '.join(near)}?" if near else ""
