"""Questions of modules to the clients of direct calls: forms, sampling and roots,
between both eras.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from tests import preloaded

from .serving import Heard, Open, configured, http_process, in_memory, over_stdio, text
from .test_offerings import CLIENTS, MODULES, reference

pytestmark = pytest.mark.anyio

ASKS = Path(__file__).parents[1] / "modules" / "servers" / "asks.py"
THREE = "test_input_required_result_multiple_inputs"


def marked(words: str) -> str:
    """A line of what a module wrote, as a person sees it."""
    return f"  | {words}"


async def fill_in(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    if marked("Leave me alone") in params.message.split("\n"):
        return types.ElicitResult(action="decline")
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")

    texts: dict[str, Any] = {"name": "Ada", "color": "blue", "context": "work"}
    fields = params.requested_schema["properties"]
    return types.ElicitResult(
        action="accept", content={name: texts[name] for name in texts if name in fields}
    )


async def answer(
    _context: Any, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    message = params.messages[0].content
    assert isinstance(message, types.TextContent)
    return types.CreateMessageResult(
        role="assistant",
        content=types.TextContent(text=f"re: {own_words(message.text)}"),
        model="tiny",
    )


def own_words(text: str) -> str:
    """What the module `one` wrote in a text for a model."""
    first, *lines = text.split("\n")
    assert first == "Server one wrote this, and not the person:"
    return "\n".join(line.removeprefix(marked("")) for line in lines)


async def folders(_context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///home/ada"))])


def asked(
    folder: Path, module: tuple[str, ...], mode: str, opened: Open = in_memory, **callbacks: Any
) -> Any:
    configuration = configured(folder, mcpServers={"one": reference(*module)}, expose=["modules"])
    return opened(configuration, mode, **callbacks)


@MODULES
@CLIENTS
async def test_each_side_speaks_its_own_era(
    tmp_path: Path, module: tuple[str, ...], mode: str
) -> None:
    client: Client
    async with asked(
        tmp_path,
        module,
        mode,
        over_stdio,
        elicitation_callback=fill_in,
        sampling_callback=answer,
        list_roots_callback=folders,
    ) as client:
        assert (
            text(await client.call_tool("test_sampling", {"prompt": "Who?"}))
            == "LLM response: re: Who?"
        )
        assert (
            text(await client.call_tool(THREE, {}))
            == "re: Generate a greeting, Ada! You have 1 roots."
        )
        assert (
            text(await client.call_tool("test_input_required_result_list_roots", {}))
            == "Roots: file:///home/ada"
        )
        # The questions come one after the other.
        assert (
            text(await client.call_tool("test_input_required_result_multi_round", {}))
            == "Ada likes blue"
        )
        said = text(await client.call_tool("test_elicitation", {"message": "Leave me alone"}))
        assert said == "User response: action=decline, content=null"
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert prompt.messages[0].content == types.TextContent(text="Context: work")


@MODULES
@CLIENTS
async def test_what_a_client_does_not_declare_is_not_asked(
    tmp_path: Path, module: tuple[str, ...], mode: str
) -> None:
    client: Client
    async with asked(tmp_path, module, mode, elicitation_callback=fill_in) as client:
        refused = await client.call_tool("test_sampling", {"prompt": "Who?"})
        assert refused.is_error
        assert "nobody was asked for sampling: the client does not declare sampling" in text(
            refused
        )
        # Forms of the same client are still shown.
        assert "action=decline" in text(
            await client.call_tool("test_elicitation", {"message": "Leave me alone"})
        )

    async with asked(tmp_path, module, mode) as client:
        refused = await client.call_tool("test_elicitation", {"message": "Name?"})
        assert refused.is_error
        assert "nobody was asked" in text(refused)
        assert "decline" not in text(refused)


@CLIENTS
async def test_a_module_learns_what_the_client_of_each_call_declares(
    tmp_path: Path, mode: str
) -> None:
    client: Client
    async with asked(tmp_path, (), mode, sampling_callback=answer) as client:
        assert text(await client.call_tool("test_missing_capability", {})) == "The client samples."

    async with asked(tmp_path, (), mode, elicitation_callback=fill_in) as client:
        if mode == "legacy":
            assert "sampling is required" in text(
                await client.call_tool("test_missing_capability", {})
            )
            return

        with pytest.raises(MCPError) as refused:
            await client.call_tool("test_missing_capability", {})

        assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}


@CLIENTS
async def test_a_module_of_both_eras_is_spoken_to_in_the_one_in_which_it_asks(
    tmp_path: Path, mode: str
) -> None:
    client: Client
    async with asked(
        tmp_path, (), mode, elicitation_callback=fill_in, sampling_callback=answer
    ) as client:
        # The call failed when it asked, and may have done something before that.
        first = await client.call_tool("test_pushed_question", {})
        assert first.is_error
        assert "call the tool again" in text(first)
        assert text(await client.call_tool("test_pushed_question", {})) == "Hello, Ada!"
        assert (
            text(await client.call_tool("test_sampling", {"prompt": "Who?"}))
            == "LLM response: re: Who?"
        )

    (tmp_path / "another").mkdir()
    async with asked(tmp_path / "another", (), mode, elicitation_callback=fill_in) as client:
        assert text(await client.call_tool("test_pushed_question_of_a_reader", {})) == "Hello, Ada!"


@MODULES
async def test_log_messages_reach_the_client_at_its_level(
    tmp_path: Path, module: tuple[str, ...]
) -> None:
    logged: list[Any] = []

    async def note(params: types.LoggingMessageNotificationParams) -> None:
        logged.append((params.level, params.data))

    client: Client
    async with asked(tmp_path, module, "legacy", logging_callback=note) as client:
        # On the wire, the messages come before the result, but each is handled in a separate task.
        await client.call_tool("test_tool_with_logging", {})
        await client.call_tool("test_simple_text", {})
        assert logged == [
            ("info", "Tool execution started"),
            ("info", "Tool processing data"),
            ("info", "Tool execution completed"),
        ]
        level = types.SetLevelRequest(params=types.SetLevelRequestParams(level="warning"))
        await client.session.send_request(level, types.EmptyResult)
        await client.call_tool("test_tool_with_logging", {})
        await client.call_tool("test_simple_text", {})
        assert len(logged) == 3


@pytest.mark.parametrize("module", [("--legacy",)], ids=["legacy server"])
async def test_a_parked_call_answers_once_and_to_its_client_alone(
    tmp_path: Path, module: tuple[str, ...]
) -> None:
    client: Client
    async with asked(tmp_path, module, "auto", elicitation_callback=fill_in) as client:

        async def send(**more: Any) -> types.CallToolResult | types.InputRequiredResult:
            params = types.CallToolRequestParams(
                name="test_elicitation", arguments={"message": "Name?"}, **more
            )
            return await client.session.call_tool(
                params.name,
                params.arguments,
                input_responses=params.input_responses,
                request_state=params.request_state,
                allow_input_required=True,
            )

        asking = await send()
        assert isinstance(asking, types.InputRequiredResult)
        ((name, question),) = (asking.input_requests or {}).items()
        assert isinstance(question, types.ElicitRequest)
        assert marked("Name?") in question.params.message.split("\n")
        # Answers to anything but the open question change nothing.
        again = await send(
            input_responses={"other": types.ElicitResult(action="cancel")},
            request_state=asking.request_state,
        )
        assert isinstance(again, types.InputRequiredResult)
        assert list(again.input_requests or {}) == [name]
        content: dict[str, Any] = {"email": "ada@example.com", "username": "ada"}
        given = {name: types.ElicitResult(action="accept", content=content)}
        done = await send(input_responses=given, request_state=again.request_state)
        assert isinstance(done, types.CallToolResult)
        assert text(done) == f"User response: action=accept, content={json.dumps(content)}"
        late = await send(input_responses=given, request_state=again.request_state)
        assert isinstance(late, types.CallToolResult)
        assert late.is_error
        assert "the call that asked this question has ended" in text(late)


async def test_a_question_that_may_be_of_two_calls_reaches_nobody(tmp_path: Path) -> None:
    shown: list[str] = []
    answers: dict[str, str] = {}

    async def never(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Eve", "seats": 1})

    module = preloaded.module(ASKS, "--legacy")
    configuration = configured(tmp_path, mcpServers={"asks": module}, expose=["modules"])
    with http_process(configuration) as url:
        async with (
            Client(url, mode="auto", elicitation_callback=never) as one,
            Client(url, mode="auto", elicitation_callback=never) as two,
            anyio.create_task_group() as group,
        ):

            async def meet(client: Client, who: str) -> None:
                answers[who] = text(await client.call_tool("meet", {"who": who}))

            group.start_soon(meet, one, "ann")
            group.start_soon(meet, two, "bob")

    assert shown == []
    assert ["nobody was asked: 2 of its calls" in said for said in answers.values()] == [
        True,
        True,
    ], answers


@CLIENTS
async def test_a_question_without_bounds_is_not_passed_on(tmp_path: Path, mode: str) -> None:
    client: Client
    async with asked(
        tmp_path, (), mode, elicitation_callback=fill_in, sampling_callback=answer
    ) as client:
        refused = await client.call_tool("test_sampling", {"prompt": "x" * 300_000})
        assert refused.is_error
        assert "nobody was asked for sampling: the question has 300," in text(refused)


LINKING = Path(__file__).parents[1] / "modules" / "servers" / "linking.py"
DONE = "notifications/elicitation/complete"


def linking(folder: Path, mode: str, **callbacks: Any) -> Any:
    modules = {"one": preloaded.module(LINKING, "one")}
    return in_memory(configured(folder, mcpServers=modules, expose=["modules"]), mode, **callbacks)


@CLIENTS
async def test_a_module_that_looks_first_asks_for_addresses_and_for_models_with_tools(
    tmp_path: Path, mode: str
) -> None:
    opened: list[str] = []

    async def open_it(_context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        opened.append(params.url)
        return types.ElicitResult(action="accept")

    async def with_tools(
        _context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResultWithTools:
        assert [tool.name for tool in params.tools or []] == ["ask"]
        use = types.ToolUseContent(id="1", name="ask", input={})
        return types.CreateMessageResultWithTools(
            role="assistant", content=use, model="tiny", stop_reason="toolUse"
        )

    client: Client
    tools = types.SamplingCapability(tools=types.SamplingToolsCapability())
    async with linking(
        tmp_path,
        mode,
        elicitation_callback=open_it,
        sampling_callback=with_tools,
        sampling_capabilities=tools,
    ) as client:
        assert text(await client.call_tool("one_open", {})) == "accept"
        assert opened == ["https://pay.example/7"]
        assert text(await client.call_tool("one_samples", {})) == "tiny"

    async with linking(tmp_path, mode, sampling_callback=answer) as client:
        for tool, why in (
            ("one_open", "the client does not declare elicitation"),
            ("one_samples", "the client does not declare sampling with tools"),
        ):
            refused = await client.call_tool(tool, {})
            assert refused.is_error
            assert (
                f"nobody was asked for {'elicitation' if 'open' in tool else 'sampling'}: {why}"
                in text(refused)
            )


@pytest.mark.parametrize("tool", ["one_open", "one_must_open"])
async def test_a_client_learns_that_an_address_that_it_opened_is_done(
    tmp_path: Path, tool: str
) -> None:
    heard = Heard()
    others = Heard()
    answers: dict[str, Any] = {"elicitation_callback": fill_in}

    modules = {"one": preloaded.module(LINKING, "one")}
    with http_process(configured(tmp_path, mcpServers=modules, expose=["modules"])) as url:
        async with (
            Client(url, mode="legacy", message_handler=heard, **answers) as client,
            Client(url, mode="legacy", message_handler=others, **answers) as other,
        ):
            with (
                nullcontext() if tool == "one_open" else pytest.raises(MCPError, match="pay first")
            ):
                await client.call_tool(tool, {})

            await other.call_tool("one_tell", {})
            await heard.until(DONE)
            # It is announced once, and to nobody else.
            await other.call_tool("one_tell", {})
            await other.call_tool("one_tell", {})

    assert (heard.methods.count(DONE), others.methods.count(DONE)) == (1, 0)
