"""Structs that several threads may decode at once."""

import contextlib
from collections.abc import Iterator

import msgspec


def prepare_structs() -> None:
    """Prepare every struct of Fairlead that has been imported. Call it before the first thread starts.

    msgspec (0.22) prepares a struct when it is first decoded: it publishes the struct, and then converts the
    types of the fields one by one. Meanwhile a field with another struct lets other threads run, and one that
    decodes the same struct then crashes the process. It takes a few milliseconds for all of a service.
    """
    for struct in _below(msgspec.Struct):
        if struct.__module__.startswith("fairlead"):
            with contextlib.suppress(TypeError, NameError):  # it cannot be decoded at all, so no thread does
                msgspec.json.Decoder(struct)


def _below(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for each in struct.__subclasses__():
        yield each
        yield from _below(each)
