"""Jobs, heartbeats and wake-ups."""

from fairlead_common.lean import import_lean

import_lean()
