"""An MCP server on standard input and output with one tool; enough to be listed and called."""

import json
import sys

TOOL = {
    "name": "lookup",
    "description": "Look a thing up.",
    "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
}


def answer(method: str, params: dict) -> dict:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "test", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    return {"content": [{"type": "text", "text": "found"}]}


for received in sys.stdin:
    request = json.loads(received)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        sys.stdout.write(
            json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n"
        )
        sys.stdout.flush()
