"""Which models take back what another one added to its replies: ids of calls, signed thoughts."""

import re
from typing import Final

_DATE: Final = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})$")


def family(model: str) -> str:
    """The family of a model; what it added is sent back to models of the same family only.

    A family is one model, with and without the date of its release: models of one vendor refuse or ignore the
    signed thoughts of each other.

    Args:
        model: name with its back end, `litellm/anthropic/claude-opus-4-6`.
    """
    if model.startswith("litellm/claude"):
        model = f"litellm/anthropic/{model.removeprefix('litellm/')}"
    return _DATE.sub("", model)
