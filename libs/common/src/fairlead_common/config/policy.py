"""Rules about what may be called."""

from fairlead_common.config.part import Part


class Rules(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One layer of the policy. Deny wins over ask, ask over allow, across all layers.

    Each rule is a tool name, `group:<group>`, a name with `*` at its end (`mcp__github__*`), or a tool with a
    pattern of what it may touch: `bash(git status *)`, `write(src/**)`, `api__pets__*(GET /pets/*)`.
    """

    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []


class PolicyConfig(Rules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The global layer, and those between it and the agents.

    Fields:
        providers: by the first part of a model's name (`openai`, `litellm`, `demo`).
        subagents: for sessions that an agent started.
        taint: once a session has read what strangers wrote and what is private, calls that act outside are
            asked about, whatever allows them.
    """

    providers: dict[str, Rules] = {}
    subagents: Rules = Rules()
    taint: bool = True
