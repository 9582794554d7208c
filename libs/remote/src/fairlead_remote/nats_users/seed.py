"""Keys of users that Fairlead makes for itself: the seed stays in a file of its owner."""

from pathlib import Path

from fairlead_common.installation.home import write_private
from fairlead_common.permissions import nkey


def public_key_of(seed_file: Path) -> str:
    """The public key of the seed in a file, which is made if it is not there or is no seed.

    Raises:
        OSError: it cannot be written.
    """
    try:
        return nkey.public_key(seed_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        seed = nkey.new_seed()
        write_private(seed_file, seed + "\n")
        return nkey.public_key(seed)
