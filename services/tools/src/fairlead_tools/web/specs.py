"""The web tools as models see them. Apart from what they need, which is loaded at the first call."""

from fairlead_common.protocol.messages import ToolSpec

DEFAULT_CHARS = 20_000
MAX_CHARS = 50_000
MAX_COUNT = 20

FETCH = ToolSpec(
    name="web_fetch",
    description=(
        "Read a page, a text, a PDF or a picture from the public web by its URL. Pages come as Markdown of "
        "their main text; scripts are not run. Long texts come in pieces: go on with `offset`. Private "
        "networks are out of reach."
    ),
    parameters={
        "type": "object",
        "properties": {
            "url": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "http or https."},
            "mode": {
                "type": "string",
                "enum": ["markdown", "text", "raw"],
                "description": "`text`: without markup and links; `raw`: the source. `markdown` by default.",
            },
            "offset": {"type": "integer", "minimum": 0, "description": "First character, from 0."},
            "max_chars": {
                "type": "integer",
                "minimum": 100,
                "maximum": MAX_CHARS,
                "description": f"{DEFAULT_CHARS:,} by default.",
            },
        },
        "required": ["url"],
        "additionalProperties": False,
    },
    idempotent=True,
    parallel=True,
    read_only=True,
    shows="url",
    group="web",
    flags=["untrusted", "external"],
)

SEARCH = ToolSpec(
    name="web_search",
    description="Search the web: titles, URLs and a few words of each result. Read a result with web_fetch.",
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 400},
            "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT},
            "page": {"type": "integer", "minimum": 1, "maximum": 10, "description": "From 1."},
            "freshness": {"type": "string", "enum": ["day", "week", "month", "year"]},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    idempotent=True,
    parallel=True,
    read_only=True,
    shows="query",
    group="web",
    flags=["untrusted", "external"],
)
