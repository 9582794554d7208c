"""The HTTP entry point: REST, server-sent events, the OpenAI-compatible API, authentication."""

from fairlead_common.import_guard import import_lean, import_without

import_lean(f"{__name__}.main")
import_without("uvicorn", "watchfiles")
