"""Secrets, expansion, and lines: the pure parts."""

import io
import json
import logging
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ideabridge.bridge.modules.errors import ModuleConfigurationError, shown
from ideabridge.bridge.modules.settings import Launch, ModuleConfiguration, expand
from ideabridge.bridge.modules.stdio import Lines, LongLine
from ideabridge.bridge.secrets import Secrets, clean_record
from ideabridge.tools.encoding import JSON

ENVIRON = {
    "TOKEN": "sesame-open-now",
    "EMPTY": "",
    "PROJECT": "demo-project",
    "HOME": "/home/somebody",
}


def fill(secrets: Secrets | None = None, **keys: Any) -> Launch:
    configuration = ModuleConfiguration(**keys)
    with mock.patch.dict(os.environ, ENVIRON, clear=True):
        return expand("m", configuration, Path("/base"), None, secrets or Secrets())


def test_variables_are_filled_in_everywhere() -> None:
    launch = fill(
        command="${HOME}/bin/x",
        args=("--p=${PROJECT}", "${NO:-d}", "${EMPTY:-e}", "$${TOKEN}", "$TOKEN"),
        env={"A": "x${TOKEN}y"},
        cwd="sub",
    )
    assert launch.command == "/home/somebody/bin/x"
    assert launch.args == ("--p=demo-project", "d", "e", "${TOKEN}", "$TOKEN")
    assert launch.env == {"A": "xsesame-open-nowy"}
    assert launch.cwd == "/base/sub"
    assert fill(command="./x").command == "/base/x"
    assert (
        fill(url="${NO:-http}://x/${PROJECT}", headers={"A": "Bearer ${TOKEN}"}).url
        == "http://x/demo-project"
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"command": "${NO}"},
            r"^mcpServers\.m\.command: the variable NO is not set; .* default: \$\{NO:-\.\.\.\}",
        ),
        ({"command": "x", "args": ("a", "${NO}")}, r"^mcpServers\.m\.args\.1: "),
        (
            {"command": "x", "args": ("${NO}${NOR}",), "env": {"A": "${NO}", "B": "${NEVER}"}},
            (
                r"^mcpServers\.m\.args\.0, env\.B: the variables NO, NOR and NEVER are not set; "
                r"set them before ideabridge"
            ),
        ),
        ({"command": "${workspaceFolder}/x"}, "use a path relative to the configuration file"),
        (
            {"command": "x", "env": {"A": "${env:TOKEN}"}},
            r"m\.env\.A: \$\{env:TOKEN\} .*: write \$\{TOKEN",
        ),
        (
            {"url": "http://x", "headers": {"A": "${input:key}"}},
            "ideabridge does not ask for values",
        ),
        ({"url": "http://x", "headers": {"A": "a\nb"}}, "printable ASCII"),
        ({"url": "http://x", "headers": {"A b": "c"}}, "not a valid header name"),
        ({"url": "${PROJECT}"}, "expected an address"),
        ({"command": "x", "env": {"A=B": "c"}}, "not a valid variable name"),
    ],
)
def test_what_cannot_be_filled_in_is_told_with_its_place(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ModuleConfigurationError, match=words):
        fill(**keys)


def test_expansion_tells_secrets() -> None:
    secrets = Secrets()
    fill(
        secrets,
        command="x",
        args=("${TOKEN}", "${PROJECT}"),
        env={"LIB": "${HOME}/lib", "PW": "hunter2-hunter2"},
    )
    fill(
        secrets,
        url="https://me:open%20sesame@x/?api_key=k-12345678",
        headers={"X-Key": "Bearer abc.def.ghi"},
    )
    assert secrets.mask("sesame-open-now demo-project /home/somebody/lib hunter2-hunter2") == (
        "[secret:TOKEN] demo-project /home/somebody/lib [secret:PW]"
    )
    assert secrets.mask("open%20sesame open sesame k-12345678 abc.def.ghi") == (
        "[secret:url] [secret:url] [secret:url] [secret:X-Key]"
    )


def test_longer_secrets_win_and_short_or_harmless_values_stay() -> None:
    secrets = Secrets()
    for name, value in {
        "A": "secret",
        "B": "secret-and-more",
        "C": "abc",
        "D": "production",
        "E": "1234567",
    }.items():
        secrets.add_env(name, value)
    secrets.add_env("API_KEY", "7654321")
    assert secrets.mask("secret-and-more secrets abc production 1234567 7654321") == (
        "[secret:B] [secret:A]s abc production 1234567 [secret:API_KEY]"
    )
    assert secrets.mask("Authorization: Bearer abcdefgh12345") == "Authorization: Bearer [secret]"


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("limit", [50, 4096])
def test_no_text_that_is_cut_ends_with_a_part_of_a_secret(limit: int, times: int) -> None:
    secret = "ghp_9f3KxQ27LmZp41TvWc08RbYn65SdH"
    secrets = Secrets()
    secrets.add("TOKEN", secret)
    percent = "".join(f"%{byte:02X}" for byte in secret.encode())
    for form in (secret, percent, secret.encode().hex()):
        for shown_part in (1, 7, len(form) - 1):
            # Masking shortens the text before this, so that more of the text would fit.
            room = limit * times - shown_part
            before = percent * (room // len(percent))
            text = before + "x" * (room - len(before)) + form + "y" * limit
            said = shown(text, secrets, limit)
            assert form[:6] not in said.replace(percent, "")
            assert len(said) < limit + 50


def test_results_lose_certain_secrets_only() -> None:
    secrets = Secrets()
    secrets.add_env("MODE", "careful-mode")
    secrets.add_header("Authorization", 'Bearer to"ken"-1')
    value: Any = {"a": ["careful-mode", 'x to"ken"-1 y'], "n": 1}
    assert secrets.redact(value) == {"a": ["careful-mode", "x [secret:Authorization] y"], "n": 1}
    harmless: Any = {"a": 1}
    assert secrets.redact(harmless) is harmless
    assert secrets.mask("careful-mode") == "[secret:MODE]"


def test_logs_lose_secrets_in_messages_and_tracebacks() -> None:
    # Use a value that no other test uses, because log records also lose the secrets of other
    # configurations in this process, under their names.
    secrets = Secrets()
    secrets.add_header("Authorization", "Bearer sesame-of-this-log")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(clean_record)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError("sesame-of-this-log")
    except ValueError:
        logger.exception("failed with %s", "sesame-of-this-log")

    assert "sesame" not in stream.getvalue()
    assert "failed with [secret:Authorization]" in stream.getvalue()
    assert "ValueError: [secret:Authorization]" in stream.getvalue()


@given(st.lists(st.binary(max_size=40)), st.integers(1, 30))
def test_lines_are_those_of_the_stream_however_it_is_cut(chunks: list[bytes], limit: int) -> None:
    lines = Lines(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    rest = lines.rest()
    expected = b"".join(chunks).split(b"\n")
    last = expected.pop()
    assert (rest is not None) == bool(last)
    for got, want in zip(
        [*found, *([rest] if rest is not None else [])], [*expected, last], strict=False
    ):
        if len(want) > limit:
            assert got == LongLine(want[:512], want[-512:], len(want))
        else:
            assert got == want.removesuffix(b"\r")

    assert len(found) == len(expected)


@pytest.mark.parametrize(
    "value", ['-----BEGIN KEY-----\nab"cd\\ef\n-----END', 'pässword"12', "passwörd-twelve"]
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_inside_json_text_inside_a_result_is_found(value: str, ascii_only: bool) -> None:
    secrets = Secrets()
    secrets.add("API_TOKEN", value, certain=True)
    for text in (value, json.dumps({"key": value}, ensure_ascii=ascii_only)):
        result: JSON = {"content": [{"text": f"it is {text}"}]}
        assert secrets.places(result) == [("content.0.text", "API_TOKEN")]
        assert "[secret:API_TOKEN]" in json.dumps(secrets.redact(result))

    assert secrets.places({"text": "nothing"}) == []


def test_ordinary_words_are_no_secrets_whatever_they_are_called() -> None:
    secrets = Secrets()
    secrets.add_env("AUTH_CACHE", "enabled")
    secrets.add_env("SESSION_STORE", "default")
    secrets.add_header("X-Environment", "production")
    secrets.add_url("DATABASE", "https://default@db.example")
    assert secrets.places({"task": "the default is enabled in production"}) == []
    assert (
        secrets.mask("the default is enabled in production")
        == "the default is enabled in production"
    )
