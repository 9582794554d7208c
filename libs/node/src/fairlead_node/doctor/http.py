"""One question to the gateway."""

import http.client
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit


class HttpAnswer(NamedTuple):
    """What came back."""

    status: int
    body: str
    date: str


def ask(
    url: str, path: str, *, timeout_s: float = 3.0, headers: Mapping[str, str] | None = None
) -> HttpAnswer | None:
    """The answer to a GET; None when there is none."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", parts.path.rstrip("/") + path, headers=dict(headers or {}))
        response = connection.getresponse()
        body = response.read(4096).decode("utf-8", "replace")
        return HttpAnswer(response.status, body, response.headers.get("Date", ""))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
