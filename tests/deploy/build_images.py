"""Builds the images that the tests of this folder use, before any of them needs one.

python -m tests.deploy.build_images
"""

import tempfile
from pathlib import Path

from tests.deploy.deployment import SETTINGS, Deployment

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Deployment(Path(folder), SETTINGS).build()
