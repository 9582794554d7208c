"""The connection to NATS, with the guarantees that Fairlead builds on.

`Bus` is the face of this package; the other modules are built on it or are parts of it.
"""

from fairlead_common.import_guard import import_lean

import_lean()

from fairlead_common.bus.bus import INLINE_LIMIT_BYTES, Bus, WrongSequenceError  # noqa: E402

__all__ = ["INLINE_LIMIT_BYTES", "Bus", "WrongSequenceError"]
