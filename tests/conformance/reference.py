"""A server with the tools, resources and prompts that the server scenarios of the
conformance suite ask for.

    reference.py           over stdio
    reference.py --http    over HTTP on a free port, which it prints

It speaks both eras. Its questions go out in the way of the client: as requests during the
call up to 2025-11-25, as results that ask for input in 2026-07-28. With --legacy it knows
only the handshake era.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]
Answers = Mapping[str, Any]
Result = types.CallToolResult | types.InputRequiredResult

LEGACY: Final = "--legacy" in sys.argv
HTTP: Final = "--http" in sys.argv
NAME: Final = "reference"

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

LOG_LEVEL: Final = types.LOG_LEVEL_META_KEY

OBJECT: Final[dict[str, Any]] = {"type": "object", "properties": {}}
SCHEMA_2020: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def texts(*names: str) -> dict[str, Any]:
    """The schema of an object with these texts, all required."""
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
    }


def text(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=words)])


def content(*blocks: types.ContentBlock) -> types.CallToolResult:
    return types.CallToolResult(content=list(blocks))


# -- questions -------------------------------------------------------------------------------------


def form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sampling(prompt: str, most: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=prompt))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=most)
    )


def roots() -> types.ListRootsRequest:
    return types.ListRootsRequest()


RESULTS: Final[dict[str, type[Any]]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


async def asked(
    ctx: Context,
    params: types.CallToolRequestParams | types.GetPromptRequestParams,
    questions: dict[str, types.InputRequest],
    state: str | None = None,
) -> Answers | types.InputRequiredResult:
    """The answers to these questions by name, or the result that asks them."""
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        given = params.input_responses or {}
        right = {
            name: given[name]
            for name, question in questions.items()
            if isinstance(given.get(name), RESULTS[question.method])
        }
        if len(right) == len(questions) and (state is None or params.request_state == state):
            return right
        return types.InputRequiredResult(input_requests=questions, request_state=state)

    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    return {
        name: await ctx.session.send_request(question, RESULTS[question.method], metadata=metadata)
        for name, question in questions.items()
    }


def said(result: types.ElicitResult) -> str:
    return f"action={result.action}, content={json.dumps(result.content)}"


def filled(result: types.ElicitResult, name: str) -> Any:
    """The value of a field of a form; None unless it was filled in."""
    return (result.content or {}).get(name)


def words(result: types.CreateMessageResult) -> str:
    if isinstance(result.content, types.TextContent):
        return result.content.text
    return result.content.type


def has(ctx: Context, name: str) -> bool:
    """Whether the client declares a capability."""
    return getattr(ctx.session.client_capabilities, name, None) is not None


# -- tools -----------------------------------------------------------------------------------------

Params = types.CallToolRequestParams


class Handler(Protocol):
    __name__: str

    def __call__(self, ctx: Context, params: Params, /) -> Awaitable[Result]: ...


TOOLS: dict[str, tuple[types.Tool, Handler]] = {}
EXTRA: Final = types.Tool(
    name="test_dynamic_tool", description="It comes and goes.", input_schema=OBJECT
)
CHANGED: set[str] = set()
"""The lists that have an extra entry at present."""


def tool(
    description: str, schema: dict[str, Any] = OBJECT, name: str | None = None
) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        made = name or f"test_{handler.__name__}"
        TOOLS[made] = types.Tool(name=made, description=description, input_schema=schema), handler
        return handler

    return register


@tool("Returns simple text.")
async def simple_text(_ctx: Context, _params: Params) -> Result:
    return text("This is a simple text response for testing.")


@tool("Returns an image.")
async def image_content(_ctx: Context, _params: Params) -> Result:
    return content(types.ImageContent(data=PNG, mime_type="image/png"))


@tool("Returns a sound.")
async def audio_content(_ctx: Context, _params: Params) -> Result:
    return content(types.AudioContent(data=WAV, mime_type="audio/wav"))


def embedded(uri: str, mime_type: str, words: str) -> types.EmbeddedResource:
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=words)
    )


@tool("Returns an embedded resource.")
async def embedded_resource(_ctx: Context, _params: Params) -> Result:
    return content(
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    )


@tool("Returns a text, an image and a resource.")
async def multiple_content_types(_ctx: Context, _params: Params) -> Result:
    return content(
        types.TextContent(text="Multiple content types test:"),
        types.ImageContent(data=PNG, mime_type="image/png"),
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    )


async def log(ctx: Context, words: str) -> None:
    if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS and LOG_LEVEL not in (
        ctx.params or {}
    ).get("_meta", {}):
        return
    params = types.LoggingMessageNotificationParams(level="info", data=words)
    await ctx.session.send_notification(
        types.LoggingMessageNotification(params=params), ctx.request_id
    )


@tool("Logs three messages.")
async def tool_with_logging(ctx: Context, _params: Params) -> Result:
    await log(ctx, "Tool execution started")
    await anyio.sleep(0.05)
    await log(ctx, "Tool processing data")
    await anyio.sleep(0.05)
    await log(ctx, "Tool execution completed")
    return text("It logged three messages.")


@tool("Logs, if the request allows it.")
async def logging_tool(ctx: Context, _params: Params) -> Result:
    await log(ctx, "Logged by test_logging_tool")
    return text("It logged.")


@tool("Always fails.")
async def error_handling(_ctx: Context, _params: Params) -> Result:
    words = "This tool intentionally returns an error for testing"
    return types.CallToolResult(content=[types.TextContent(text=words)], is_error=True)


@tool("Reports its progress.")
async def tool_with_progress(ctx: Context, _params: Params) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
        await anyio.sleep(0.05)
    return text("It reported its progress.")


@tool("Asks the client's model.", texts("prompt"), "test_sampling")
async def model(ctx: Context, params: Params) -> Result:
    prompt = str((params.arguments or {}).get("prompt"))
    answers = await asked(ctx, params, {"answer": sampling(prompt)})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"LLM response: {words(answers['answer'])}")


async def elicited(
    ctx: Context, params: Params, question: types.ElicitRequest, intro: str
) -> Result:
    answers = await asked(ctx, params, {"answer": question})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"{intro}: {said(answers['answer'])}")


@tool("Asks the user.", texts("message"))
async def elicitation(ctx: Context, params: Params) -> Result:
    described = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    question = form(
        str((params.arguments or {}).get("message")), {**texts(*described), "properties": described}
    )
    return await elicited(ctx, params, question, "User response")


@tool("Asks the user, with defaults.")
async def elicitation_sep1034_defaults(ctx: Context, params: Params) -> Result:
    fields: dict[str, Any] = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    }
    question = form(
        "Please review and update the form fields", {"type": "object", "properties": fields}
    )
    return await elicited(ctx, params, question, "Elicitation completed")


def titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


@tool("Asks the user for choices in every form.")
async def elicitation_sep1330_enums(ctx: Context, params: Params) -> Result:
    options = ["option1", "option2", "option3"]
    fields: dict[str, Any] = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {
            "type": "string",
            "oneOf": titled("First Option", "Second Option", "Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
        },
    }
    question = form("Please choose", {"type": "object", "properties": fields})
    return await elicited(ctx, params, question, "Elicitation completed")


@tool("Its schema uses JSON Schema 2020-12.", SCHEMA_2020, "json_schema_2020_12_tool")
async def json_schema_2020_12(_ctx: Context, params: Params) -> Result:
    return text(json.dumps(params.arguments))


@tool("Closes the stream during the call.")
async def reconnection(ctx: Context, _params: Params) -> Result:
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
        await anyio.sleep(0.1)
    return text("Reconnection test completed")


# -- tools of 2026-07-28 ---------------------------------------------------------------------------

NAME_FORM: Final = form("What is your name?", texts("name"))
CONFIRM: Final = form(
    "Please confirm",
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
)


@tool("Asks for a name.")
async def input_required_result_elicitation(ctx: Context, params: Params) -> Result:
    answers = await asked(ctx, params, {"user_name": NAME_FORM})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"Hello, {filled(answers['user_name'], 'name')}!")


@tool("Asks the client's model.")
async def input_required_result_sampling(ctx: Context, params: Params) -> Result:
    answers = await asked(
        ctx, params, {"capital_question": sampling("What is the capital of France?")}
    )
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(words(answers["capital_question"]))


@tool("Asks for the client's roots.")
async def input_required_result_list_roots(ctx: Context, params: Params) -> Result:
    answers = await asked(ctx, params, {"client_roots": roots()})
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"Roots: {', '.join(str(one.uri) for one in answers['client_roots'].roots)}")


@tool("Asks, and keeps a state.")
async def input_required_result_request_state(ctx: Context, params: Params) -> Result:
    answers = await asked(ctx, params, {"confirm": CONFIRM}, state="a state")
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text("state-ok")


@tool("Asks three questions at once.")
async def input_required_result_multiple_inputs(ctx: Context, params: Params) -> Result:
    questions: dict[str, types.InputRequest] = {
        "user_name": NAME_FORM,
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    answers = await asked(ctx, params, questions, state="three")
    if isinstance(answers, types.InputRequiredResult):
        return answers

    name = filled(answers["user_name"], "name")
    folders = len(answers["client_roots"].roots)
    return text(f"{words(answers['greeting'])}, {name}! You have {folders} roots.")


@tool("Asks twice, one question after the other.")
async def input_required_result_multi_round(ctx: Context, params: Params) -> Result:
    color = form("Step 2: What is your favorite color?", texts("color"))
    if params.request_state is None or not params.request_state.startswith("named "):
        first = {"step1": form("Step 1: What is your name?", texts("name"))}
        answers = await asked(ctx, params, {**first}, state="begun")
        if isinstance(answers, types.InputRequiredResult):
            return answers

        name = str(filled(answers["step1"], "name"))
        if ctx.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return types.InputRequiredResult(
                input_requests={"step2": color}, request_state=f"named {name}"
            )
    else:
        name = params.request_state.removeprefix("named ")

    answers = await asked(ctx, params, {"step2": color}, state=f"named {name}")
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text(f"{name} likes {filled(answers['step2'], 'color')}")


@tool("Refuses a state that somebody has changed.")
async def input_required_result_tampered_state(ctx: Context, params: Params) -> Result:
    answers = await asked(ctx, params, {"confirm": CONFIRM}, state="sealed")
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text("The state is as it was.")


@tool("Asks only what the client declares.")
async def input_required_result_capabilities(ctx: Context, params: Params) -> Result:
    questions: dict[str, types.InputRequest] = {}
    if has(ctx, "elicitation"):
        questions["user_name"] = NAME_FORM

    if has(ctx, "sampling"):
        questions["capital_question"] = sampling("What is the capital of France?")

    answers = await asked(ctx, params, questions)
    if isinstance(answers, types.InputRequiredResult):
        return answers
    return text("Asked and answered.")


async def pushed(ctx: Context, _params: Params) -> Result:
    """Asks by a request in every era, as tools do that were written for 2025-11-25."""
    answer = await ctx.session.send_request(
        NAME_FORM,
        types.ElicitResult,
        metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
    )
    return text(f"Hello, {filled(answer, 'name')}!")


tool("Asks by a request.", name="test_pushed_question")(pushed)
tool("Asks by a request, and changes nothing.", name="test_pushed_question_of_a_reader")(pushed)
TOOLS["test_pushed_question_of_a_reader"][0].annotations = types.ToolAnnotations(
    read_only_hint=True
)


@tool("Needs a client that samples.")
async def missing_capability(ctx: Context, _params: Params) -> Result:
    if not has(ctx, "sampling"):
        needed = types.ClientCapabilities(sampling=types.SamplingCapability())
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "sampling is required",
            data.model_dump(by_alias=True, exclude_none=True),
        )
    return text("The client samples.")


@tool("Asks the user, with progress before.")
async def streaming_elicitation(ctx: Context, params: Params) -> Result:
    await ctx.session.report_progress(1, 2, "It is about to ask")
    return await elicited(ctx, params, NAME_FORM, "User response")


@tool("Adds a tool, or removes it again.")
async def trigger_tool_change(ctx: Context, _params: Params) -> Result:
    CHANGED.symmetric_difference_update({"tools"})
    await BUS.publish(ToolsListChanged())
    if ctx.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await ctx.session.send_tool_list_changed()
    return text("The tools have changed.")


@tool("Adds a prompt, or removes it again.")
async def trigger_prompt_change(ctx: Context, _params: Params) -> Result:
    CHANGED.symmetric_difference_update({"prompts"})
    await BUS.publish(PromptsListChanged())
    if ctx.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        await ctx.session.send_prompt_list_changed()
    return text("The prompts have changed.")


@tool("Tells the subscribers of a resource that it has changed.", texts("uri"))
async def touch(ctx: Context, params: Params) -> Result:
    uri = str((params.arguments or {}).get("uri"))
    await BUS.publish(ResourceUpdated(uri))
    if uri in SUBSCRIBED:
        await ctx.session.send_resource_updated(uri)
    return text(f"subscribed: {sorted(SUBSCRIBED)}")


async def list_tools(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[*(one for one, _ in TOOLS.values()), *([EXTRA] if "tools" in CHANGED else [])]
    )


async def call_tool(ctx: Context, params: Params) -> Result:
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"unknown tool {params.name!r}")
    return await TOOLS[params.name][1](ctx, params)


# -- resources -------------------------------------------------------------------------------------

RESOURCES: Final = {
    "test://static-text": types.Resource(
        uri="test://static-text",
        name="static-text",
        description="A static text.",
        mime_type="text/plain",
    ),
    "test://static-binary": types.Resource(
        uri="test://static-binary",
        name="static-binary",
        description="A static image.",
        mime_type="image/png",
    ),
    "test://watched-resource": types.Resource(
        uri="test://watched-resource",
        name="watched-resource",
        description="It may change.",
        mime_type="text/plain",
    ),
    "test://example-resource": types.Resource(
        uri="test://example-resource",
        name="example-resource",
        description="An example.",
        mime_type="text/plain",
    ),
}
TEMPLATE: Final = types.ResourceTemplate(
    uri_template="test://template/{id}/data",
    name="template",
    description="Data by its id.",
    mime_type="application/json",
)


async def list_resources(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=list(RESOURCES.values()))


async def list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])


async def read_resource(
    _ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    before, _, after = TEMPLATE.uri_template.partition("{id}")
    if uri == "test://static-binary":
        found: types.TextResourceContents | types.BlobResourceContents = types.BlobResourceContents(
            uri=uri, mime_type="image/png", blob=PNG
        )
    elif uri.startswith(before) and uri.endswith(after):
        number = uri[len(before) : -len(after)]
        data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
        found = types.TextResourceContents(
            uri=uri, mime_type="application/json", text=json.dumps(data)
        )
    elif uri in RESOURCES:
        told = f"This is the content of the {RESOURCES[uri].name.replace('-', ' ')} resource."
        found = types.TextResourceContents(uri=uri, mime_type="text/plain", text=told)
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})

    return types.ReadResourceResult(contents=[found])


SUBSCRIBED: set[str] = set()


async def subscribe(_ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    SUBSCRIBED.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(_ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    SUBSCRIBED.discard(str(params.uri))
    return types.EmptyResult()


# -- prompts ---------------------------------------------------------------------------------------


def prompt(name: str, description: str, *arguments: str) -> types.Prompt:
    made = [
        types.PromptArgument(name=one, description=f"The {one}.", required=True)
        for one in arguments
    ]
    return types.Prompt(name=name, description=description, arguments=made)


PROMPTS: Final = [
    prompt("test_simple_prompt", "A simple prompt."),
    prompt("test_prompt_with_arguments", "A prompt with arguments.", "arg1", "arg2"),
    prompt("test_prompt_with_embedded_resource", "A prompt with a resource.", "resourceUri"),
    prompt("test_prompt_with_image", "A prompt with an image."),
    prompt("test_input_required_result_prompt", "A prompt that asks first."),
]


async def list_prompts(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    if "prompts" in CHANGED:
        extra = [prompt("test_dynamic_prompt", "It comes and goes.")]
    else:
        extra = []
    return types.ListPromptsResult(prompts=[*PROMPTS, *extra])


def message(block: types.ContentBlock) -> types.PromptMessage:
    return types.PromptMessage(role="user", content=block)


def prompted(*blocks: types.ContentBlock) -> types.GetPromptResult:
    return types.GetPromptResult(messages=[message(block) for block in blocks])


async def get_prompt(
    ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt" | "test_dynamic_prompt":
            return prompted(types.TextContent(text="This is a simple prompt for testing."))
        case "test_prompt_with_arguments":
            told = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return prompted(types.TextContent(text=told))
        case "test_prompt_with_embedded_resource":
            resource = embedded(
                str(given.get("resourceUri")),
                "text/plain",
                "Embedded resource content for testing.",
            )
            return prompted(
                resource, types.TextContent(text="Please process the embedded resource above.")
            )
        case "test_prompt_with_image":
            image = types.ImageContent(data=PNG, mime_type="image/png")
            return prompted(image, types.TextContent(text="Please analyze the image above."))
        case "test_input_required_result_prompt":
            question = form("What context should the prompt use?", texts("context"))
            answers = await asked(ctx, params, {"user_context": question})
            if isinstance(answers, types.InputRequiredResult):
                return answers
            return prompted(
                types.TextContent(text=f"Context: {filled(answers['user_context'], 'context')}")
            )
        case _:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt {params.name!r}")


async def complete(_ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    values = [f"{params.argument.value}{ending}" for ending in ("", "-one", "-two")]
    return types.CompleteResult(
        completion=types.Completion(values=values, total=len(values), has_more=False)
    )


async def set_level(_ctx: Context, _params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


# -- serving ---------------------------------------------------------------------------------------


class ReferenceServer(Server[Any]):
    """The SDK's server, which declares that its lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The options with every list marked as changing."""
        changing = NotificationOptions(
            prompts_changed=True, resources_changed=True, tools_changed=True
        )
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )


BUS: Final = InMemorySubscriptionBus()
FRESH: Final = CacheHint(ttl_ms=1000, scope="private")
SERVER: Final = ReferenceServer(
    NAME,
    version="1.0.0",
    cache_hints={
        "tools/list": FRESH,
        "resources/list": FRESH,
        "resources/templates/list": FRESH,
        "resources/read": FRESH,
        "prompts/list": FRESH,
    },
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_subscriptions_listen=ListenHandler(BUS),
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
)
SERVER.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)


async def serve_stdio() -> None:
    async with stdio_server() as (read, write), anyio.create_task_group() as group:
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()

        async def pump() -> None:
            async with send:
                async for item in read:
                    message = item.message if isinstance(item, SessionMessage) else None
                    if (
                        LEGACY
                        and isinstance(message, types.JSONRPCRequest)
                        and message.method == "server/discover"
                    ):
                        # A server of the handshake era does not know this method.
                        error = types.ErrorData(
                            code=types.METHOD_NOT_FOUND, message="Method not found"
                        )
                        answer = types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await send.send(item)

        group.start_soon(pump)
        await SERVER.run(receive, write, SERVER.create_initialization_options())
        group.cancel_scope.cancel()


def handshake_only(app: Any) -> Any:
    """The app of a server that does not know the era of 2026-07-28."""

    async def gate(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers", ())).get(b"mcp-method") == b"server/discover":
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return gate


def serve_http() -> None:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    # Listen before printing the port, because whoever reads it may connect immediately.
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = SERVER.streamable_http_app()
    app = handshake_only(app) if LEGACY else app
    config = uvicorn.Config(app, lifespan="on", log_level="critical", timeout_graceful_shutdown=0)
    uvicorn.Server(config).run([listener])


def main() -> None:
    # A state that was changed by the client is rejected.
    SERVER.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)
    )
    if HTTP:
        serve_http()
    else:
        anyio.run(serve_stdio)


if __name__ == "__main__":
    main()
