"""The OpenAPI document, made from the table of routes and the Structs that bodies are decoded as."""

import re
from typing import Any, Final

import msgspec

from fairlead_common.service import VERSION
from fairlead_gateway.auth import PAGE_HEADER
from fairlead_gateway.operation import ID_PATTERN, Operation
from fairlead_gateway.routes import OPERATIONS, Approval, Session

_PROBLEM_TEXTS: Final = {
    400: "something does not fit; the message names the field, the limit and the actual value",
    401: "no credentials, or wrong ones",
    403: "not from this origin, or without the right",
    404: "does not exist",
    405: "this address does not take this method",
    408: "the body took too long",
    409: "something else is there already",
    413: "the body is too large",
    415: "this kind of body is not taken",
    421: "unknown host name",
    422: "the run ended at a limit",
    429: "too many failed logins, or the budget is used up",
    502: "the run failed",
    503: "NATS did not answer",
    504: "the run took too long",
    507: "the store is full; nothing was accepted",
}
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_ALWAYS: Final = (400, 403, 408, 413, 415, 421, 503)

_ERROR: Final = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": ["string", "null"]},
                "message": {"type": "string"},
                "field": {"type": "string"},
            },
            "required": ["message"],
        }
    },
    "required": ["error"],
}


def openapi_document(agents: list[str]) -> dict[str, Any]:
    """The whole document, where there are these agents."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    _, schemas = msgspec.json.schema_components(
        [*dict.fromkeys(bodies), Session, Approval],
        ref_template="#/components/schemas/{name}",
        schema_hook=_schema_of,
    )
    schemas["NewSession"]["properties"]["agent"]["anyOf"] = [{"enum": agents}, {"type": "null"}]
    schemas["Upload"]["properties"]["data"]["pattern"] = _BASE64
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fairlead", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": _ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "fairlead"},
                "page": {
                    "type": "apiKey",
                    "in": "header",
                    "name": PAGE_HEADER,
                    "description": "the header of the answer to the login; the cookie counts only with it",
                },
            },
        },
        "security": [{"token": []}, {"cookie": [], "page": []}],
    }


def _schema_of(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "any JSON"}
    raise NotImplementedError


def _operation(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": operation.text,
        "operationId": _name(operation),
        "parameters": [
            *(
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string", "pattern": ID_PATTERN},
                }
                for name in re.findall(r"{(\w+)}", operation.path)
            ),
            *(
                {"name": p.name, "in": p.place, "description": p.text, "schema": p.schema, "required": False}
                for p in operation.parameters
            ),
        ],
        "responses": _responses(operation),
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": operation.body_required,
            "content": {
                "application/json": {"schema": {"$ref": f"#/components/schemas/{operation.body.__name__}"}}
            },
        }
    if operation.details:
        found["description"] = operation.details
    if operation.public:
        found["security"] = []
    return found


def _responses(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    statuses = {*_ALWAYS, *operation.problems, *(() if operation.public else (401, 429))}
    for status in sorted(statuses):
        found[str(status)] = {
            "description": _PROBLEM_TEXTS[status],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    for status, schema in operation.answers.items():
        answer: dict[str, Any] = {"description": operation.text}
        if schema is not None:
            answer["content"] = {operation.kind: {"schema": schema}}
        found[str(status)] = answer
    return found


def _name(operation: Operation) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", operation.path.lower()).strip("_")
    return f"{operation.method.lower()}_{words}"
