"""Payloads that are written field by field, as structs: for the document alone."""

import msgspec


class DeadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be read or handled. `payload`: its text, cut at 65,536 bytes."""

    subject: str
    seq: int
    reason: str
    payload: str


class WebFileQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the web application. `etag`: of the copy that is there already."""

    path: str
    etag: str | None
    gzip: bool
