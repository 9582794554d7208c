"""The register of a home: which machines may join, which have joined, which were revoked.

`hosts.json` says it, and `door-users.conf` makes the door's server hold to it. A ticket is a user of its own
that may ask to be let in and nothing else; a machine that joined has a key that it made itself.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from fairlead.errors import USAGE, CommandError
from fairlead.home import Home, read_json, read_register, write_private
from fairlead.nats_users import NatsUsers
from fairlead_common import nkey, other_systems, rights, subjects, users_conf
from fairlead_common.errors import InvalidInputError
from fairlead_common.ids import check_id
from fairlead_common.rights import Rights
from fairlead_common.users_conf import User

DOMAIN: Final = "fairlead"  # JetStream's, at the first server: a leaf node reaches it by this name only
REGISTRAR: Final = "registrar"
JOINING: Final = "joining"
KEPT_S: Final = 30 * 86400  # how long a ticket that is over is remembered, to say why it is refused

Refusal = str


class Host(NamedTuple):
    """A machine that joined.

    Fields:
        key: public nkey of its executors. ticket: the one it joined with.
        joined_s, revoked_s: Unix times; 0: not yet.
    """

    host: str
    pool: str
    labels: Mapping[str, str]
    key: str
    ticket: str
    joined_s: int
    revoked_s: int = 0


class Invitation(NamedTuple):
    """What is kept of a ticket: its public half.

    Fields:
        used_s, withdrawn_s: Unix times; 0: not yet.
    """

    id: str
    host: str
    pool: str
    labels: Mapping[str, str]
    key: str
    expires_s: int
    used_s: int = 0
    withdrawn_s: int = 0

    def refusal(self, now_s: float) -> Refusal:
        """Why nobody is let in with it; empty while it is good."""
        if self.withdrawn_s:
            return "the ticket was withdrawn"
        if self.used_s:
            return "the ticket was used already: each lets one machine in, once"
        return "the ticket has expired" if now_s >= self.expires_s else ""


class Hosts:
    """The register of one home. Making one touches nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._register = home.nats / "hosts.json"
        self._lock = home.nats / "hosts.lock"
        self.users_file = home.nats / "door-users.conf"
        self.registrar_seed = home.nats / "registrar.nk"

    def hosts(self) -> list[Host]:
        """All that ever joined and were not forgotten, by name."""
        return _hosts(read_json(self._register))

    def invitations(self) -> list[Invitation]:
        """The tickets that are remembered."""
        return _invitations(read_json(self._register))

    def invite(self, invitation: Invitation, *, replace: bool) -> None:
        """Remember a ticket. One that waits for the same host is withdrawn.

        Raises:
            CommandError: the host has joined, and is not to be replaced.
        """
        now_s = int(time.time())
        with self._changing() as stored:
            joined = {host.host for host in _hosts(stored) if not host.revoked_s}
            if invitation.host in joined and not replace:
                raise CommandError(
                    f"{invitation.host} has joined already: `fairlead executor revoke {invitation.host}` "
                    "first, or --replace to let another machine take its place when it joins",
                    USAGE,
                )
            kept = [
                each._replace(withdrawn_s=now_s)
                if each.host == invitation.host and not each.refusal(now_s)
                else each
                for each in _invitations(stored)
                if max(each.expires_s, each.used_s, each.withdrawn_s) + KEPT_S > now_s
            ]
            _store(stored, invitations=[*kept, invitation])

    def redeem(self, ticket: str, key: str) -> Host | Refusal:
        """Let the machine with this public key in; the same key again is the same success."""
        now_s = int(time.time())
        with self._changing() as stored:
            invitations, hosts = _invitations(stored), _hosts(stored)
            found = next((each for each in invitations if each.id == ticket), None)
            if found is None:
                return "nobody knows this ticket here"
            there = next((host for host in hosts if host.host == found.host), None)
            if there is not None and (there.ticket, there.key) == (ticket, key) and not there.revoked_s:
                return there
            if refusal := found.refusal(now_s):
                return refusal
            if key in (user.public_key for user in self._users(stored)):
                return "the key is another user's: a server that knows a key twice takes over nothing"
            joined = Host(found.host, found.pool, found.labels, key, ticket, now_s)
            _store(
                stored,
                invitations=[
                    each._replace(used_s=now_s) if each.id == ticket else each for each in invitations
                ],
                hosts=[*(host for host in hosts if host.host != joined.host), joined],
            )
            return joined

    def revoke(self, host: str) -> str:
        """Let a host in no more, and withdraw its ticket; what was done, for people.

        Raises:
            CommandError: there is neither a host nor a ticket of that name.
        """
        now_s = int(time.time())
        with self._changing() as stored:
            invitations, hosts = _invitations(stored), _hosts(stored)
            waiting = [each.id for each in invitations if each.host == host and not each.refusal(now_s)]
            known = next((each for each in hosts if each.host == host), None)
            if known is None and not waiting:
                names = ", ".join(sorted({each.host for each in hosts})) or "none"
                raise CommandError(f"no host {host!r} has joined or is invited; those that joined: {names}")
            _store(
                stored,
                invitations=[
                    each._replace(withdrawn_s=now_s) if each.id in waiting else each for each in invitations
                ],
                hosts=[
                    each._replace(revoked_s=now_s) if each.host == host and not each.revoked_s else each
                    for each in hosts
                ],
            )
        if known is None:
            return f"the ticket for {host} is withdrawn"
        return f"{host} was revoked before" if known.revoked_s else f"{host} is revoked"

    def render(self) -> bool:
        """Write the users of the door as the register has them at this moment; whether that changed them."""
        before = self._written()
        with self._changing():
            pass
        return self._written() != before

    def basis(self) -> tuple[list[str], int]:
        """What the users of the door follow from beside joins: the tickets that are good, tools of others."""
        now_s = time.time()
        good = [each.id for each in self.invitations() if not each.refusal(now_s)]
        register = NatsUsers(self._home).register
        return good, register.stat().st_mtime_ns if register.exists() else 0

    def _written(self) -> str:
        return self.users_file.read_text(encoding="utf-8") if self.users_file.exists() else ""

    # -- inside ------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, object]]:
        """The register, to be changed; it and the users are written when the block ends well."""
        self._home.require_own()
        with open(self._lock, "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = read_register(self._register)
            yield stored
            write_private(self._register, json.dumps({"hosts": [], **stored}, indent=1) + "\n")
            text = "# Written by Fairlead: changes are lost. `fairlead executor invite` adds a host.\n"
            write_private(self.users_file, text + users_conf.render_users(self._users(stored)))

    def _users(self, stored: dict[str, object]) -> list[User]:
        """Never empty: without a user the server would let everybody in."""
        others = other_systems.others_of(known.recipe for known in NatsUsers(self._home).list())
        users = [User(REGISTRAR, self._registrar_key(), at_the_door(registrar()))]
        users += [
            User(f"tools-{host.host}", host.key, at_the_door(rights.executor(host.host, others)))
            for host in _hosts(stored)
            if not host.revoked_s
        ]
        now_s = time.time()
        users += [
            User(f"ticket {invitation.id}", invitation.key, joining(invitation.id))
            for invitation in _invitations(stored)
            if not invitation.refusal(now_s)
        ]
        return users

    def _registrar_key(self) -> str:
        try:
            return nkey.public_key(self.registrar_seed.read_text(encoding="ascii"))
        except (OSError, ValueError):
            seed = nkey.new_seed()
            write_private(self.registrar_seed, seed + "\n")
            return nkey.public_key(seed)


def at_the_door(wanted: Rights) -> Rights:
    """The same rights in the words of the door, which maps JetStream's subjects before it looks."""
    return wanted._replace(publish=tuple(_mapped(subject) for subject in wanted.publish))


def _mapped(subject: str) -> str:
    if subject.startswith("$JS.API."):
        return f"$JS.{DOMAIN}.API.{subject.removeprefix('$JS.API.')}"
    return f"$JS.{DOMAIN}.API.{subject}" if subject.startswith("$KV.") else subject


def join_subject(ticket: str) -> str:
    """Core request: let me in with this ticket."""
    return f"fairlead.join.{check_id(ticket, 'ticket')}"


def joining(ticket: str) -> Rights:
    """The rights of a ticket: to ask the registrar, with its own name."""
    return Rights(rights.inbox(f"{JOINING}-{ticket}"), publish=(join_subject(ticket),))


def registrar() -> Rights:
    """The rights of the registrar: to answer tickets, make the queue of a host, see heartbeats."""
    beats = f"KV_{subjects.BUCKET_EXECUTORS}"
    requests = "fairlead.tool.*.*.request"
    return Rights(
        rights.inbox(REGISTRAR),
        publish=(
            f"$JS.API.CONSUMER.INFO.{subjects.TOOLS}.*",
            f"$JS.API.CONSUMER.CREATE.{subjects.TOOLS}.*.{requests}",
            f"$JS.API.DIRECT.GET.{beats}",
            f"$JS.API.DIRECT.GET.{beats}.>",
            f"$JS.API.STREAM.MSG.GET.{beats}",
            f"$JS.API.STREAM.INFO.{beats}",
        ),
        subscribe=("fairlead.join.*",),
        answers=1,
    )


def _store(stored: dict[str, object], **parts: list[Invitation] | list[Host]) -> None:
    stored.update({name: [row._asdict() for row in rows] for name, rows in parts.items()})


def _hosts(stored: Mapping[str, object]) -> list[Host]:
    return sorted((Host(**row) for row in _rows(stored, "hosts")), key=lambda host: host.host)


def _invitations(stored: Mapping[str, object]) -> list[Invitation]:
    return [Invitation(**row) for row in _rows(stored, "invitations")]


def _rows(stored: Mapping[str, object], name: str) -> list[dict[str, Any]]:
    rows = stored.get(name, [])
    if not isinstance(rows, list):
        raise CommandError(f"{name} of hosts.json must be a list, got {type(rows).__name__}")
    return rows


def checked(host: str, pool: str, labels: Mapping[str, str]) -> None:
    """Nothing, if a host may be called so and have these labels.

    Raises:
        CommandError: it may not; the text names what does not fit.
    """
    try:
        for name, value in (("host", host), ("pool", pool)):
            check_id(value, name)
        for label, value in labels.items():
            check_id(label, "label")
            if not value or any(letter in value for letter in ",=\n") or len(value) > 64:
                raise InvalidInputError(
                    f"label {label}", f"must have 1 to 64 characters, no , or =: {value!r}"
                )
    except InvalidInputError as error:
        raise CommandError(str(error), USAGE) from error
