"""Servers of tools that do as they are told: ``python tool_server.py WHAT``."""

import json
import sys
import time

ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    },
}


def send(identity: object, result: object) -> None:
    line = {"jsonrpc": "2.0", "id": identity, "result": result}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def told(request: dict[str, object]) -> object:
    """Return the answer of an honest server."""
    match request["method"]:
        case "initialize":
            params = request["params"]
            assert isinstance(params, dict)
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "adder", "version": "1"},
            }
        case "tools/list":
            return {"tools": [ADD]}
        case _:
            params = request["params"]
            assert isinstance(params, dict)
            total = sum(params["arguments"].values())
            return {"content": [{"type": "text", "text": f"sum {total}"}]}


def main(what: str) -> None:
    if what == "hangs":
        time.sleep(3600)
    if what == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if what == "lies":
        sys.stdout.write("this is no JSON\n")
        sys.stdout.flush()
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if what == "ends" and request["method"] == "tools/call":
            return
        send(request["id"], told(request))


if __name__ == "__main__":
    main(sys.argv[1])
