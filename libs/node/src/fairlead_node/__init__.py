"""The platform on one machine: what runs it, looks after it, and keeps what it stored."""

from fairlead_common.service.import_guard import import_lean

import_lean()
