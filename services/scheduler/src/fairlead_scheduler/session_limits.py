"""What a session that asks may do: its own settings as far as they are narrower than its profile's."""

from typing import Final, NamedTuple

from fairlead_common import subjects
from fairlead_common.bus import Bus
from fairlead_common.config import AgentConfig, Config
from fairlead_common.cron.jobs import Limits
from fairlead_common.entries import LaterEntry, ModeChangeEntry, SessionInfoEntry, decode_entry
from fairlead_common.errors import BadMessageError, NotFoundError
from fairlead_common.objects import Objects
from fairlead_common.placement import sandbox_problem

_MODES: Final = ("safe", "ask", "allow-all")  # each allows what those before it do
_NARROW: Final = ("plan", "review")
_SETTINGS: Final = (b'"session_info"', b'"mode_change"')


class SessionLimits(NamedTuple):
    """Of one session, as its log says.

    Fields:
        untrusted: it has read what strangers wrote.
    """

    limits: Limits
    untrusted: bool = False


async def session_limits_of(bus: Bus, session: str, config: Config) -> SessionLimits:
    """The standing of a session.

    What cannot be read changes nothing, as for the agents that pass over it. Who wrote it nobody can know.
    """
    objects = Objects(bus)
    agent, mode, sandbox, work_mode, deny = "main", "", "", "", list[str]()
    untrusted = False
    async for record in bus.read(subjects.SESSIONS, subjects.session_log(session)):
        try:
            data = await objects.unpack(record.data, record.headers)
            untrusted = untrusted or says_untrusted(data)
            if not any(word in data for word in _SETTINGS):
                continue
            entry = decode_entry(data)
        except (BadMessageError, NotFoundError):
            untrusted = True
            continue
        match entry:
            case ModeChangeEntry():
                mode = entry.mode
            case SessionInfoEntry():
                agent, sandbox = entry.agent or agent, entry.sandbox or sandbox
                deny = deny if entry.deny is None else entry.deny
                work_mode = work_mode if entry.work_mode is None else entry.work_mode
            case LaterEntry(problem=problem) if problem:
                untrusted = True
            case _:
                continue
    limits = Limits(mode=mode, sandbox=sandbox, work_mode=work_mode, deny=deny)
    return SessionLimits(narrowed(limits, config.agent(agent), session), untrusted)


def says_untrusted(data: bytes) -> bool:
    """Whether an entry says so, as a name or a flag: in a text the quotes are escaped."""
    return b'"untrusted"' in data


def narrowed(limits: Limits, profile: AgentConfig | None, session: str) -> Limits:
    """`limits` without what is no narrower than the profile."""
    if profile is None:
        return limits
    mode = limits.mode if _rank(limits.mode) < _rank(profile.mode) else ""
    work_mode = limits.work_mode if limits.work_mode in _NARROW else ""
    stronger = limits.sandbox and not sandbox_problem(profile.sandbox, session, limits.sandbox)
    return Limits(
        mode=mode, sandbox=limits.sandbox if stronger else "", work_mode=work_mode, deny=limits.deny
    )


def as_narrow(limits: Limits, others: Limits) -> bool:
    """Whether whoever has `limits` may do nothing that somebody with the limits `others` may not."""
    return (
        (not others.mode or _rank(limits.mode) <= _rank(others.mode))
        and (not others.sandbox or limits.sandbox == others.sandbox)
        and (not others.work_mode or limits.work_mode == others.work_mode)
        and set(others.deny) <= set(limits.deny)
    )


def _rank(mode: str) -> int:
    return _MODES.index(mode) if mode in _MODES else len(_MODES)
