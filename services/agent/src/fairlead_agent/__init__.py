"""Sessions and the agent loop: context, models, permissions, tool calls."""

from fairlead_common.import_guard import import_lean

import_lean(f"{__name__}.main")
