"""The client that the official conformance suite starts: the connector of the bridge, with a person
who always agrees.

    python tests/conformance/client.py URL

It connects to the module at URL, lists what the module offers, and calls every tool that the
connector lists: with the arguments that the suite gives (MCP_CONFORMANCE_CONTEXT), else with the
smallest ones that the tool's schema allows.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import platformdirs

from ideabridge.bridge.configuration import parse_configuration
from ideabridge.bridge.context.inquiry import FormAnswer, Inquiry
from ideabridge.bridge.modules.module import Module
from ideabridge.bridge.modules.modules import Modules
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

METADATA_URL: Final = "https://conformance-test.local/client-metadata.json"
"""The client metadata document that the suite expects in place of a registration."""
RICH_TOOL: Final = "json_schema_2020_12_tool"
"""A tool of the suite whose schema another tool wants to see as the connector read it."""
END: Final = "the client ends with"
"""The beginning of the last line; without it the client was ended by the suite."""
SECONDS: Final = 20.0
_SAMPLES: Final[dict[str, JSON]] = {
    "string": "a",
    "integer": 2,
    "number": 2.5,
    "boolean": True,
    "array": [],
    "object": {},
}


class Agreeing:
    """A person who signs in at once, in a browser that follows no redirect to this machine."""

    redirect_uri = "http://127.0.0.1:41999/callback"

    async def authorize(self, url: str) -> str:
        """Open the address, and return where the authorization server sends the browser."""
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url)
        return response.headers["location"]


class Accepting:
    """Answers each form with its defaults, and with the smallest values where there are none."""

    async def ask(self, inquiry: Inquiry) -> FormAnswer:
        """Accept the form."""
        return FormAnswer("accept", sample(inquiry.schema, required_only=False))

    def withdraw(self) -> None:
        """Nothing is shown."""

    def refuse(self, message: str, why: str) -> None:
        """Say which question was not asked."""
        print(f"not asked: {message}: {why}")


def sample(schema: JSONObject, *, required_only: bool = True) -> JSONObject:
    """An object with a value for the properties of a schema."""
    properties = schema.get("properties")
    required = schema.get("required")
    found: JSONObject = {}
    for name, part in properties.items() if isinstance(properties, dict) else ():
        told: JSONObject = part if isinstance(part, dict) else {}
        if required_only and not (isinstance(required, list) and name in required):
            continue

        options = told.get("enum")
        if isinstance(options, list) and options:
            fallback = options[0]
        else:
            fallback = _SAMPLES.get(str(told.get("type")), "a")

        found[name] = told.get("default", fallback)

    return found


async def issuer_of(url: str) -> str:
    """The authorization server that the module names: whoever has credentials for one
    knows which it is.
    """
    async with httpx2.AsyncClient() as client:
        response = await client.get(
            httpx2.URL(url).join("/.well-known/oauth-protected-resource/mcp")
        )
    return response.json()["authorization_servers"][0]


async def entry(url: str, context: dict[str, Any]) -> JSONObject:
    """The entry in `mcpServers` with which a user would reach the server of the suite."""
    auth: JSONObject = {"client_metadata_url": METADATA_URL}
    if "private_key_pem" in context or "client_secret" in context:
        auth = {
            "client_id": context["client_id"],
            "issuer": context.get("issuer") or await issuer_of(url),
        }
        if "private_key_pem" in context:
            auth |= {
                "grant": "client_credentials",
                "private_key": context["private_key_pem"],
                "algorithm": context.get("signing_algorithm", "ES256"),
            }
        else:
            auth["client_secret"] = context["client_secret"]
            if context["name"] == "auth/client-credentials-basic":
                auth["grant"] = "client_credentials"

    return {"url": url, "auth": auth, "connect_timeout": SECONDS, "timeout": SECONDS}


async def call_all(module: Module, calls: list[tuple[str, JSONObject]]) -> int:
    """Call the tools one after another; return how many failed."""
    failed = 0
    for name, arguments in calls:
        try:
            print(f"{name}: {await module.call(name, arguments, asker=Accepting())}")
        except IdeabridgeError as error:
            print(f"{name}: {error}")
            failed += 1

    return failed


async def main(url: str) -> int:
    """Run one scenario; 1 if the module cannot be reached, or a call fails."""
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    configuration = parse_configuration(
        {"mcpServers": {"suite": await entry(url, context)}}, project=Path.cwd()
    )
    async with Modules(configuration, person=Agreeing()) as modules:
        module = modules["suite"]
        await module.ready(SECONDS)
        for kind in ("resources", "prompts"):
            print(f"{kind}: {len(await module.offered(kind))}")

        calls: list[tuple[str, JSONObject]] = [
            (one["name"], one["arguments"]) for one in context.get("toolCalls", [])
        ]
        if not calls:
            calls = [(tool.origin[1], sample(tool.parameters)) for tool in module.tools]

        for tool in module.tools:
            if tool.origin[1] == RICH_TOOL:
                schema: JSON = tool.parameters
                calls = [
                    (name, {**given, "schema": schema} if "schema" in given else given)
                    for name, given in calls
                ]

        return min(1, await call_all(module, calls))


def run() -> int:
    """Run one scenario with the sign-ins of nobody."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        assert platformdirs.user_config_path().is_relative_to(folder)
        try:
            return anyio.run(main, sys.argv[1])
        except IdeabridgeError as error:
            print(error)
            return 1


if __name__ == "__main__":
    code = run()
    print(END, code, flush=True)
    sys.exit(code)
