"""Run as a process of its own: asks public search engines without a key, and ends.

    python -I search_ddgs.py < request > reply

It makes its own connections, to the engines only; their addresses are not checked. Imports nothing of
Fairlead.
"""

import json
import resource
import sys
from typing import Any


def main() -> None:
    """Answer one request: a line of JSON."""
    request: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    limits = request["limits"]
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["reply_bytes"], limits["reply_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from ddgs import DDGS

    engines = DDGS(
        proxy=request["proxy"] or None, timeout=request["timeout_s"], verify=request["ca_file"] or True
    )
    try:
        results = engines.text(
            request["query"],
            max_results=request["count"],
            page=request["page"],
            timelimit=request["freshness"],
            backend=request["backend"],
        )
        reply: dict[str, Any] = {"results": results}
    except Exception as error:  # noqa: BLE001 - whatever an engine's page did to the library
        reply = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(reply))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
