"""Mail into sessions: what the scheduler sets going there. All of it create-only, so that it comes once."""

import msgspec

from fairlead_common import subjects
from fairlead_common.bus import Bus
from fairlead_common.errors import ConflictError
from fairlead_common.messages import (
    Abort,
    CreateSession,
    HeartbeatNotice,
    SystemNotice,
    UpdateSession,
    UserInput,
)

SENDER = "cron"


class Post:
    """Writes mail; each answer is its sequence, also if it was there before."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def system(self, session: str, key: str, text: str, source: str) -> int:
        """A `System:` line for the next turn."""
        return await self._send(session, "notice", f"system-{key}", SystemNotice(text=text, source=source))

    async def heartbeat(self, session: str, key: str, notice: HeartbeatNotice) -> int:
        """A turn without anybody asking, once the session is idle."""
        return await self._send(session, "notice", f"heartbeat-{key}", notice)

    async def message(self, session: str, key: str, text: str, source: str) -> int:
        """Something for people to read; the model is not asked."""
        return await self._send(session, "notice", f"delivery-{key}", SystemNotice(text=text, source=source))

    async def create(self, session: str, agent: str | None, title: str) -> None:
        """Settings of a session that may be new; one that is there keeps its own."""
        await self._send(session, "notice", "create", CreateSession(agent=agent, title=title, sender=SENDER))

    async def settings(self, session: str, key: str, model: str | None, thinking: str | None) -> None:
        """Model and thinking level from here on."""
        body = UpdateSession(model=model, thinking=thinking, sender=SENDER)
        await self._send(session, "notice", f"update-{key}", body)

    async def prompt(self, session: str, key: str, text: str, agent: str | None) -> int:
        """A prompt."""
        return await self._send(session, "prompt", key, UserInput(text=text, agent=agent, sender=SENDER))

    async def abort(self, session: str, key: str, reason: str, item: str | None) -> None:
        """Stop the open run, or take back the queued item."""
        await self._send(session, "abort", key, Abort(reason=reason, item=item, sender=SENDER))

    async def _send(self, session: str, kind: str, key: str, body: object) -> int:
        subject = subjects.mail(session, kind, key)
        try:
            return await self._bus.create(subjects.SESSIONS, subject, msgspec.json.encode(body))
        except ConflictError as error:  # an earlier attempt, when the job or the configuration was another
            return int(error.args[1].seq)
