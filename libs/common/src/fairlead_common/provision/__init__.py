"""The command that makes what is missing on NATS."""

from fairlead_common.import_guard import import_lean

import_lean()
