"""Secrets of the configuration do not come back from a module that says its own in
every way it can.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import random
import re
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from ideabridge.bridge import Bridge, parse_configuration
from ideabridge.bridge.runs.people import ApprovalRequest, Decision
from ideabridge.bridge.secrets import Secrets, clean_logs, clean_record
from ideabridge.tools.encoding import JSON
from tests.server.serving import (
    ERAS,
    all_tools,
    call,
    command,
    configured,
    http_process,
    over_stdio,
    structured,
)

from .leaking import encoded

pytestmark = pytest.mark.anyio

SECRET = "swordfish/7+chips~and=peas"
LEAKING = Path(__file__).with_name("leaking.py")


def leaking() -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-I", str(LEAKING)], "env": {"API_TOKEN": SECRET}}


def held(text: str) -> list[str]:
    """In which ways a text holds the secret, whoever looks for it."""
    found = [name for name, form in encoded(SECRET).items() if form in text]
    if SECRET in unquote(text):
        found.append("unquoted")

    for part in re.findall(r"[A-Za-z0-9+/_-]{8,}", text):
        for cut in range(4):
            whole = part[cut:].replace("-", "+").replace("_", "/")
            try:
                plain = base64.b64decode(whole + "A" * (-len(whole) % 4))
            except ValueError:
                continue
            if SECRET.encode()[2:-2] in plain:
                found.append(f"in base64: {part[:40]}")

    return found


def test_the_test_finds_what_it_looks_for() -> None:
    assert all(held(f"before {form} after") for form in encoded(SECRET).values())
    assert held("nothing [secret:API_TOKEN] here") == []


# -- encodings -------------------------------------------------------------------------------------


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40),
    st.binary(max_size=5),
)
@example("00000\\0", b"")
@example('quoted"one', b"")
@settings(max_examples=200)
def test_encodings_of_a_secret_are_found(value: str, around: bytes) -> None:
    secrets = Secrets()
    secrets.add("API_TOKEN", value, certain=True)
    if not secrets.mask(value).startswith("[secret:"):
        return

    data = value.encode()
    for name, form in encoded_anywhere(value, around):
        for text in (form, f"see {form} there"):
            masked = secrets.mask(text)
            assert "[secret:API_TOKEN]" in masked, name
            result: JSON = {"a": [text]}
            assert "[secret:API_TOKEN]" in json.dumps(secrets.redact(result)), name
            assert secrets.places(result) == [("a.0", "API_TOKEN")], name

    assert data


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("width", [64, 76])
def test_a_secret_is_found_in_base64_that_is_written_in_lines(end: str, width: int) -> None:
    secrets = Secrets()
    long = "-".join(f"part{number}" for number in range(60))
    for value in (SECRET, long):
        secrets.add("API_TOKEN", value, certain=True)
        for before in range(70):
            data = base64.b64encode(b"x" * before + value.encode() + b"y" * 90).decode()
            text = end.join(data[place : place + width] for place in range(0, len(data), width))
            masked = secrets.mask(f"first\nsecond\n{text}{end}last")
            assert masked.startswith("first\nsecond\n"), before
            assert masked.endswith(f"{end}last"), before
            assert masked.count("[secret:API_TOKEN]") == 1, before
            # Nothing is left except the characters that also encode a neighbouring byte.
            first = before * 4 // 3 + 2
            last = (before + len(value.encode())) * 4 // 3 - 2
            assert data[first:last][:9] not in masked, before
            assert data[first:last][-9:] not in masked, before
            assert "[secret:API_TOKEN]" in str(secrets.redact({"a": [f"see {text}"]})), before

    assert secrets.mask("a" * 64 + "\n" + "b" * 64) == "a" * 64 + "\n" + "b" * 64


def test_a_secret_is_found_as_forms_write_it() -> None:
    secrets = Secrets()
    secrets.add("PASSPHRASE", "correct horse/battery staple", certain=True)
    assert secrets.mask("p=correct+horse%2Fbattery+staple&x=1") == "p=[secret:PASSPHRASE]&x=1"


def encoded_anywhere(value: str, around: bytes) -> list[tuple[str, str]]:
    data = value.encode()
    found = [
        ("hex", data.hex()),
        ("HEX", (around + data).hex().upper()),
        ("percent", "".join(f"%{byte:02X}" for byte in data)),
        ("lower percent", "".join(f"%{byte:02x}" for byte in data)),
        (
            "half percent",
            "".join(c if n % 2 and c != "%" else quoted(c) for n, c in enumerate(value)),
        ),
        ("json", json.dumps(value)),
        ("json within json", json.dumps({"a": value}, ensure_ascii=False)),
    ]
    for whole in (data, around + data, data + around, around + data + around):
        found.append(("base64", base64.b64encode(whole).decode()))
        found.append(("url-safe base64", base64.urlsafe_b64encode(whole).decode().rstrip("=")))
    return found


def quoted(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode())


def test_short_and_ordinary_values_are_not_masked_absurdly() -> None:
    secrets = Secrets()
    for name, value in {
        "PIN": "1234",
        "API_KEY": "abcde",
        "MODE": "production",
        "PORT": "8080",
        "AUTH": "basic",
    }.items():
        secrets.add_env(name, value)

    text = "1234 abcde production 8080 basic YWJjZGU= 6162636465 MTIzNA=="
    assert secrets.mask(text) == text
    secrets.add_env("API_KEY", "abcdef")
    # In base64, the form of six characters occurs by chance no more often than the characters
    # themselves.
    picture = base64.b64encode(random.Random(7).randbytes(3_000_000)).decode()
    assert secrets.mask(picture) == picture
    assert secrets.redact({"data": picture}) == {"data": picture}


def test_overlapping_encodings_leave_nothing_between() -> None:
    secrets = Secrets()
    secrets.add("A", "alpha-beta-gamma", certain=True)
    secrets.add("B", "gamma-delta-epsilon", certain=True)
    for text in ("alpha-beta-gamma-delta-epsilon", "alpha-beta-%67amma-delta-epsilon"):
        assert secrets.mask(f"x {text} y") == "x [secret:A] y"
    assert secrets.mask("half \ud800 alpha-beta-gamma") == "half \ud800 [secret:A]"


# -- what a module says ----------------------------------------------------------------------------


async def test_listings_names_and_notes_of_a_module_hold_no_secret() -> None:
    async with Bridge(parse_configuration({"mcpServers": {"leaky": leaking()}})) as bridge:
        await bridge.modules["leaky"].ready(20)
        told = json.dumps([tool.to_json() for tool in bridge.modules.tools()])
        assert "[secret:API_TOKEN]" in told
        status = repr(bridge.modules["leaky"].status())
        assert status.count("[secret:API_TOKEN]") > 5
        assert held(told) == []
        assert held(status) == []
        assert "a tool is left out" in status


@pytest.mark.parametrize("name", ["say", "fail", "refuse", "structured", "die"])
async def test_whatever_a_call_brings_holds_no_secret(name: str, tmp_path: Path) -> None:
    said: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append(str(message))

    configuration = parse_configuration({"mcpServers": {"leaky": leaking()}})
    async with Bridge(configuration, store=tmp_path / "store.sqlite") as bridge:
        await bridge.modules["leaky"].ready(20)
        try:
            said.append(json.dumps(await bridge.modules["leaky"].call(name, {}, progress=heard)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            said.append("".join(traceback.format_exception(error)))

        run = await bridge.run_plan({"calls": [{"_tool": name}]})
        await run.wait(20)
        said.append(json.dumps(run.answer(whole=True)))

    assert "[secret:API_TOKEN]" in "".join(said)
    assert held("".join(said)) == []
    assert held(kept(tmp_path)) == []


def kept(folder: Path) -> str:
    return "".join(
        file.read_bytes().decode("utf-8", "replace") for file in folder.glob("store.sqlite*")
    )


async def test_what_a_module_asks_holds_no_secret(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return Decision("deny")

    configuration = parse_configuration({"mcpServers": {"leaky": leaking()}})
    async with Bridge(configuration, approver=approver, store=tmp_path / "store.sqlite") as bridge:
        await bridge.modules["leaky"].ready(20)
        run = await bridge.run_plan({"calls": [{"_tool": "ask"}]})
        assert await run.wait(20) == "done"

    (request,) = asked
    told = json.dumps(request.question)
    assert "[secret:API_TOKEN]" in told
    assert held(told) == []
    assert held(kept(tmp_path)) == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_is_told_no_secret(tmp_path: Path, era: str) -> None:
    said: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append(str(message))

    configuration = configured(tmp_path, mcpServers={"leaky": leaking()}, expose=["modules"])
    async with over_stdio(configuration, era) as client:
        await call(
            client, "run_plan", calls=[{"_tool": "say", "_module": "leaky", "_outputPath": "said"}]
        )
        said += [tool.model_dump_json() for tool in (await all_tools(client)).values()]
        with pytest.raises(MCPError) as refused:
            await client.call_tool("refuse", {"x": "y"}, progress_callback=heard)

        said.append(refused.value.error.model_dump_json())
        for name in ("say", "fail", "structured", "die"):
            result = await client.call_tool(name, {"x": "y"}, progress_callback=heard)
            said.append(result.model_dump_json())

        said.append(json.dumps(await call(client, "search_tools", words="say")))

    assert "[secret:API_TOKEN]" in "".join(said)
    assert held("".join(said)) == []


async def test_the_token_of_the_server_is_a_secret_like_any_other(tmp_path: Path) -> None:
    echo = {"calls": [{"_tool": "count_words", "text": SECRET}]}
    with http_process(configured(tmp_path), IDEABRIDGE_TOKEN=SECRET) as url:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {SECRET}"}) as http,
            Client(
                streamable_http_client(url, http_client=http),
                mode="legacy",
                read_timeout_seconds=60,
            ) as client,
        ):
            result = await client.call_tool("run_plan", echo)
            assert result.is_error
            assert "contains the secret IDEABRIDGE_TOKEN" in str(result.content)
            assert held(result.model_dump_json()) == []
            failed = await client.call_tool("run_plan", {"calls": [{"_tool": "process"}]})
            assert structured(failed)["status"] == "done"

    assert held(kept(tmp_path)) == []


# -- logs ------------------------------------------------------------------------------------------


@pytest.fixture
def records() -> Any:
    before = logging.getLogRecordFactory()
    yield clean_logs
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize(
    "name",
    ["mcp.client", "httpx", "uvicorn.error", "asyncio", "ideabridge.bridge.runs.observed", "root"],
)
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.ERROR])
def test_no_log_record_holds_a_secret_or_a_control_character(
    records: Any, name: str, level: int
) -> None:
    secrets = Secrets()
    secrets.add_header("Authorization", f"Bearer {SECRET}")
    records()
    stream = io.StringIO()
    # This handler is added later, and has no filter of its own.
    handler = logging.StreamHandler(stream)
    logger = logging.Logger(name, level)
    logger.addHandler(handler)
    try:
        raise ValueError(f"{SECRET} \x1b[2J\u202e")
    except ValueError:
        logger.log(
            level, "sent %r\x1b]0;owned\x07", encoded(SECRET), exc_info=True, stack_info=True
        )

    logger.log(level, "%d of %s", "not a number", SECRET)
    written = stream.getvalue()
    # Other configurations in this process have the same secret under other names.
    assert re.search(r"ValueError: \[secret:\w+\] \\u001b\[2J\\u202e", written)
    assert "Traceback" in written
    assert held(written) == []
    assert not re.search("[\x1b\x07\u202e]", written)


def test_a_handler_of_an_embedding_program_takes_the_filter_itself() -> None:
    mine = Secrets()
    other = Secrets()
    mine.add("MINE", SECRET, certain=True)
    other.add("OTHER", "another-secret-1", certain=True)
    record = logging.LogRecord("x", logging.ERROR, "", 1, f"{SECRET} another-secret-1", None, None)
    assert clean_record(record)
    assert re.fullmatch(r"\[secret:\w+\] \[secret:OTHER\]", record.getMessage())


async def test_stderr_of_a_server_holds_no_secret_and_no_control_character(tmp_path: Path) -> None:
    # Use a separate logger for each text, because only a few of several similar records are
    # written.
    log = (
        "import logging\n\n\ndef speak(x: str) -> None:\n    "
        'logging.getLogger(f"mcp.{hash(x)}").error("%s", x)\n'
    )
    (tmp_path / "speaking.py").write_text(
        "from ideabridge.tools import "
        f"tool\n{log}\n\n@tool(read_only=True)\ndef shout(x: str) -> str:\n"
        '    """Log it."""\n    speak(x + "\\x1b[2J")\n    return x\n'
    )
    servers = {"leaky": {**leaking(), "disabled": True}}
    configuration = configured(
        tmp_path, mcpServers=servers, tools=[str(tmp_path / "speaking.py")], expose=["tools"]
    )
    with (tmp_path / "stderr").open("w") as stderr:
        program, *arguments = command(configuration)
        parameters = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
        async with Client(
            stdio_client(parameters, errlog=stderr), mode="legacy", read_timeout_seconds=60
        ) as client:
            for form in encoded(SECRET).values():
                result = await client.call_tool("shout", {"x": form})
                assert not result.is_error, result
                # The result of a tool file is a result like any other.
                assert held(result.model_dump_json()) == []

    written = await anyio.Path(tmp_path / "stderr").read_text()
    assert written.count("[secret:API_TOKEN]") >= len(encoded(SECRET))
    assert held(written) == []
    assert "\x1b" not in written
