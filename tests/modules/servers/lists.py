"""A server of the handshake era on bare stdin and stdout, whose lists are odd in the way of its
first argument.

All four lists behave alike. A call of any tool makes it behave from then on, as far as it
failed or hung.
"""

import json
import sys
from typing import Any

MODE = sys.argv[1]
BEHAVES = [False]
MEMBERS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def entry(method: str, number: int, text: str = "") -> dict[str, Any]:
    name = f"e{number}"
    match method:
        case "tools/list":
            return {"name": name, "description": text, "inputSchema": {"type": "object"}}
        case "resources/list":
            return {"name": name, "description": text, "uri": f"test://{name}"}
        case "resources/templates/list":
            return {"name": name, "description": text, "uriTemplate": f"test://{name}/{{x}}"}
        case _:
            return {"name": name, "description": text}


def page(method: str, cursor: Any) -> dict[str, Any] | None:
    """The result of one request for a page: `result`, `error`, or None for no answer."""
    member = MEMBERS[method]
    if cursor is not None and str(cursor).isdigit():
        number = int(cursor)
    else:
        number = 0

    def result(next_cursor: Any, *numbers: int, text: str = "") -> dict[str, Any]:
        entries = [entry(method, one, text) for one in numbers]
        more = {} if next_cursor is None else {"nextCursor": next_cursor}
        return {"result": {member: entries, **more}}

    failure = {"error": {"code": -32603, "message": "the database is locked"}}
    match MODE:
        case "first_fails":
            if method == "tools/list":
                return result(None, 0) if BEHAVES[0] else failure
        case "tools_hang" if method == "tools/list":
            return None
        case "others_hang":
            return result(None, 7) if method == "tools/list" else None
        case "plain":
            return result(None, 0)
        case "no_method":
            return {"error": {"code": -32601, "message": "unknown method"}}
        case "many_pages":
            return result(str(number + 1) if number < 1099 else None, number)
        case "empty_pages":
            return result(str(number + 1), *([0] if number == 0 else []))
        case "many_entries":
            return result(str(number + 1), *range(4000 * number, 4000 * (number + 1)))
        case "many_bytes":
            return result(str(number + 1), number, text="x" * 8_000_000)
        case "repeated":
            return result("again", 0 if cursor is None else 1)
        case "ignored":
            return result("again", 0, 1)
        case "alternating":
            return result("b" if cursor == "a" else "a", {"a": 1, "b": 2}.get(str(cursor), 0))
        case _:
            pass

    if cursor is not None:
        match MODE:
            case "fails" if not BEHAVES[0]:
                return failure
            case "hangs" if not BEHAVES[0]:
                return None
            case "no_entries":
                return {"result": {}}
            case "null_entries":
                return {"result": {member: None}}
            case _:
                pass

        return result(None, 1)

    cursors: dict[str, Any] = {"empty": "", "number": 1, "object": {"page": 1}, "flag": True}
    next_cursor: Any = cursors.get(MODE, "1")
    return result(next_cursor, 0)


def cursor_of(message: dict[str, Any]) -> Any:
    params: dict[str, Any] = message.get("params") or {}
    return params.get("cursor")


def main() -> None:
    for line in sys.stdin.buffer:
        message: dict[str, Any] = json.loads(line)
        method = message.get("method")
        if "id" not in message:
            continue
        answer: dict[str, Any] | None
        if method in MEMBERS:
            answer = page(method, cursor_of(message))
        elif method == "initialize":
            info = {"name": "lists", "version": "1"}
            capabilities: dict[str, Any] = {
                "tools": {},
                "resources": {"listChanged": True},
                "prompts": {},
            }
            answer = {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": capabilities,
                    "serverInfo": info,
                }
            }
        elif method == "tools/call":
            BEHAVES[0] = True
            answer = {"result": {"content": [{"type": "text", "text": "done"}]}}
        elif method == "completion/complete":
            answer = {"result": {"completion": {"values": ["done"]}}}
        elif method == "prompts/get":
            answer = {
                "result": {
                    "messages": [{"role": "user", "content": {"type": "text", "text": "done"}}]
                }
            }
        elif method == "resources/read":
            uri = message["params"]["uri"]
            answer = {"result": {"contents": [{"uri": uri, "text": "read"}]}}
        else:
            answer = {"error": {"code": -32601, "message": "no such method"}}
        if answer is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
