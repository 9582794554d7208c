"""The NATS users of a home: their keys on disk, and the file of the server's configuration that names them.

`users.json` holds public keys, and of users that were added what their rights are made of; the table itself
(`fairlead_common.rights`) belongs to the program, so that a later version brings a later table.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from fairlead.door_rights import linked_users
from fairlead.errors import CommandError
from fairlead.home import Home, read_json, read_register, write_private
from fairlead.nats_reload import reload_server
from fairlead_common import nkey, other_systems, rights
from fairlead_common.accounts import STREAMS, User, render_accounts
from fairlead_common.errors import InvalidInputError
from fairlead_common.ids import check_id
from fairlead_common.rights import Others, Rights

SERVER: Final = "nats"  # its name in the home's process file
TOOLS: Final = "tools"  # the executors of this machine
SERVICES: Final = ("gateway", "agent", TOOLS, "scheduler", "webui", "provisioner", "operator")


class Known(NamedTuple):
    """A user that was added.

    Fields:
        recipe: what `other_systems.remade` makes its rights of.
        added: seconds since 1970.
    """

    name: str
    key: str
    recipe: Mapping[str, object]
    added: int


class NatsUsers:
    """The users of one home. Making one touches nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.folder = home.nats / "users"
        self.register = home.nats / "users.json"
        self.config = home.nats / "users.conf"

    def seed_file(self, name: str) -> str:
        """Where the seed of a user lies."""
        return str(self.folder / f"{check_id(name, 'user')}.nk")

    def prepare(self, host: str) -> None:
        """Make the keys that the services lack, and write the server's file.

        Args:
            host: label of this machine's executors.
        """
        with self._changing() as stored:
            keys = _mapping(stored, "services")
            for name in SERVICES:
                keys[name] = self._own_key(name, keys.get(name))
            stored["host"] = host

    def add(self, name: str, wanted: Rights) -> str:
        """Add a user; its seed. The server knows it after `reload`.

        Args:
            wanted: of `rights.executor`, `other_systems.other` or `other_systems.prompts`.

        Raises:
            CommandError: there is a user of this name.
        """
        check_id(name, "user")
        if not wanted.recipe:
            raise CommandError(f"the rights of {name!r} are not of a kind that can be stored")
        with self._changing() as stored:
            users = _mapping(stored, "users")
            if name in (*SERVICES, STREAMS) or name in users:
                raise CommandError(
                    f"there is a NATS user {name!r} already: remove it first, or choose another name"
                )
            seed = nkey.new_seed()
            self._write_seed(name, seed)
            users[name] = {
                "key": nkey.public_key(seed),
                "added": int(time.time()),
                "recipe": dict(wanted.recipe),
            }
        return seed

    def remove(self, name: str) -> None:
        """Forget a user. The server drops its connections at the next `reload`.

        Raises:
            CommandError: there is none, or it is one of Fairlead's own services.
        """
        if name in SERVICES:
            raise CommandError(f"{name} is a service of Fairlead itself: it cannot be removed")
        with self._changing() as stored:
            if _mapping(stored, "users").pop(name, None) is None:
                raise CommandError(f"there is no NATS user {name!r}: `fairlead nats user list` shows them")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.seed_file(name))

    def list(self) -> list[Known]:
        """The users that were added, by name."""
        found = []
        for name, row in sorted(_mapping(read_json(self.register), "users").items()):
            if isinstance(row, dict) and isinstance(recipe := row.get("recipe"), dict):
                found.append(Known(name, str(row.get("key")), recipe, int(row.get("added") or 0)))
        return found

    def render(self) -> None:
        """Write the server's file anew, given the hosts that have joined; nothing before the first start."""
        if self.register.exists():
            with self._changing():
                pass

    def reload(self) -> bool:
        """Have the running server take over the users; False if none runs.

        Raises:
            CommandError: it refuses the file, or says nothing within five seconds.
        """
        return reload_server(self._home, SERVER)

    # -- inside ------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, object]]:
        """What is registered, to be changed; written when the block ends well, then the server's file.

        In this order, so that a user the server knows is one that can be removed. One process at a time.
        """
        self._home.require_own()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / ".lock", "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = read_register(self.register)
            yield stored
            conf = self._rendered(
                stored
            )  # before anything is written: what cannot be rendered is not registered
            write_private(self.register, json.dumps(stored, indent=1) + "\n")
            write_private(self.config, conf)

    def _own_key(self, name: str, known: object) -> str:
        """The public key of a service, whose seed is made if it is not there."""
        path = self.folder / f"{name}.nk"
        if isinstance(known, str) and path.exists():
            return known
        try:
            return nkey.public_key(path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            seed = nkey.new_seed()
            self._write_seed(name, seed)
            return nkey.public_key(seed)

    def _write_seed(self, name: str, seed: str) -> None:
        write_private(self.folder / f"{name}.nk", seed + "\n")

    def _rendered(self, stored: dict[str, object]) -> str:
        text = "# Written by Fairlead: changes are lost. `fairlead nats user add` adds a user.\n"
        return text + render_accounts([*_users(stored), *linked_users(self._home, _others(stored))])


def _users(stored: dict[str, object]) -> list[User]:
    added = _mapping(stored, "users")
    recipes = _recipes(stored)
    others = _others(stored)
    keys = _mapping(stored, "services")
    own = _of_services(str(stored.get("host") or "host"), others)
    users = [User(name, str(keys[name]), may) for name, may in own.items() if name in keys]
    for name, recipe in recipes.items():
        try:
            users.append(User(name, str(_mapping(added, name)["key"]), other_systems.remade(recipe, others)))
        except InvalidInputError as error:
            raise CommandError(f"NATS user {name!r}: {error}") from error
    return users


def _recipes(stored: dict[str, object]) -> dict[str, Mapping[str, object]]:
    added = _mapping(stored, "users")
    return {name: row["recipe"] for name, row in added.items() if isinstance(row, dict)}


def _others(stored: dict[str, object]) -> Others:
    return other_systems.others_of(_recipes(stored).values())


def _of_services(host: str, others: Others) -> dict[str, Rights]:
    return {
        "gateway": rights.gateway(),
        "agent": rights.agent(others),
        TOOLS: rights.executor(host, others),
        "scheduler": rights.scheduler(others),
        "webui": rights.webui(),
        "provisioner": rights.provisioner(),
        "operator": rights.operator(),
    }


def _mapping(stored: dict[str, object], key: str) -> dict[str, object]:
    """The object under `key`; made if it is not there."""
    found = stored.setdefault(key, {})
    if not isinstance(found, dict):
        raise CommandError(f"{key} of users.json must be an object, got {type(found).__name__}")
    return found
