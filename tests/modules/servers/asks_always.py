"""A server of the handshake era that asks in every state, and goes on only once every request of
it is answered.

asks_always.py [PIPE]: its tool `report` gives what each request got, by state:
`{state: {request: error code or result}}`. With a named pipe, the call of `report` first asks
for a form, and everything else while that form is open; once all else is answered, it writes a
line to the pipe.
"""

import json
import sys
from typing import Any

QUESTIONS: dict[str, dict[str, Any]] = {
    "ping": {"method": "ping"},
    "ping with params": {"method": "ping", "params": {"_meta": {"a": 1}}},
    "roots": {"method": "roots/list"},
    "ping with a text": {"method": "ping", "params": "x"},
    "ping with a list": {"method": "ping", "params": [1]},
    "roots with a text": {"method": "roots/list", "params": "x"},
    "unknown": {"method": "odd/odd", "params": {"a": [1]}},
    "sampling": {
        "method": "sampling/createMessage",
        "params": {
            "maxTokens": 5,
            "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        },
    },
    "malformed sampling": {"method": "sampling/createMessage", "params": {"messages": "none"}},
    "malformed form": {"method": "elicitation/create", "params": {"message": 5}},
    "form without params": {"method": "elicitation/create"},
    "a method of ours": {"method": "tools/list", "params": {}},
}
FORM = {
    "method": "elicitation/create",
    "params": {
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
ABOUT: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "asks", "version": "1"},
}
GOT: dict[str, dict[str, Any]] = {}
WAITING: list[dict[str, Any]] = []


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)


def ask(state: str) -> None:
    """Ask everything, and wait until everything is answered. What else comes meanwhile
    is handled later.
    """
    got = GOT.setdefault(state, {})
    for name, question in QUESTIONS.items():
        send({"id": f"{state}/{name}", **question})

    while len(got) < len(QUESTIONS):
        message = receive()
        place, _, name = str(message.get("id")).partition("/")
        if place == state and "method" not in message:
            got[name] = message["error"]["code"] if "error" in message else message["result"]
        else:
            WAITING.append(message)


def call(number: Any) -> None:
    if len(sys.argv) > 1:
        send({"id": "form", **FORM})
        ask("while a form is open")
        with open(sys.argv[1], "w") as pipe:  # noqa: PTH123 - a server that starts at once
            pipe.write("all else is answered\n")

        while not any(one.get("id") == "form" for one in WAITING):
            WAITING.append(receive())

    ask("during a call")
    text = json.dumps(GOT)
    send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


def handle(message: dict[str, Any]) -> None:
    number = message.get("id")
    match message.get("method"):
        case "initialize":
            ask("before the handshake")
            send({"id": number, "result": ABOUT})
            ask("after the handshake")
        case "tools/list":
            ask("while listing")
            tool = {
                "name": "report",
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            }
            send({"id": number, "result": {"tools": [tool]}})
            ask("while idle")
        case "tools/call":
            call(number)
        case str() if number is not None:
            send({"id": number, "error": {"code": -32601, "message": "no such method"}})
        case _:
            pass


while True:
    handle(WAITING.pop(0) if WAITING else receive())
