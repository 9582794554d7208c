"""Executors: claims, workspaces, the runner and the built-in tools."""

from fairlead_common.lean import import_lean

import_lean()
