"""Private names of other packages: each stands in one module, and a release without it
is noticed here.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import httpx
import httpx2
import pytest

ROOT = Path(__file__).parent.parent
SDK = ROOT / "bridge/ideabridge/bridge/modules/sdk.py"
WIRE = ROOT / "bridge/ideabridge/bridge/minds/wire.py"
PRIVATE = re.compile(r"^\s*(?:from|import)\s+(mcp|pydantic_ai)(?:[.]\w+)*[.]_\w+", re.MULTILINE)


def test_private_modules_are_imported_in_one_place() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): one
        for part in ("tools", "bridge", "server")
        for path in (ROOT / part).rglob("*.py")
        for one in PRIVATE.findall(path.read_text(encoding="utf-8"))
    }
    assert found == {SDK.relative_to(ROOT).as_posix(): "mcp"}


def test_the_private_client_of_pydantic_ai_is_named_in_one_place() -> None:
    using = [
        path
        for part in ("tools", "bridge", "server")
        for path in (ROOT / part).rglob("*.py")
        if "_own_http_client" in path.read_text(encoding="utf-8")
    ]
    assert using == [WIRE]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mcp.client._transport", "ReadStream"),
        ("mcp.client._transport", "TransportStreams"),
        ("mcp.client._transport", "WriteStream"),
        ("mcp.shared._request_clock", "waiting_on_a_person"),
    ],
)
def test_the_sdk_still_has_its_private_names(module: str, name: str) -> None:
    assert hasattr(import_module(module), name), (
        f"{module}.{name} is gone: adapt {SDK.relative_to(ROOT)}"
    )


@pytest.mark.parametrize("kind", ["openai-compatible", "openai", "anthropic"])
def test_pydantic_ai_still_has_its_private_client(kind: str) -> None:
    providers = import_module("pydantic_ai.providers")
    try:
        made = providers.infer_provider_class(kind if kind != "openai-compatible" else "openai")
        if "openai" in kind:
            provider = made(api_key="none", base_url="http://127.0.0.1:9/v1")
        else:
            provider = made(api_key="none")
    except ImportError as error:
        pytest.skip(f"the package of {kind} is not installed: {error}")

    client = getattr(provider, "_own_http_client", None)
    assert isinstance(client, httpx.AsyncClient | httpx2.AsyncClient), (
        f"the provider {kind} has no `_own_http_client` any more: without it the sizes of answers "
        f"have no bound; adapt `bind` in {WIRE.relative_to(ROOT)}"
    )
