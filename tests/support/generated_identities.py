"""Hooks of schemathesis: each request is made by the next of several identities, and its answer is counted.

The tokens are in the file that `IDENTITIES` names: JSON, name to token. The counts go to the same name with
`.counts`: a JSON object of `"<identity> <method> <path> <status>"` to a number.
"""

import itertools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

import schemathesis

IDENTITIES: Final = "FAIRLEAD_TEST_IDENTITIES"
_FILE: Final = Path(os.environ[IDENTITIES])
_TOKENS: Final[dict[str, str]] = json.loads(_FILE.read_text())
_NAMES: Final = itertools.cycle(sorted(_TOKENS))
_OF_TOKEN: Final = {f"Bearer {token}": name for name, token in _TOKENS.items()}
_counts: Final[Counter[str]] = Counter()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """The request is the next identity's, and ends none of them: lists tell their names and tokens."""
    for name, value in (case.path_parameters or {}).items():
        if value in _TOKENS or any(len(str(value)) > 8 and str(value) in token for token in _TOKENS.values()):
            case.path_parameters[name] = "other"
    case.headers["Authorization"] = f"Bearer {_TOKENS[next(_NAMES)]}"


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Counted by who asked for what."""
    who = _OF_TOKEN.get(response.request.headers.get("Authorization", ""), "nobody")
    _counts[f"{who} {case.operation.method.upper()} {case.operation.path} {response.status_code}"] += 1
    Path(f"{_FILE}.counts").write_text(json.dumps(_counts))
