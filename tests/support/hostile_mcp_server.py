"""Source of an MCP server without an SDK that does one thing wrong, which its first argument names."""

SOURCE = r"""
import json, os, sys, threading, time
mode = sys.argv[1]
asked = 0
plain = {"type": "object"}
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def changing():
    while True:
        say(method="notifications/tools/list_changed")
if mode == "exits":
    sys.exit(3)
for line in sys.stdin:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "prompts": {}}
        say(id=number, result={
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": "hostile", "version": "1"},
        })
        if mode == "changes":
            threading.Thread(target=changing, daemon=True).start()
    elif method == "tools/list":
        asked += 1
        print("tools/list", file=sys.stderr, flush=True)
        if mode == "long":
            say(method="notifications/message", params={"level": "info", "data": "x" * (80 << 20)})
        if mode == "many":
            say(id=number, result={"tools": [{"name": f"t{n}", "inputSchema": plain} for n in range(5000)]})
        elif mode == "loop":
            say(id=number, result={"tools": [{"name": "same", "inputSchema": plain}], "nextCursor": "same"})
        elif mode == "pages":
            tool = {"name": f"p{asked}", "inputSchema": plain}
            say(id=number, result={"tools": [tool], "nextCursor": str(asked)})
        else:
            say(id=number, result={"tools": [{"name": "ok", "inputSchema": plain}]})
    elif method == "tools/call" and mode == "busy":
        print("tools/call", file=sys.stderr, flush=True)
        while not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        say(id=number, result={"content": [{"type": "text", "text": "done"}]})
    elif method == "prompts/get":
        say(id=number, error={"code": -1, "message": "\x1b[31mno\x07"})
    elif method == "prompts/list":
        say(id=number, result={"prompts": []})
    elif number is not None:
        say(id=number, error={"code": -32601, "message": "no method"})
"""
