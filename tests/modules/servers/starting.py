"""A server of the handshake era whose starts can be counted, and that can be changed between them.

starting.py FILE: FILE is JSON. Each start appends a line to `FILE.starts`.

| member | meaning |
|---|---|
| `tools` | its tools, as `tools/list` gives them |
| `prompts`, `resources` | the entries of these lists; the capability is missing if the member is |
| `fails` | a text that it writes to standard error before it ends with exit code 3 |
| `hold` | a named pipe; it answers nothing before a line can be read from it |

The tool `tally` gives the number of calls of this process, `die` ends the process, `gated` waits
for a line from the pipe that its argument `gate` names, and `ask` asks for a form.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
CALLS: list[str] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    message: dict[str, Any] = json.loads(line)
    return message


def called(name: str, arguments: dict[str, Any]) -> str:
    CALLS.append(name)
    match name:
        case "die":
            os._exit(1)
        case "gated":
            with Path(arguments["gate"]).open() as gate:
                gate.readline()
            return "done"
        case "ask":
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            params = {"message": "Who?", "requestedSchema": schema}
            send({"id": "question", "method": "elicitation/create", "params": params})
            while (message := receive()).get("id") != "question":
                pass
            return str(message["result"]["action"])
        case _:
            return str(len(CALLS))


def result_of(method: str, params: dict[str, Any], told: dict[str, Any]) -> dict[str, Any] | None:
    offered = [kind for kind in ("prompts", "resources") if kind in told]
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}} | {kind: {} for kind in offered},
                "serverInfo": {"name": "starting", "version": "1"},
                "instructions": "Start me.",
            }
        case "tools/list":
            return {"tools": told["tools"]}
        case "prompts/list" | "resources/list":
            kind = method.partition("/")[0]
            return {kind: told[kind]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "read"}]}
        case "prompts/get":
            content = {"type": "text", "text": "got"}
            return {"messages": [{"role": "user", "content": content}]}
        case "resources/subscribe" | "resources/unsubscribe":
            return {}
        case "tools/call":
            text = called(params["name"], params.get("arguments", {}))
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return None


def main() -> None:
    with FILE.with_name(f"{FILE.name}.starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")

    told = json.loads(FILE.read_text())
    if told.get("hold"):
        with Path(told["hold"]).open() as hold:
            hold.readline()
    if told.get("fails"):
        sys.stderr.write(told["fails"] + "\n")
        sys.stderr.flush()
        sys.exit(3)

    while True:
        message = receive()
        if "id" not in message:
            continue
        result = result_of(message["method"], message.get("params", {}), told)
        if result is None:
            error = {"code": -32601, "message": "no such method"}
            send({"id": message["id"], "error": error})
        else:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
