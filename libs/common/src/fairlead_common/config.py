"""Configuration: bootstrap from the environment, everything else in one validated document.

Pure: `live_config.py` follows the stored document.

The effective document is: defaults, then the bucket `config` (key `document`), then the overrides
that this start was given (`fairlead up --set agents.main.mode=allow-all`), which reach a service as
JSON in `FAIRLEAD_OVERRIDES`.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from fairlead_common.errors import InvalidInputError
from fairlead_common.ids import check_id

Mode = Literal["safe", "ask", "allow-all"]
QueueMode = Literal["steer", "followup"]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the document: an unknown key is an error that names it."""


class AgentConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile.

    Fields:
        model: `demo`, `openai/<model>` (direct HTTP) or `litellm/<provider>/<model>`.
        workspace: absolute path on the tool host, or a name under its workspace folder;
            empty: the host's default workspace.
        host: label of the tool host; empty: wherever the workspace was placed first.
        queue_mode: what a prompt becomes that arrives while a run goes on.
        max_turns: model replies in one run. max_run_s: wall-clock seconds of one run.
        max_run_tokens: input and output tokens of one run; 0: no limit.
        approval_timeout_s: after that an unanswered approval is denied.
        allow, deny: tool names that are never asked about, or never allowed; deny wins.
    """

    description: str = ""
    model: str = ""
    system_prompt: str = ""
    mode: Mode = "ask"
    workspace: str = ""
    host: str = ""
    tools: list[str] = []
    allow: list[str] = []
    deny: list[str] = []
    queue_mode: QueueMode = "followup"
    thinking: Literal["off", "minimal", "low", "medium", "high"] = "off"
    temperature: float | None = None
    max_output_tokens: Count | None = None
    context_window: Count = 128_000
    max_turns: Count = 50
    max_run_s: Positive = 3600.0
    max_run_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    approval_timeout_s: Positive = 600.0


class ModelsConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are called.

    Fields:
        first_token_timeout_s: without any byte of the answer, or between two, for that long.
        retries: attempts after the first, for errors that may pass; waits 0.5 s, 1 s, 2 s ... 30 s.
        demo_delay_s: pause of the demo model between words.
    """

    default: str = "demo"
    first_token_timeout_s: Positive = 120.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4
    demo_delay_s: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.012


class ToolsConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tools are called.

    Fields:
        timeout_s: of a call that names none.
        start_timeout_s: a call that no executor claimed for that long is given up, unstarted.
        lost_host_s: a host without a heartbeat for that long is lost; its calls become `unknown`.
    """

    timeout_s: Positive = 120.0
    start_timeout_s: Positive = 300.0
    lost_host_s: Positive = 120.0


class GatewayConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The front door.

    Fields:
        hosts: names, beside loopback, that the `Host` header may have (`fairlead.tail1234.ts.net`).
        max_body_bytes: of a request.
    """

    hosts: list[str] = []
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=64 << 20)] = 4 << 20


class Config(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    agents: dict[str, AgentConfig] = msgspec.field(default_factory=lambda: {"main": AgentConfig()})
    models: ModelsConfig = ModelsConfig()
    tools: ToolsConfig = ToolsConfig()
    gateway: GatewayConfig = GatewayConfig()

    def agent(self, name: str) -> AgentConfig | None:
        """The profile of this name, with the default model filled in."""
        profile = self.agents.get(name)
        if profile is None or profile.model:
            return profile
        return msgspec.structs.replace(profile, model=self.models.default)


def parse_config(document: Mapping[str, object], overrides: Mapping[str, object]) -> Config:
    """The effective configuration.

    Args:
        overrides: dotted key to value; a string is read as JSON where that gives the wanted type.

    Raises:
        InvalidInputError: a key is unknown or a value does not fit; the text names it.
    """
    merged = msgspec.json.decode(msgspec.json.encode(document))
    merged.setdefault("agents", {}).setdefault("main", {})
    for key, value in overrides.items():
        _set(merged, key, value)
    try:
        config = msgspec.convert(merged, Config, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInputError("config", str(error)) from error
    for name in config.agents:
        try:
            check_id(name, f"agents.{name}")
        except InvalidInputError as error:
            raise InvalidInputError("config", str(error)) from error
    return config


def _set(document: dict[str, object], key: str, value: object) -> None:
    *path, last = key.split(".")
    place = document
    for token in path:
        child = place.setdefault(token, {})
        if not isinstance(child, dict):
            raise InvalidInputError("config", f"{key}: {token} is not a group of settings")
        place = child
    if isinstance(value, str) and value[:1] in '[{"':
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise InvalidInputError("config", f"{key}: not JSON: {error}") from error
    place[last] = value


def overrides_from_environment(environ: Mapping[str, str] | None = None) -> dict[str, object]:
    """The overrides of this start.

    Raises:
        InvalidInputError: `FAIRLEAD_OVERRIDES` is not a JSON object.
    """
    text = (os.environ if environ is None else environ).get("FAIRLEAD_OVERRIDES", "") or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise InvalidInputError("FAIRLEAD_OVERRIDES", str(error)) from error
