"""What a start has to know of the stored configuration before it starts the services."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from fairlead_common.installation.home import Home
from fairlead_common.installation.nats_access import NatsAccess

_STORED: Final = "jetstream/*/streams/KV_config"  # below the folder of the embedded server


class StartConfiguration(NamedTuple):
    """The stored configuration, with what this start was given.

    Fields:
        default_model: that is stored; empty: none.
        variables: names of environment variables that hold keys of model providers.
        problem: why this start cannot be as it was asked for; empty: it can.
    """

    default_model: str = ""
    variables: frozenset[str] = frozenset()
    problem: str = ""


def is_stored(home: Home) -> bool:
    """Whether the embedded server has a configuration: reading it takes half a second."""
    return any(home.nats.glob(_STORED))


async def read(access: NatsAccess, overrides: Mapping[str, object]) -> StartConfiguration:
    """The stored configuration, as this start needs it. One that cannot be used is told by the services.

    Raises:
        CommandError: NATS does not answer.
    """
    # Late: this loads the bus.
    from fairlead_common.config import model_problems
    from fairlead_common.errors import InvalidInputError
    from fairlead_common.service.config_revisions import stored_config
    from fairlead_node.stored_configuration import stored_document

    content = (await stored_document(access)).used.content
    try:
        stored, config = stored_config(content, {}), stored_config(content, dict(overrides))
    except InvalidInputError:
        return StartConfiguration()
    keys = (provider.api_key.from_env for provider in config.models.providers.values())
    before = model_problems(stored)
    new = [f"{field}: {why}" for field, why in model_problems(config).items() if before.get(field) != why]
    models = content.get("models")
    default = models.get("default") if isinstance(models, dict) else None
    return StartConfiguration(str(default or ""), frozenset(filter(None, keys)), new[0] if new else "")
