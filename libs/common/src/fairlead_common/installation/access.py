"""How this machine proves to its gateway that it may: the admin token, the login link, signed tokens."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fairlead_common.installation.errors import CONFIG, CommandError
from fairlead_common.installation.home import Home, home_from_environment, port_of

TOKEN_TTL_S: Final = 300.0


def prepare_auth(home: Home) -> tuple[str | None, Callable[[], str]]:
    """Make the auth file if there is none; the admin token if one was made up, and a maker of login codes.

    Raises:
        CommandError: `FAIRLEAD_TOKEN` is too weak, or the file that exists must not be used.
    """
    from fairlead_common.errors import InvalidInputError, UnsafeConfigurationError
    from fairlead_common.service.credentials import ensure_auth_file

    try:
        file, generated = ensure_auth_file(home.auth, os.environ.get("FAIRLEAD_TOKEN") or None)
    except InvalidInputError as error:
        raise CommandError(f"FAIRLEAD_TOKEN: {error.problem}", CONFIG) from error
    except UnsafeConfigurationError as error:
        raise CommandError(str(error), CONFIG) from error
    return generated, file.login_code


def login_code(home: Home) -> str:
    """A code that opens one login within ten minutes.

    Raises:
        CommandError: the home has no key, or one that must not be used.
    """
    from fairlead_common.errors import UnsafeConfigurationError
    from fairlead_common.service.credentials import AuthFile

    path = Path(os.environ.get("FAIRLEAD_AUTH_FILE") or home.auth)
    try:
        return AuthFile.read(path).login_code()
    except FileNotFoundError as error:
        if os.environ.get("FAIRLEAD_IN_CONTAINERS"):
            text = "in a container deployment, use: the token in secrets/gateway-token, on the page"
            raise CommandError(f"{text}, or `docker compose exec gateway fairlead login`") from error
        raise CommandError(
            f"no key to make a link with: run this where `fairlead up` ran ({path} is missing)"
        ) from error
    except UnsafeConfigurationError as error:
        raise CommandError(str(error), CONFIG) from error


def server_url(url: str | None = None) -> str:
    """`--url`, else `FAIRLEAD_URL`, else the gateway of this home."""
    return url or os.environ.get("FAIRLEAD_URL") or f"http://127.0.0.1:{port_of(home_from_environment())}"


def bearer(environ: Mapping[str, str] | None = None, home: Home | None = None) -> str:
    """`FAIRLEAD_TOKEN`, or in its file, else a token for five minutes, signed with the key of this home.

    Raises:
        CommandError: there is neither.
    """
    env = os.environ if environ is None else environ
    if token := env.get("FAIRLEAD_TOKEN"):
        return token
    if named := env.get("FAIRLEAD_TOKEN_FILE"):
        try:
            return Path(named).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"FAIRLEAD_TOKEN_FILE: {named} cannot be read: {error}", CONFIG) from error
    home = home or home_from_environment(env)
    from fairlead_common.errors import UnsafeConfigurationError
    from fairlead_common.service.credentials import SCOPES, AuthFile

    try:
        return AuthFile.read(home.auth).mint(list(SCOPES), TOKEN_TTL_S, user="cli")
    except FileNotFoundError as error:
        raise CommandError(
            f"no token: set FAIRLEAD_TOKEN, or run this where `fairlead up` ran ({home.auth} is missing)"
        ) from error
    except UnsafeConfigurationError as error:
        raise CommandError(str(error), CONFIG) from error
