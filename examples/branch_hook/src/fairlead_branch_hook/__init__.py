"""A hook: no `git push` to protected branches, a note about them, and a line for each ended run."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fairlead_agent.hooks.interface import (
    Ask,
    ContextFacts,
    Deny,
    EndedRun,
    HookAnswer,
    HookMessage,
    Hooks,
    ProposedCall,
)
from fairlead_branch_hook.pushes import UNNAMED, pushed
from fairlead_common.protocol.content import words_of

NOTE = "Protected branches"


class BranchHook(Hooks):
    """The hook `branches`.

    Args:
        settings: `hooks.branches.settings`. `protected` is a list of branches or patterns; `runs` an absolute
            path, where each ended run becomes a line of JSON; `remind` the agents that read a note.

    Raises:
        ValueError: one of them is something else.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._protected = _names(settings, "protected", ["main", "master"])
        self._remind = _names(settings, "remind", [])
        self._runs = Path(str(settings.get("runs", "")))
        if not self._runs.is_absolute():
            raise ValueError(f"runs: must be an absolute path, got {str(self._runs)!r}")

    async def before_tool_call(self, call: ProposedCall) -> HookAnswer | None:
        """Deny a push to a protected branch; ask a person about a line with a push that cannot be read."""
        if call.tool == "git_push":
            branches = [str(call.arguments.get("branch") or UNNAMED)]
        else:
            branches = [branch for words in call.commands for branch in pushed(words)]
        for branch in branches:
            if branch == UNNAMED:
                return Deny("name the remote and one branch to push, as in: git push origin my-branch")
            if pattern := next((each for each in self._protected if fnmatchcase(branch, each)), None):
                return Deny(f"{branch} is protected ({pattern}): push another branch and propose the change")
        if call.commands_problem and "push" in str(call.arguments):
            return Ask("it may push to a protected branch")
        return None

    async def context(self, facts: ContextFacts) -> Sequence[HookMessage]:
        """The note, once in a session."""
        if facts.agent not in self._remind or any(NOTE in words_of(each) for each in facts.messages):
            return ()
        return [HookMessage(hook="", text=f"{NOTE}: {', '.join(self._protected)}. Push to others.")]

    async def on_run_end(self, run: EndedRun) -> None:
        """Append the line. It may be there already: a run that is told of again is written again."""
        told = {"run_id": run.run_id, "session": run.session, "outcome": run.outcome, "turns": run.turns}
        await asyncio.to_thread(self._append, json.dumps(told) + "\n")

    def _append(self, line: str) -> None:
        self._runs.parent.mkdir(parents=True, exist_ok=True)
        with self._runs.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _names(settings: Mapping[str, object], key: str, default: list[str]) -> list[str]:
    value = settings.get(key, default)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{key}: must be a list of names, got {value!r}")
    return value
