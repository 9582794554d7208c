"""Executors: claims, workspaces, the runner and the built-in tools."""

from fairlead_common.import_guard import import_lean

import_lean(f"{__name__}.main")
