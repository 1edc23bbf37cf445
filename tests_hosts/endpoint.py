"""A model that is a script, behind the wire formats of OpenAI (Responses, Chat Completions),
Anthropic and Gemini.

A host asks it like any model. It answers with the calls that a generator yields, and sends the
generator their results.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

Step = tuple[str, dict[str, Any]]
"""A tool of ideabridge, by its own name, and the arguments of a call of it."""

Play = Callable[["ScriptedModel"], Generator[Step, str, None]]
"""Yields calls, and is sent the text of each result."""


class ScriptedModel:
    """Plays a script to one host.

    Attributes:
        offered: the tools in the latest request that has any, by the names the host gives them: the
            wire form of each.
        failure: what ended the script before its end.
        finished: whether the script came to its end.
    """

    def __init__(self, play: Play) -> None:
        self.offered: dict[str, dict[str, Any]] = {}
        self.failure: AssertionError | None = None
        self.finished = False
        self._script = play(self)
        self._lock = threading.Lock()
        self._answered = 0
        self._next: Step | None = None

    def named(self, tool: str) -> str | None:
        """The name a host has given to a tool of ideabridge; None: it does not offer the tool."""
        found = [
            name for name in self.offered if name == tool or name.endswith((f"_{tool}", f"/{tool}"))
        ]
        return min(found, key=len, default=None)

    def step(self, results: list[str], offered: dict[str, dict[str, Any]]) -> Step | None:
        """The next call, under the host's name for the tool, or None: there is nothing more to do.

        Args:
            results: the texts of all results the conversation has.
            offered: the tools of the request.
        """
        with self._lock:
            if not offered or self.finished or self.failure is not None:
                return None
            self.offered = offered
            try:
                if self._next is None:
                    self._next = next(self._script)
                elif len(results) > self._answered:
                    self._answered = len(results)
                    self._next = self._script.send(results[-1])
            except StopIteration:
                self.finished = True
                return None
            except AssertionError as error:
                self.failure = error
                return None
            tool, arguments = self._next
            return self.named(tool) or tool, arguments

    @contextmanager
    def serving(self) -> Generator[str]:
        """The address of an endpoint that plays this script."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, model: ScriptedModel, *given: Any) -> None:
        self.model = model
        super().__init__(*given)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the class above names it
        """Says nothing."""

    def do_GET(self) -> None:
        """Lists of models, which some hosts ask for."""
        self._send("application/json", json.dumps({"object": "list", "data": [], "models": []}))

    def do_POST(self) -> None:
        """One request to the model."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        path = self.path.split("?")[0]
        if path.endswith("/responses"):
            self._stream(_responses(self.model, body))
        elif path.endswith("/chat/completions"):
            self._stream(_completions(self.model, body))
        elif path.endswith("/messages") and body.get("stream"):
            self._stream(_messages(self.model, body), named=True)
        elif path.endswith(":streamGenerateContent"):
            self._stream([_gemini(self.model, body)])
        else:
            self._send("application/json", json.dumps(_gemini(self.model, body)))

    def _stream(self, events: list[dict[str, Any]], *, named: bool = False) -> None:
        names = [f"event: {one['type']}\n" if named else "" for one in events]
        lines = [
            f"{name}data: {json.dumps(one)}\n\n" for name, one in zip(names, events, strict=True)
        ]
        self._send("text/event-stream", "".join(lines))

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(one) for one in cast("list[Any]", value))
    if isinstance(value, dict) and "text" in value:
        return str(cast("dict[str, Any]", value)["text"])
    return json.dumps(value, ensure_ascii=False)


def _responses(model: ScriptedModel, body: dict[str, Any]) -> list[dict[str, Any]]:
    """OpenAI's Responses; tools stand in namespaces or directly."""
    results = [
        _text(one["output"]) for one in body["input"] if one.get("type") == "function_call_output"
    ]
    offered: dict[str, dict[str, Any]] = {}
    places: dict[str, dict[str, str]] = {}
    for tool in body.get("tools", []):
        for one in tool.get("tools", [tool]):
            if one["type"] == "function":
                within = "tools" in tool
                name = f"{tool['name']}__{one['name']}" if within else one["name"]
                offered[name] = one
                places[name] = {
                    "name": one["name"],
                    **({"namespace": tool["name"]} if within else {}),
                }

    step = model.step(results, offered)
    number = f"{len(results)}"
    item: dict[str, Any] = {"id": f"item_{number}", "status": "completed"}
    if step is None:
        words: dict[str, Any] = {"type": "output_text", "text": "Done.", "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [words]}
    else:
        place = places.get(step[0], {"name": step[0]})
        item |= {
            "type": "function_call",
            "call_id": f"call_{number}",
            **place,
            "arguments": json.dumps(step[1]),
        }

    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": f"resp_{number}", "object": "response", "created_at": 0, "model": "scripted"}
    return [
        {
            "type": "response.created",
            "response": {**response, "status": "in_progress", "output": []},
        },
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]


def _completions(model: ScriptedModel, body: dict[str, Any]) -> list[dict[str, Any]]:
    """OpenAI's Chat Completions, streamed."""
    results = [_text(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    step = model.step(
        results, {one["function"]["name"]: one["function"] for one in body.get("tools", [])}
    )
    delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if step is not None:
        function = {"name": step[0], "arguments": json.dumps(step[1])}
        made = {"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [made]}

    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    reason = "stop" if step is None else "tool_calls"
    return [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]


def _messages(model: ScriptedModel, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Anthropic's Messages, streamed."""
    contents = [one["content"] for one in body["messages"] if isinstance(one["content"], list)]
    blocks = [block for content in contents for block in content]
    results = [_text(one.get("content", "")) for one in blocks if one.get("type") == "tool_result"]
    offered = {
        one["name"]: {**one, "parameters": one.get("input_schema")} for one in body.get("tools", [])
    }
    step = model.step(results, offered)
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Done."}
    if step is not None:
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": step[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step[1])}

    reason = "end_turn" if step is None else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    answer = {
        "id": f"msg_{len(results)}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
    }
    return [
        {
            "type": "message_start",
            "message": {**answer, "content": [], "stop_reason": None, "usage": usage},
        },
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def _gemini(model: ScriptedModel, body: dict[str, Any]) -> dict[str, Any]:
    """Gemini's generateContent."""
    parts = [part for content in body.get("contents", []) for part in content.get("parts", [])]
    answers = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    tools = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
    step = model.step(
        [_text(one.get("output", one)) for one in answers],
        {one["name"]: {**one, "parameters": one.get("parametersJsonSchema")} for one in tools},
    )
    part: dict[str, Any] = {"text": "Done."}
    if step is not None:
        part = {"functionCall": {"name": step[0], "args": step[1]}}

    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    }
