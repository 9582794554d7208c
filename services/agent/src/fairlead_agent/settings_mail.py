"""Mail that sets or changes what a session is: each becomes entries, the last of which consumes it."""

from fairlead_agent.owner import Owner
from fairlead_common.entries import CustomEntry, ModeChangeEntry, ModelChangeEntry, SessionInfoEntry
from fairlead_common.ids import new_id
from fairlead_common.messages import CreateSession, UpdateSession
from fairlead_common.session_marks import THINKING


async def create(owner: Owner, body: CreateSession, seq: int) -> None:
    """Settings of a session that is new, or that is there and gets them once more. `seq`: of the mail."""
    if body.mode:
        await owner.append_locked(ModeChangeEntry(id=new_id(), mode=body.mode))
    await owner.append_locked(
        SessionInfoEntry(
            id=new_id(),
            cursor=seq,
            agent=body.agent or "main",
            title=body.title,
            sandbox=body.sandbox,
            deny=body.deny,
            work_mode=body.work_mode,
            source=body.source or None,
        )
    )


async def update(owner: Owner, body: UpdateSession, seq: int) -> None:
    """Changed settings. `seq`: of the mail."""
    if body.mode is not None:
        await owner.append_locked(ModeChangeEntry(id=new_id(), mode=body.mode))
    if body.model is not None:
        await owner.append_locked(ModelChangeEntry(id=new_id(), model=body.model))
    if body.thinking is not None:
        await owner.append_locked(CustomEntry(id=new_id(), name=THINKING, data={"level": body.thinking}))
    await owner.append_locked(
        SessionInfoEntry(
            id=new_id(),
            cursor=seq,
            title=body.title,
            sandbox=body.sandbox,
            deny=body.deny,
            work_mode=body.work_mode,
            source=body.source,
        )
    )
