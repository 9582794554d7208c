"""How this machine proves to its gateway that it may: the admin token, the login link, signed tokens."""

import importlib.util
import os
from collections.abc import Callable

from fairlead.home import Home


def prepare_auth(home: Home) -> tuple[str | None, Callable[[], str]]:
    """Make the key file if there is none; the generated admin token if one was, and how to get a login code."""
    if importlib.util.find_spec("fairlead_common.credentials") is None:
        return None, lambda: "none"
    from fairlead_common import credentials  # type: ignore[attr-defined]

    return credentials.ensure_auth_file(home.auth, os.environ.get("FAIRLEAD_TOKEN")), credentials.login_code
