"""Access from outside to the NATS server of an installation: executors of other machines, other systems."""

from fairlead_common.service.import_guard import import_lean

import_lean()
