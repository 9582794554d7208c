"""Refusals of the scheduler can be read by those who asked."""

from typing import get_args

import msgspec
import pytest

from fairlead_common.cron.requests import ErrorCode, Refused
from fairlead_common.errors import BadMessageError, ConflictError, InvalidInputError, NotFoundError
from fairlead_scheduler import api_service


@pytest.mark.parametrize(
    "error",
    [
        InvalidInputError("job", "must be an object"),
        NotFoundError("no such job"),
        ConflictError("changed since", None),
        BadMessageError("not JSON"),
        RuntimeError("a fault of the scheduler itself"),
    ],
)
def test_the_code_of_every_refusal_is_one_that_is_declared(error: Exception) -> None:
    code, message, _ = api_service._refusal("cron.preview", error)
    assert code in get_args(ErrorCode)
    answer = msgspec.json.encode({"error": {"code": code, "message": message}})
    assert msgspec.json.decode(answer, type=Refused).error.code == code
