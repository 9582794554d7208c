"""The server in memory keeps the contract that the bus builds on; `tests/integration` has the other half."""

import pytest

pytest.register_assert_rewrite(
    "tests.support.bus_contract.records",
    "tests.support.bus_contract.values",
    "tests.support.bus_contract.deliveries",
)

from tests.support.bus_contract.deliveries import *  # noqa: E402, F403
from tests.support.bus_contract.records import *  # noqa: E402, F403
from tests.support.bus_contract.values import *  # noqa: E402, F403
