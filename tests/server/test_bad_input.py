"""Bad input of every sort: a clear error that says what, where, and what was expected."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from .serving import call, command, refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"calls": 5}, ["calls", "expected"]),
        ({"calls": "not JSON"}, ["calls"]),
        ({}, ["calls"]),
        ({"calls": [5]}, ["calls[0]", "object"]),
        ({"calls": [{"a": 1}]}, ["_tool"]),
        ({"calls": [], "inputs": {}}, ["inputs"]),
        ({"calls": [], "input": [1]}, ["input", "object"]),
        ({"calls": [], "wait_s": -1}, ["wait_s", "0"]),
        ({"calls": [], "wait_s": 10_000}, ["wait_s", "600"]),
        ({"calls": [], "dry_run": "yes"}, ["dry_run"]),
        ({"calls": [{"_tool": "ad", "a": 1, "b": 2}]}, ["unknown tool 'ad'", "'add'"]),
        ({"calls": [{"_tool": "add", "_module": "gti", "a": 1, "b": 2}]}, ["unknown server 'gti'"]),
        ({"calls": [{"_tool": "add", "a": "†state.nowhere", "b": 2}]}, ["nowhere"]),
        ({"calls": [{"_tool": "add", "a": "$state.x", "b": 2}]}, ["†state.x"]),
        ({"calls": [{"_tool": "add", "a": "one", "b": 2}]}, ["a", "integer"]),
        ({"calls": [{"_tool": "add", "a": 1}]}, ["b"]),
        ({"calls": [], "output": "†state.nowhere"}, ["nowhere"]),
        ({"calls": [], "save_as": "No Name!"}, ["no_name"]),
        ({"calls": [], "save_as": "run_plan"}, ["run_plan", "choose another"]),
    ],
)
async def test_a_malformed_plan_is_refused(
    client: Client, arguments: dict[str, Any], told: list[str]
) -> None:
    said = await refused(client, "run_plan", **arguments)
    for word in told:
        assert word in said


async def test_a_cycle_is_named(client: Client) -> None:
    said = await refused(
        client,
        "run_plan",
        calls=[
            {"_tool": "add", "a": "†state.y", "b": 1, "_outputPath": "x"},
            {"_tool": "add", "a": "†state.x", "b": 1, "_outputPath": "y"},
        ],
    )
    assert "cycle" in said
    assert "calls[0]" in said or "add" in said


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("check_run", {"run": "run_none"}, "unknown run 'run_none'"),
        ("check_run", {"paths": ["†state.x"]}, "run"),
        ("submit_solution", {"run": "run_none", "turn": 0, "solution": {}}, "unknown run"),
        ("submit_solution", {"run": "run_none", "turn": "first", "solution": {}}, "turn"),
        ("decide_approval", {"run": "run_none", "decisions": []}, "decisions"),
        (
            "decide_approval",
            {"run": "run_none", "decisions": [{"approval": "a", "decision": "yes"}]},
            "approve",
        ),
        ("solve", {"task": ""}, "task"),
        ("solve", {"task": "x", "mind": "model"}, "turns"),
        ("solve", {"task": "x", "tools": ["nothing_like_it"]}, "nothing_like_it"),
        ("solve", {"task": "x", "limits": {"cals": 1}}, "calls"),
        ("solve", {"task": "x", "idea": "no_such_idea"}, "no_such_idea"),
        ("search_tools", {"words": "x", "module": "nowhere"}, "nowhere"),
        ("search_tools", {"words": "x", "limit": 0}, "limit"),
        ("publish_idea", {"idea": "none", "name": "x"}, "none"),
        ("publish_idea", {"idea": "none", "name": "Not Safe"}, "not_safe"),
        ("publish_idea", {"idea": "none", "name": "solve"}, "choose another"),
        (
            "publish_idea",
            {"idea": "none", "name": "x", "answer": "perhaps"},
            'expected one of "auto", "recorded"',
        ),
        ("publish_idea", {"idea": "none", "name": "x", "calls": "†input.x["}, "calls: "),
        ("publish_idea", {"idea": "none", "name": "x", "calls": [1]}, "calls: "),
        ("publish_idea", {"idea": "none", "name": "x", "calls": [1, 2, 3]}, "calls: "),
        ("publish_idea", {"idea": "none", "name": "x", "calls": ["0", 1]}, "calls.0: "),
        ("publish_idea", {"idea": "session", "name": "x", "calls": [1.5, 1]}, "calls.0: "),
        (
            "solve",
            {"task": "x", "tools": [f"*a{number}*" for number in range(101)]},
            "at most 100 patterns",
        ),
        ("run_plam", {}, "run_plan"),
        ("add", {"a": 1, "b": 2}, "run_plan"),
    ],
)
async def test_a_request_that_cannot_be_done_says_why(
    client: Client, name: str, arguments: dict[str, Any], told: str
) -> None:
    assert told in await refused(client, name, **arguments)


async def test_an_error_repeats_few_of_many_names(client: Client) -> None:
    said = await refused(
        client, "solve", task="x", tools=[f"no_{number}_{'x' * 1000}" for number in range(2_000)]
    )
    assert "no_0_x" in said
    assert "and 1,990 more" in said
    assert len(said) < 4_000


async def test_a_finished_run_takes_nothing_more(client: Client) -> None:
    run = (await call(client, "run_plan", calls=[{"_tool": "add", "a": 1, "b": 2}]))["run"]
    assert "ended" in await refused(
        client, "submit_solution", run=run, turn=0, solution={"calls": []}
    )
    said = await refused(
        client, "decide_approval", run=run, decisions=[{"approval": "x", "decision": "approve"}]
    )
    assert "ended" in said


async def test_arguments_of_ten_megabytes_are_refused(client: Client) -> None:
    said = await refused(client, "run_plan", calls=[], input={"x": "y" * 10_000_000})
    assert "10,000,0" in said
    assert "the limit is 8,388,608" in said


async def test_objects_written_as_text_are_read(client: Client) -> None:
    told = await call(
        client,
        "run_plan",
        calls=json.dumps([{"_tool": "add", "a": "†input.a", "b": 2, "_outputPath": "s"}]),
        input='{"a": 1}',
    )
    assert told["state"] == {"s": 3}


# -- below the SDK's client: what it would not send ------------------------------------------------


class Raw:
    """A server on stdio, spoken to in bytes."""

    def __init__(self, configuration: Path) -> None:
        self.process = subprocess.Popen(
            command(configuration),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.ask(
            {
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "raw", "version": "1"},
                },
            }
        )
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode() + b"\n")
        return self.answer()

    def end(self) -> tuple[bytes, bytes]:
        return self.process.communicate(timeout=30)


def called(arguments: str, request_id: int = 7) -> bytes:
    head = f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":{{"name":"run_plan","arguments":'
    return f"{head}{arguments}}}}}\n".encode()


def test_what_is_no_request_is_answered_and_the_server_lives(configuration: Path) -> None:
    raw = Raw(configuration)
    raw.send(called("[" * 10_000 + "]" * 10_000))
    deep = raw.answer()
    assert deep["id"] == 7
    assert deep["result"]["isError"] is True
    assert "is nested deeper than" in deep["result"]["content"][0]["text"]
    # The id is at the end, where other SDKs write it.
    tail = (
        b'{"method":"tools/call","params":{"name":"x","arguments":{"a":' + b"[" * 500 + b"]" * 500
    )
    raw.send(tail + b'}},"jsonrpc":"2.0","id":"eight"}\n')
    assert raw.answer()["id"] == "eight"
    raw.send(called('{"calls": [], "input": {"x": "' + "y" * 20_000_000 + '"}}', 9))
    large = raw.answer()
    assert large["id"] == 9
    assert "20,0" in large["result"]["content"][0]["text"]
    raw.send(b"this is no JSON\n")
    assert raw.answer()["error"]["code"] == -32700
    raw.send(called("[1, 2]", 10))
    listed = raw.answer()
    assert listed["result"]["isError"] is True
    assert "expected an object, found list" in listed["result"]["content"][0]["text"]
    raw.send(called('{"calls": [], "input": {"x": NaN}}', 11))
    assert "JSON" in raw.answer()["result"]["content"][0]["text"]
    raw.send(called('{"calls": [], "input": {"x": "\\ud800"}}', 12))
    assert raw.answer()["id"] == 12
    raw.send(called('{"calls": [], "input": {"x": "\xff"}}', 13).replace(b"\xc3\xbf", b"\xff"))
    assert raw.answer()["id"] == 13
    raw.send(b"\n   \n" + called('{"calls": []}', 14))
    assert raw.answer()["id"] == 14
    out, _ = raw.end()
    assert out == b""


def test_http_refuses_with_a_reason(shared_url: str) -> None:
    def post(body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            shared_url,
            body,
            {
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
                **headers,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            content = error.read()
            return error.code, json.loads(content) if content.startswith(b"{") else {
                "text": content.decode()
            }

    status, told = post(called("[" * 10_000 + "]" * 10_000))
    assert status == 200
    assert "is nested deeper" in told["result"]["content"][0]["text"]
    status, told = post(b'{"jsonrpc":"2.0","id":3,"method":"x","params":' + b"[" * 10_000)
    assert (status, told["id"]) == (400, 3)
    status, told = post(b"x" * 17_000_000)
    assert status == 413
    assert "the limit is 16,777,216" in told["error"]["message"]
    assert post(b"{}", host="evil.example")[0] == 421
    assert post(b"{}", origin="http://evil.example")[0] == 403
