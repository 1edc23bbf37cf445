"""An endpoint that is down, wrong or refuses the key: `doctor` says so, and a run's error
begins with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ideabridge.bridge import Bridge, Configuration, ModelConfiguration, RunFailedError
from ideabridge.bridge.minds.model import ModelMind
from ideabridge.tools import IdeabridgeError

pytestmark = pytest.mark.anyio


@contextmanager
def server(status: int, body: bytes) -> Generator[tuple[str, list[tuple[str, str]]]]:
    """A server that answers every GET alike; gives its address, and (path, key) of each request."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, str(self.headers.get("Authorization"))))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{served.server_port}/v1", asked
        finally:
            served.shutdown()
            thread.join()


def mind(url: str, **more: Any) -> ModelMind:
    return ModelMind(ModelConfiguration(name="openai:qwen3", base_url=url, **more))


async def test_a_server_says_which_models_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-key-1")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-somebody-else")
    listed = json.dumps({"object": "list", "data": [{"id": "qwen3"}, {"id": "phi"}, "?"]}).encode()
    with server(200, listed) as (url, asked):
        assert await mind(url, key_env="MY_KEY").models() == ["qwen3", "phi"]
        assert await mind(url).models() == ["qwen3", "phi"]

    assert [path for path, _ in asked] == ["/v1/models"] * 2
    assert asked[0][1] == "Bearer secret-key-1"
    assert "somebody" not in asked[1][1]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"{}", "answered 401: is the key right?"),
        (503, b"{}", "answered 503"),
        (200, b"<html>", "did not send JSON; is base_url right?"),
    ],
)
async def test_a_server_that_answers_otherwise_is_told(
    status: int, body: bytes, message: str
) -> None:
    with server(status, body) as (url, _), pytest.raises(IdeabridgeError) as error:
        await mind(url).models()
    assert message in str(error.value)


@pytest.mark.parametrize(("status", "body"), [(404, b""), (200, b"[]"), (200, b'{"data": 5}')])
async def test_a_server_without_a_list_is_no_fault(status: int, body: bytes) -> None:
    with server(status, body) as (url, _):
        assert await mind(url).models() is None


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens any more."""
    with server(200, b"{}") as (url, _):
        return url


async def test_a_server_that_is_down_is_the_headline(nowhere: str) -> None:
    with pytest.raises(
        IdeabridgeError, match=r"^the model endpoint at 127\.0\.0\.1:\d+ cannot be reached"
    ):
        await mind(nowhere).models()

    model = ModelConfiguration(name="openai:qwen3", base_url=nowhere, retries=0)
    async with Bridge(Configuration(model=model)) as bridge:
        run = await bridge.solve("x")
        with pytest.raises(RunFailedError) as error:
            await run.result()

        first = str(error.value).split("\n")[0]
        assert f"run {run.id}: stalled: the model endpoint cannot be reached at 127.0.0.1:" in first
        assert run.answer()["reason"].startswith(
            "the model endpoint cannot be reached at 127.0.0.1:"
        )
