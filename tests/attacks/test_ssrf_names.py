"""Names that lead inside, asked of a real resolver, in a network where public addresses are real.

The program runs in namespaces of its own; see tests/support/private_network.py.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.private_network import METADATA, OWN, PRIVATE, PUBLIC

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def can_have_a_network() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    cable = "ip link add name probe0 type veth peer name probe1"
    probe = [*NAMESPACES, "sh", "-c", f"{cable} && mount --bind /etc/resolv.conf /etc/resolv.conf"]
    return subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode == 0


def fetched(folder: Path, *urls: str) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """What came of each URL, which names were asked for, and which requests arrived anywhere."""
    if not can_have_a_network():
        pytest.skip("needs network and mount namespaces, and iproute2")
    hits = folder / "hits"
    hits.touch()
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "tests.support.private_network"],
        input=" ".join(urls),
        capture_output=True,
        text=True,
        timeout=50,
        cwd=ROOT,
        env={**os.environ, "HITS": str(hits)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return said["results"], said["asked"], hits.read_text().splitlines()


def test_ss_20_to_27_names_and_redirects_that_lead_inside_reach_nothing(tmp_path: Path) -> None:
    urls = {
        "http://private.example/": f"private.example is {PRIVATE} (private)",
        "http://metadata.example/": f"metadata.example is {METADATA} (cloud metadata)",
        "http://mixed.example/": f"mixed.example is {PRIVATE} (private)",
        "http://own.example/": f"own.example is {OWN} (this machine's own)",
        f"http://{OWN}/": f"{OWN} (this machine's own)",
        f"http://{PRIVATE}/": f"{PRIVATE} (private)",
        f"http://{METADATA}/latest/meta-data/": f"{METADATA} (cloud metadata)",
        "http://nowhere.example/": "cannot be resolved",
    }
    results, _, hits = fetched(tmp_path, *urls)
    for url, why in urls.items():
        status, said = results[url]
        assert status == "error"
        assert why in said
    assert hits == []


def test_ss_24_twin_public_name_and_address_are_fetched(tmp_path: Path) -> None:
    results, asked, hits = fetched(
        tmp_path, "http://public.example/a", f"http://{PUBLIC}/b", f"http://{PUBLIC}/door"
    )
    assert results["http://public.example/a"][0] == results[f"http://{PUBLIC}/b"][0] == "ok"
    assert f"{METADATA} (cloud metadata)" in results[f"http://{PUBLIC}/door"][1]
    assert asked == ["public.example"]
    assert hits == [f"{PUBLIC} public.example /a", f"{PUBLIC} {PUBLIC} /b", f"{PUBLIC} {PUBLIC} /door"]


def test_ss_26_name_that_turns_private_after_the_check_is_connected_where_it_was_checked(
    tmp_path: Path,
) -> None:
    results, asked, hits = fetched(tmp_path, "http://rebind.example/", "naive:http://rebind2.example/")
    assert results["http://rebind.example/"][0] == "ok"
    assert f"reached at {PRIVATE}" in results["naive:http://rebind2.example/"][1], "the trap is not armed"
    assert asked == ["rebind.example", "rebind2.example", "rebind2.example"]
    assert hits == [f"{PUBLIC} rebind.example /", f"{PRIVATE} rebind2.example /"]
