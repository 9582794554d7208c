"""Builds the images that the tests of this folder use, before any of them needs one.

python -m tests.deploy.build_images            those of this version
python -m tests.deploy.build_images older      those of some commits ago
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.deploy.deployment import ROOT, SETTINGS, Deployment

OLDER: Final = os.environ.get("FAIRLEAD_OLDER") or "HEAD~10"
OLDER_TAG: Final = "test-older"


def build_older(folder: Path) -> bool:
    """Build the images of the sources of some commits ago; False if this clone does not go back so far."""
    named = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{OLDER}^{{commit}}"]
    found = subprocess.run(named, capture_output=True, text=True, timeout=20, check=False)
    if found.returncode:
        return False
    archive = folder / "sources.tar"
    git = ["git", "-C", str(ROOT), "archive", "-o", str(archive), found.stdout.strip()]
    subprocess.run(git, check=True, timeout=60)
    sources = folder / "sources"
    sources.mkdir()
    subprocess.run(["tar", "-x", "-f", archive, "-C", sources], check=True, timeout=60)
    Deployment(folder, SETTINGS, root=sources, version=OLDER_TAG).build()
    return True


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        if sys.argv[1:] == ["older"]:
            build_older(Path(made))
        else:
            Deployment(Path(made), SETTINGS).build()
