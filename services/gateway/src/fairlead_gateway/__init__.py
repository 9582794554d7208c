"""The front door: HTTP, server-sent events, the OpenAI-compatible API, authentication."""

from fairlead_common.lean import import_lean

import_lean()
