"""Sources of MCP servers, run as processes of their own."""

# Notes what it does in a journal. `extra` appears, and `echo` says something else, once a file says so.
SERVER = '''
import asyncio, os, pathlib, subprocess, sys, time
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

journal = pathlib.Path(os.environ["JOURNAL"])
def note(line):
    with journal.open("a") as file:
        file.write(line + "\\n")
note(f"pid {os.getpid()}")
server = MCPServer("test")

def described():
    changed = journal.with_name("changed")
    return changed.read_text() if changed.exists() else "Says it again."

@server.tool(description=described(), annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def echo(text: str) -> str:
    note("echo")
    return text

@server.tool()
async def work(ctx: Context) -> str:
    """Works until it may end."""
    note("work")
    await ctx.report_progress(1, 2, "half of it")
    try:
        while not journal.with_name("go").exists():
            await asyncio.sleep(0.01)
    except BaseException as error:
        note(f"stopped by {type(error).__name__}")
        raise
    return "worked"

@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def again() -> str:
    note("again")
    while not journal.with_name("go").exists():
        await asyncio.sleep(0.01)
    return "done again"

@server.tool()
def fail() -> str:
    raise ToolError("the kettle is empty")

@server.tool()
def picture() -> Image:
    return Image(data=bytes.fromhex("89504e470d0a1a0a"), format="png")

@server.tool()
def long() -> str:
    return "".join(f"line {n}\\n" for n in range(30_000))

@server.tool()
def numbers(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}

@server.tool()
def environment() -> str:
    return "\\n".join(sorted(os.environ)) + "\\ntoken=" + os.environ.get("TOKEN", "")

@server.tool()
def child() -> str:
    null = subprocess.DEVNULL
    return str(subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, start_new_session=True).pid)

@server.tool()
async def grow(ctx: Context) -> str:
    @server.tool()
    def extra() -> str:
        """Came later."""
        return "extra"
    await ctx.notify_tools_changed()
    return "grown"

@server.prompt(description="Asks for a review.")
def review(pr: str, depth: str = "short") -> str:
    return f"Review {pr}, {depth}."

@server.tool()
def crash() -> str:
    note("crash")
    os._exit(3)

if len(sys.argv) > 1:
    import uvicorn
    async def main():
        app = server.streamable_http_app()
        async def guarded(scope, receive, send):
            if scope["type"] == "http" and dict(scope["headers"]).get(b"x-key") != b"s3cret":
                await send({"type": "http.response.start", "status": 401, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
                return
            await app(scope, receive, send)
        await uvicorn.Server(uvicorn.Config(guarded, port=int(sys.argv[1]), log_level="error")).serve()
    asyncio.run(main())
else:
    try:
        server.run()
    finally:
        time.sleep(float(os.environ.get("LINGER", "0")))  # some do not care that nobody listens
'''

# A server of 2025, without an SDK: it knows the handshake of then alone, and writes what is no protocol too.
OLD_SERVER = """
import json, sys
tools = [{"name": "greet", "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}]
tools.append({"name": "garble", "inputSchema": {"type": "object"}})
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
print("starting ...", flush=True)
print("a warning", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if method == "initialize":
        say(id=number, result={
            "protocolVersion": "2025-03-26",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "old", "version": "1"},
        })
    elif method == "tools/list":
        say(id=number, result={"tools": tools})
    elif method == "tools/call" and request["params"]["name"] == "greet":
        tools.append({"name": "later", "description": "Came later.", "inputSchema": {"type": "object"}})
        print("greeting ...", flush=True)
        say(method="notifications/tools/list_changed")
        text = "hello " + request["params"]["arguments"].get("name", "")
        say(id=number, result={"content": [{"type": "text", "text": text}]})
    elif method == "tools/call" and request["params"]["name"] == "garble":
        say(id=number, result={"content": "done, in a shape that nobody knows"})
    elif number is not None:
        say(id=number, error={"code": -32601, "message": f"no method {method}"})
"""

# Without an SDK, and with habits that servers have: errors by the numbers that the SDK takes for its own, a
# tool without a type in its schema, results without text. By its environment it starts late, or dies at once.
ODD_SERVER = """
import json, os, pathlib, sys, threading, time
journal = pathlib.Path(os.environ["JOURNAL"])
with journal.open("a") as file:
    file.write(f"pid {os.getpid()}\\n")
if "DIES" in os.environ:
    print("fetching the index ...", file=sys.stderr)
    sys.exit("no licence was found in /etc/odd.key")
if "WAITS" in os.environ:
    print("downloading 40 of 400 packages", file=sys.stderr, flush=True)
    while not journal.with_name("go").exists():
        time.sleep(0.01)
lock = threading.Lock()
count = 0
def say(**message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
plain = {"type": "object"}
tools = [
    {"name": "odd", "inputSchema": {"anyOf": [plain, {"type": "null"}]}},
    {"name": "shaped", "inputSchema": plain, "outputSchema": {"type": "array"}, "description": "A shape."},
    *({"name": each, "inputSchema": plain} for each in ("fail", "late", "count", "numbers", "wait")),
    {"name": "folders", "inputSchema": plain},
    {"name": "chore", "inputSchema": plain, "execution": {"taskSupport": "required"}},
    "no tool at all",
]
def wait(number):
    while not journal.with_name("go").exists():
        time.sleep(0.01)
    say(id=number, result={"content": [{"type": "text", "text": "waited"}]})
for line in sys.stdin:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    name = request.get("params", {}).get("name")
    if method == "initialize":
        say(id=number, result={
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        })
    elif method == "tools/list":
        say(id=number, result={"tools": tools})
    elif method == "resources/list":
        page = int(request.get("params", {}).get("cursor", "0"))
        found = [{"uri": f"kettle://{n}", "name": f"kettle {n}"} for n in range(page * 10, page * 10 + 10)]
        say(id=number, result={"resources": found, **({"nextCursor": str(page + 1)} if page < 2 else {})})
    elif method == "resources/read" and request["params"]["uri"] == "kettle://7":
        parts = [{"uri": "kettle://7", "text": "it is warm"}]
        parts.append({"uri": "kettle://7", "mimeType": "image/png", "blob": "iVBORw0KGgo="})
        say(id=number, result={"contents": parts})
    elif method == "resources/read":
        say(id=number, error={"code": -32002, "message": "no such kettle"})
    elif method != "tools/call":
        if number is not None:
            say(id=number, error={"code": -32601, "message": f"no method {method}"})
    elif name == "fail":
        say(id=number, error={"code": -32000, "message": "the kettle is empty", "data": {"litres": 0}})
    elif name == "late":
        say(id=number, error={"code": -32001, "message": "upstream took too long"})
    elif name == "count":
        count += 1
        say(id=number, result={"content": [{"type": "text", "text": str(count)}]})
    elif name == "folders":
        say(id="roots", method="roots/list")
        roots = json.loads(sys.stdin.readline())["result"]["roots"]
        text = " ".join(root["uri"] for root in roots)
        say(id=number, result={"content": [{"type": "text", "text": text}]})
    elif name == "numbers":
        say(id=number, result={"content": [], "structuredContent": {"sum": 3, "of": [1, 2]}})
    elif name == "wait":
        threading.Thread(target=wait, args=(number,), daemon=True).start()
    else:
        say(id=number, result={"content": [{"type": "text", "text": f"{name} was called"}]})
"""

# It asks the person: in the call, as servers of the newest protocol do, or with a request of its own, as
# those of 2025 (with OLD in its environment a client finds no other version).
ASKING_SERVER = """
import asyncio, os, pathlib, sys
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from mcp import MCPError
from mcp.server.mcpserver import AcceptedElicitation, Context, Elicit, ElicitationResult, MCPServer, Resolve

journal = pathlib.Path(os.environ["JOURNAL"])
def note(line):
    with journal.open("a") as file:
        file.write(line + "\\n")
note(f"pid {os.getpid()}")
server = MCPServer("asking")
if "OLD" in os.environ:
    import mcp.server.runner
    mcp.server.runner._has_modern_envelope = lambda _: False

class Order(BaseModel):
    size: Literal["small", "large"] = Field(title="Size")
    count: int = Field(ge=1, le=9, description="How many.")
    gift: bool = False

class Login(BaseModel):
    user: str
    password: str

async def wanted(item: str) -> Elicit[Order]:
    return Elicit(f"Which {item}?", Order)

@server.tool()
async def order(item: str, given: Annotated[ElicitationResult[Order], Resolve(wanted)]) -> str:
    note(f"order {item}")
    if isinstance(given, AcceptedElicitation):
        return f"{given.data.count} {given.data.size} {item}, gift {given.data.gift}"
    return f"no {item}: {given.action}"

@server.tool()
async def old_order(item: str, ctx: Context) -> str:
    note(f"old_order {item}")
    given = await ctx.elicit(f"Which {item}?", Order)
    if given.action == "accept":
        return f"{given.data.count} {given.data.size} {item}, gift {given.data.gift}"
    return f"no {item}: {given.action}"

@server.tool()
async def login(ctx: Context) -> str:
    return (await ctx.elicit("Who are you?", Login)).action

@server.tool()
async def visit(ctx: Context, url: str) -> str:
    return (await ctx.elicit_url("Sign in there.", url, "visit-1")).action

visits = []

@server.tool()
async def sign_in_first(urls: list[str]) -> str:
    # Refused until a person has opened the pages, as servers of 2025-11-25 do.
    note("sign_in_first")
    if urls in visits:
        return "signed in"
    visits.append(urls)
    pages = [
        {"mode": "url", "elicitationId": str(n), "url": url, "message": f"Sign in at shop {n}."}
        for n, url in enumerate(urls)
    ]
    raise MCPError(-32042, "This needs an authorization.", {"elicitations": pages})

@server.tool()
async def plain() -> str:
    return "plain"

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run()
"""

# It has prompts and no tools, suggests values, and answers wrongly where it is told to.
PROMPT_SERVER = """
import base64, os, pathlib, sys
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage
from mcp.types import Completion, ImageContent

journal = pathlib.Path(os.environ["JOURNAL"])
def note(line):
    with journal.open("a") as file:
        file.write(line + "\\n")
server = MCPServer("prompts")

@server.prompt(description="Asks for a review of a\\npull request.")
def review(pr: str, depth: str = "short") -> list:
    note(f"review {pr}")
    return [UserMessage(f"Review {pr}, {depth}."), AssistantMessage("Which files?"), UserMessage("All.")]

@server.prompt(description="Says what is in a picture.")
def look() -> list:
    data = base64.b64encode(bytes.fromhex("89504e470d0a1a0a")).decode()
    picture = ImageContent(type="image", data=data, mime_type="image/png")
    return [UserMessage("What is this?"), UserMessage(picture)]

@server.prompt()
def endless() -> str:
    return "x" * 500_000

@server.prompt()
def nothing() -> str:
    return "  "

@server.completion()
async def complete(ref, argument, context):
    known = {"pr": ["12", "17", "23"], "depth": ["short", "deep"]}.get(argument.name, [])
    note(f"complete {argument.name} {(context.arguments if context else None) or {}}")
    return Completion(values=[each for each in known if each.startswith(argument.value)])

server.run()
"""
