"""Which calls may run, and what a grant covers."""

import pytest

from fairlead_agent.policy import grant_key, judge, shown_hash
from fairlead_common.config import AgentConfig
from fairlead_common.messages import ToolSpec

BASH = ToolSpec(name="bash", description="", parameters={})
WRITE = ToolSpec(name="write", description="", parameters={})
READ = ToolSpec(name="read", description="", parameters={}, read_only=True)


def action(
    spec: ToolSpec,
    mode: str,
    profile: AgentConfig | None = None,
    granted: set[str] | None = None,
    **arguments: object,
) -> str:
    return judge(
        spec, arguments, mode=mode, profile=profile or AgentConfig(), granted=granted or set()
    ).action


@pytest.mark.parametrize(
    ("spec", "mode", "expected"),
    [
        (READ, "safe", "allow"),
        (READ, "ask", "allow"),
        (WRITE, "safe", "deny"),
        (WRITE, "ask", "ask"),
        (WRITE, "allow-all", "allow"),
    ],
)
def test_mode_decides(spec: ToolSpec, mode: str, expected: str) -> None:
    assert action(spec, mode) == expected


def test_deny_wins_over_everything() -> None:
    profile = AgentConfig(allow=["read", "write"], deny=["read", "write"])
    assert action(READ, "allow-all", profile) == "deny"
    assert action(WRITE, "allow-all", profile) == "deny"


def test_profile_and_grants_allow_in_mode_ask_and_not_in_mode_safe() -> None:
    profile = AgentConfig(allow=["write"])
    assert action(WRITE, "ask", profile) == "allow"
    assert action(WRITE, "safe", profile) == "deny"
    assert action(BASH, "ask", granted={grant_key("bash", {"command": "ls"})}, command="ls") == "allow"
    assert action(BASH, "ask", granted={grant_key("bash", {"command": "ls"})}, command="ls; id") == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -fr / --no-preserve-root",
        "rm -r -f /*",
        "rm -rf ~",
        "sudo rm -rf $HOME",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda",
        ":(){ :|:& };:",
        "echo x > /dev/sda",
        "shutdown now",
    ],
)
def test_some_commands_are_asked_about_in_every_mode(command: str) -> None:
    granted = {grant_key("bash", {"command": command})}
    assert action(BASH, "allow-all", granted=granted, command=command) == "ask"


@pytest.mark.parametrize(
    "command", ["rm -rf build", "rm -r ./x", "echo hi > /dev/null", "ls /", "dd if=a of=b"]
)
def test_their_harmless_twins_are_not(command: str) -> None:
    assert action(BASH, "allow-all", command=command) == "allow"


def test_hash_changes_with_everything_that_is_shown() -> None:
    shown = ("s", "bash", {"command": "ls"}, "h", "/w")
    changed = [
        ("t", "bash", {"command": "ls"}, "h", "/w"),
        ("s", "write", {"command": "ls"}, "h", "/w"),
        ("s", "bash", {"command": "ls "}, "h", "/w"),
        ("s", "bash", {"command": "ls"}, "i", "/w"),
        ("s", "bash", {"command": "ls"}, "h", "/x"),
    ]
    assert len({shown_hash(*each) for each in (shown, *changed)}) == 6  # type: ignore[arg-type]
    reordered = shown_hash("s", "t", {"b": 1, "a": 2}, "h", "w")
    assert reordered == shown_hash("s", "t", {"a": 2, "b": 1}, "h", "w")
