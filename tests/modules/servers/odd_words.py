"""A server whose every message is a little odd, and each in another way."""

import json
import sys
from typing import Any

OBJECT: dict[str, Any] = {"type": "object"}
TOOLS: list[Any] = [
    {
        "name": "echo",
        "inputSchema": OBJECT,
        "icons": "none",
        "annotations": {"readOnlyHint": True, "idempotentHint": 5},
    },
    {"name": 5, "inputSchema": OBJECT},
    {"name": "list", "inputSchema": OBJECT},
    {"name": "fails", "inputSchema": OBJECT},
    {"name": "refuses", "inputSchema": OBJECT},
    {"name": "half", "inputSchema": OBJECT},
    {"name": "pretty", "inputSchema": OBJECT},
    {"name": "twice", "inputSchema": OBJECT},
    {"name": "quiet", "inputSchema": OBJECT},
]


def write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.buffer.flush()


def answer(number: Any, **members: Any) -> str:
    return json.dumps({"id": str(number), **members})


def called(number: int, name: str) -> str:
    text = [{"type": "text", "text": f"{name} done"}]
    match name:
        case "list":
            return answer(number, result={"structuredContent": [1, {"a": None}]}) + "\n"
        case "fails":
            return answer(number, result={"content": text, "isError": "failed"}) + "\n"
        case "refuses":
            return answer(number, error="the shop is closed") + "\n"
        case "half":
            # This is how Node writes half of a surrogate pair.
            half = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": text}})
            return half.replace("half done", r"a \ud83d b") + "\n"
        case "pretty":
            return (
                json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": text}}, indent=2)
                + "\n"
            )
        case "twice":
            other = json.dumps({"jsonrpc": "2.0", "method": "notifications/heartbeat"})
            return f"{other}{json.dumps({'jsonrpc': '2.0', 'id': number, 'result': {'content': text}})}\n"
        case "quiet":
            return answer(number, result=[]) + "\n"
        case _:
            return (
                "> "
                f"{json.dumps({'jsonrpc': '2.0', 'id': number, 'result': {'content': text[0]}})}\n"
            )


def main() -> None:
    write("\ufeffstarting\x1b[0m\0 with sesame-open-now\n[DONE]\n{}\n")
    for line in sys.stdin:
        message: dict[str, Any] = json.loads(line)
        number = message.get("id")
        method = message.get("method")
        if method == "initialize":
            write(
                answer(
                    number, result={"protocolVersion": 20251125, "capabilities": {"tools": True}}
                )
                + "\n"
            )
        elif method == "tools/list":
            write(answer(number, result={"tools": TOOLS, "nextCursor": None}) + "\n")
        elif method == "tools/call":
            write(called(int(str(number)), message["params"]["name"]))
        elif number is not None:
            write(answer(number, error={"code": -32601}) + "\n")


if __name__ == "__main__":
    main()
