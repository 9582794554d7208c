"""Serves the files of the web application over NATS."""

from fairlead_common.lean import import_lean

import_lean()
