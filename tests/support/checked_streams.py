"""OpenAI's client, each event of whose streams is checked against the OpenAPI document of the gateway."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import httpx2
import openai
from jsonschema import Draft202012Validator

from fairlead_gateway.openapi_document import openapi_document

EVENTS = "text/event-stream"


def strict_document() -> dict[str, Any]:
    """The document, with no field in any object that it does not name."""
    document = deepcopy(openapi_document())
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return document


def validator_of(document: dict[str, Any], method: str, path: str) -> Draft202012Validator:
    """Of the data of the events that this operation streams."""
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in operations:
            content = operations[method.lower()]["responses"]["200"]["content"]
            schema = content[EVENTS]["x-event-data"]
            return Draft202012Validator({**schema, "components": document["components"]})
    raise AssertionError(f"{method} {path} is not in the document")


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends requests as they are.

    Fields:
        seen: how many events of each type were checked; of chat completions `chunk` and `error`.
    """

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._document = strict_document()
        self.seen: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-type", "").startswith(EVENTS):
            validator = validator_of(self._document, request.method, request.url.path)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Checked(response.stream, validator, self.seen)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Checked(httpx2.AsyncByteStream):
    def __init__(
        self, inner: httpx2.AsyncByteStream, validator: Draft202012Validator, seen: Counter[str]
    ) -> None:
        self._inner = inner
        self._validator = validator
        self._seen = seen

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._inner:
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                self._check(event)
            yield chunk

    def _check(self, event: bytes) -> None:
        for line in event.split(b"\n"):
            data = line.removeprefix(b"data: ")
            if data == line or data == b"[DONE]":
                continue
            value = json.loads(data)
            problems = [f"{each.json_path}: {each.message}" for each in self._validator.iter_errors(value)]
            assert not problems, (value, problems)
            name = value.get("type") or ("error" if "error" in value else "chunk")
            assert "type" not in value or f"event: {name}".encode() in event
            self._seen[name] += 1

    async def aclose(self) -> None:
        await self._inner.aclose()


def checked_client(url: str, token: str, **more: Any) -> openai.AsyncOpenAI:
    """The client of a gateway at `url`."""
    http = httpx2.AsyncClient(transport=CheckedTransport(), timeout=20)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=token, http_client=http, **more)
