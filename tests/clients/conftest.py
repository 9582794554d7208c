"""One running Fairlead for all clients, while their tests last."""

from collections.abc import Iterator

import pytest

from tests.clients.stack import Stack


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A whole Fairlead with a scripted model."""
    with Stack(tmp_path_factory.mktemp("clients")) as running:
        yield running
