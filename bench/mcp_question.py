"""Start the MCP server, ask for the newest runs of a place, and wait for the reply.

python -m bench.mcp_question PLACE
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


def ask(place: str, *, only_hello: bool = False) -> dict[str, Any]:
    """The reply to the question, or to the greeting."""
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}},
    ]
    sent = messages[:1] if only_hello else messages
    command = [sys.executable, "-m", "workbench", "mcp", "--out", place]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.writelines(json.dumps({"jsonrpc": "2.0"} | message) + "\n" for message in sent)
        server.stdin.flush()
        reply: dict[str, Any] = {}
        while reply.get("id") != sent[-1]["id"]:
            reply = json.loads(server.stdout.readline())
        server.stdin.close()
    if "error" in reply or reply["result"].get("isError"):
        raise RuntimeError(str(reply)[:300])
    return reply


if __name__ == "__main__":
    ask(sys.argv[1])
