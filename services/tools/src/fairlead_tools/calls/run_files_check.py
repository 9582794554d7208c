"""The last look before a call starts: the files that it runs are those that a person allowed."""

import asyncio

import structlog

from fairlead_common.protocol.content import ToolOutcome, text_outcome
from fairlead_common.protocol.messages import ToolCall
from fairlead_tools.sandboxes.sandbox import Place
from fairlead_tools.workspaces.run_files import changed_files

log = structlog.get_logger()

_CHANGED = (
    "Not started: {} changed after a person was asked about this call; the approval is for what was there "
    "then. Make the call again to ask for an approval of what is there now."
)


class RunFilesCheck:
    """Looks once or more often; `changed` is the outcome of a call that must not start."""

    def __init__(self, call: ToolCall, place: Place) -> None:
        self._call = call
        self._place = place
        self.changed: ToolOutcome | None = None

    async def unless(self) -> ToolOutcome | None:
        """The outcome of a call that must not start; None: nothing speaks against it."""
        if not self._call.files:
            return None
        paths = await asyncio.to_thread(changed_files, self._place.workspace, self._call.files)
        if not paths:
            return None
        log.info("run_files_changed", call=self._call.call_id, files=len(paths))
        text = _CHANGED.format(", ".join(paths))
        self.changed = text_outcome("error", text, is_error=True)
        return self.changed
