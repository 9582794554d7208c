"""A page that is older than its sources is told of, in a clone and nowhere else."""

import asyncio
import runpy
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead_webui.sources import PACKAGE, SourcesWatch, is_outdated

SERVICE = PACKAGE.parents[1]

pytestmark = pytest.mark.skipif(
    not (SERVICE / "build.py").is_file(), reason="Fairlead is installed here, not cloned"
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package in a clone whose page was just built."""
    service = tmp_path / "my clone" / "services" / "webui"
    left_out = shutil.ignore_patterns("node_modules", "dist", "__pycache__")
    shutil.copytree(SERVICE, service, ignore=left_out)
    folder = service / "src" / "fairlead_webui"
    (folder / "dist").mkdir()
    (folder / "dist" / "index.html").write_text("<!doctype html><title>Built before</title>")
    build = runpy.run_path(str(service / "build.py"))
    (folder / "dist" / ".stamp").write_text(build["fingerprint"]())
    return folder


def edit(package: Path) -> None:
    page = package.parents[1] / "web" / "src" / "App.tsx"
    page.write_text(page.read_text() + "// edited\n")


async def warnings(package: Path) -> list[str]:
    """What the service warns of while it starts and stops."""
    stop = asyncio.Event()
    stop.set()
    with capture_logs() as logs:
        await asyncio.wait_for(SourcesWatch(package).run(stop), 20)
    return [str(line.get("hint")) for line in logs if line["log_level"] == "warning"]


async def test_sources_that_were_edited_since_the_build_are_told_with_the_command_to_build(
    package: Path,
) -> None:
    assert await warnings(package) == []
    edit(package)
    (told,) = await warnings(package)
    assert f"make -C '{package.parents[3]}' web" in told


async def test_a_checkout_that_only_touches_files_changes_nothing(package: Path) -> None:
    for path in (package.parents[1] / "web" / "src").rglob("*.tsx"):
        path.touch()
    assert await warnings(package) == []


async def test_tests_of_the_page_are_no_part_of_it(package: Path) -> None:
    (package.parents[1] / "web" / "src" / "more.test.ts").write_text("export {};\n")
    assert await warnings(package) == []


async def test_an_installed_package_has_nothing_to_compare_and_says_nothing(
    package: Path, tmp_path: Path
) -> None:
    edit(package)
    installed = tmp_path / "lib" / "python3" / "site-packages" / "fairlead_webui"
    shutil.copytree(package, installed)
    assert await warnings(installed) == []


async def test_a_build_script_that_is_being_edited_does_not_end_the_service(package: Path) -> None:
    (package.parents[1] / "build.py").write_text("def is_fresh(")
    assert await warnings(package) == []


def test_a_page_that_was_never_built_is_told_by_the_file_server_alone(package: Path) -> None:
    edit(package)
    (package / "dist" / "index.html").unlink()
    assert not is_outdated(package)
