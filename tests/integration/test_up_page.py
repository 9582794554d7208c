"""What `fairlead up` prints about the page of a clone that no one has built since its sources changed."""

from pathlib import Path

from tests.support.fairlead_up import FairleadUp
from tests.unit.webui import test_sources

pytestmark = test_sources.pytestmark
package, edit = test_sources.package, test_sources.edit


def test_fairlead_up_prints_one_line_about_an_old_page_and_serves_it(package: Path, tmp_path: Path) -> None:
    edit(package)
    environ = {"FAIRLEAD_MODEL": "demo", "PYTHONPATH": str(package.parent)}
    with FairleadUp(tmp_path / "home", environ=environ) as up:
        up.wait_printed("application_outdated", timeout_s=30)
        assert "Built before" in up.call("GET", "/")[1]
    lines = [line for line in up.printed.read_text().splitlines() if "application_outdated" in line]
    assert len(lines) == 1
    assert "warning" in lines[0]
    assert "web`, then start again" in lines[0]
