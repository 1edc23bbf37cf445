"""Logs of servers: what a server writes must not put a secret into a file, not even a part."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ideabridge.bridge.modules.server_log import MAX_BYTES, MAX_LINE, ServerLog
from ideabridge.bridge.secrets import Secrets
from ideabridge.tools.encoding import JSONObject

CONFIGURED = "correct horse battery staple 42"
TOKEN = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


@pytest.mark.parametrize("secret", [CONFIGURED, TOKEN], ids=["configured", "of a known form"])
@pytest.mark.parametrize(
    "message",
    [
        {"logger": "SECRET", "data": "text"},
        {"logger": "x " * 45 + "SECRET", "data": "text"},
        {"data": "x " * (MAX_LINE // 2 - 5) + "SECRET"},
        {"data": ["x " * (MAX_LINE // 2 - 5) + "SECRET"]},
        {"data": {"x": 1, "y " * (MAX_LINE // 2 - 8) + "SECRET": 2}},
        {"data": {"one": {"of": ["SECRET"]}}},
    ],
    ids=["origin", "cut origin", "cut text", "cut list", "cut key", "members"],
)
def test_no_part_of_a_secret_is_in_a_message(
    tmp_path: Path, message: JSONObject, secret: str
) -> None:
    secrets = Secrets()
    secrets.add("PASSPHRASE", CONFIGURED, certain=True)
    path = tmp_path / "log.jsonl"
    text = json.dumps({"level": "info", **message}).replace("SECRET", secret)
    ServerLog(path).add_message(json.loads(text))
    _check(path, secret)


@pytest.mark.parametrize("secret", [CONFIGURED, TOKEN], ids=["configured", "of a known form"])
def test_no_part_of_a_secret_is_at_the_end_of_a_cut_line(tmp_path: Path, secret: str) -> None:
    secrets = Secrets()
    secrets.add("PASSPHRASE", CONFIGURED, certain=True)
    path = tmp_path / "log.jsonl"
    log = ServerLog(path)
    for length in range(0, len(secret) + 2, 3):
        log.add("stderr", ["x " * ((MAX_LINE - length) // 2) + secret])
    _check(path, secret)


def _check(path: Path, secret: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines
    for line in lines:
        # Eight characters in a row would reveal a part of the secret.
        assert not any(secret[at : at + 8] in line for at in range(len(secret) - 7))
        assert len(json.loads(line)["text"]) <= MAX_LINE


def test_a_server_that_floods_its_log_costs_no_search(tmp_path: Path) -> None:
    log = ServerLog(tmp_path / "log.jsonl")
    began = time.process_time()
    for _ in range(5_000):
        log.add("stderr", ["word " * 12_000])
    assert time.process_time() - began < 5
    log.add("stderr", ["last"])
    assert (tmp_path / "log.jsonl").stat().st_size < MAX_BYTES
