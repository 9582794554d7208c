"""Users and their rights, as nats-server's configuration has them."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from fairlead_common.rights import Rights

ANSWER_WITHIN: Final = "1h"  # how long a request may be answered: the longest call of a tool takes as long


class User(NamedTuple):
    """One user of the server. It proves with its nkey who it is."""

    name: str
    public_key: str
    rights: Rights


def render_users(users: Iterable[User]) -> str:
    """The block `authorization` of the server's configuration."""
    blocks = "".join(_block(user) for user in users)
    return f"authorization {{\n  users: [\n{blocks}  ]\n}}\n"


def _block(user: User) -> str:
    rights = user.rights
    own = f"{rights.inbox}.>"
    responses = ""
    if rights.answers:
        responses = f'        allow_responses: {{ max: {rights.answers}, expires: "{ANSWER_WITHIN}" }}\n'
    return (
        f"    # {user.name}\n"
        f"    {{ nkey: {user.public_key}\n"
        "      allowed_connection_types: [STANDARD]\n"
        "      permissions {\n"
        f"        publish {{ allow: {_listed((*rights.publish, own))} }}\n"
        f"        subscribe {{ allow: {_listed((*rights.subscribe, own))} }}\n"
        f"{responses}"
        "      } }\n"
    )


def _listed(subjects: Iterable[str]) -> str:
    rows = "".join(f'          "{subject}"\n' for subject in dict.fromkeys(subjects))
    return f"[\n{rows}        ]"
