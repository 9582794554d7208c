"""Fixtures that several of these tests use."""

from collections.abc import AsyncIterator

import pytest

from tests.support.web_victim import Victim, victim


@pytest.fixture
async def target() -> AsyncIterator[Victim]:
    """A server on loopback that nothing may reach."""
    async with victim() as made:
        yield made
