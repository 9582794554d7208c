"""One deployment for all tests here, its streams on a disk that can be filled where one can be mounted."""

import os
from collections.abc import Iterator

import pytest

from tests.deploy.deployment import SETTINGS, USER, Deployment
from tests.support.small_disk import SmallDisk


@pytest.fixture(scope="package")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk | None]:
    """The disk of the streams, or None."""
    made = SmallDisk(tmp_path_factory.mktemp("disk") / "store", size_mib=512)
    if made.mount():
        yield None
        return
    os.chown(made.folder, USER, USER)
    yield made
    made.__exit__()


@pytest.fixture(scope="package")
def deployment(tmp_path_factory: pytest.TempPathFactory, disk: SmallDisk | None) -> Iterator[Deployment]:
    """All services, healthy."""
    store = disk.folder if disk else None
    made = Deployment(tmp_path_factory.mktemp("deploy"), SETTINGS, store=store)
    made.make_secrets()
    try:
        made.build()
        print(f"up --wait: {made.up():.1f} s")
        yield made
    finally:
        made.remove()
