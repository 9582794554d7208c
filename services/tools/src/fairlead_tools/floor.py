"""What this executor refuses whatever the agent says: its own settings, checked again before the claim."""

from typing import Any, cast

import jsonschema
from jsonschema.protocols import Validator

from fairlead_common.messages import ToolCall, ToolSpec
from fairlead_tools.config import ExecutorConfig


class Floor:
    """The last word about a call."""

    def __init__(self, config: ExecutorConfig) -> None:
        self._config = config
        self._validators: dict[str, tuple[dict[str, object], Validator]] = {}

    def problem(self, call: ToolCall, spec: ToolSpec) -> str:
        """Why the call is refused, in words for the model; empty when it may run."""
        error = jsonschema.exceptions.best_match(self._validator(spec).iter_errors(cast(Any, call.arguments)))
        if error is None:
            return ""
        where = ".".join(str(part) for part in error.absolute_path) or "arguments"
        return f"Invalid arguments for {call.name}: {where}: {error.message[:500]}"

    def _validator(self, spec: ToolSpec) -> Validator:
        schema, validator = self._validators.get(spec.name, (None, None))
        if validator is None or schema != spec.parameters:
            validator = jsonschema.validators.validator_for(spec.parameters)(spec.parameters)
            self._validators[spec.name] = (spec.parameters, validator)
        return validator
