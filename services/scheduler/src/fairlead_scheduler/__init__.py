"""Jobs, heartbeats and wake-ups."""

from fairlead_common.import_guard import import_lean

import_lean(f"{__name__}.main")
