"""Offer tools in addition to the server's own, namely exposed tools and published ideas.

An exposed tool belongs to a server or a tool file (`expose`). The host and its user decide whether
to allow direct calls to the tool, unless the configuration's `approval` has a rule for it: `deny`
refuses the call, and `ask` turns it into a run with this one call, which waits for approval. If
only a person is allowed to decide (`by`), each call that might change something becomes such a run.
If the client repeats the call, it gets the same run until the result has been returned. Every
direct call is recorded.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from ideabridge.bridge.context.preview import cut_description
from ideabridge.bridge.context.references import escaped
from ideabridge.bridge.loop.policy import ApprovalSetting, direct_policy, policy_named
from ideabridge.bridge.modules.errors import ModuleOutputError, ModuleProtocolError, ModuleToolError
from ideabridge.bridge.modules.module_call import ModuleCall
from ideabridge.bridge.modules.views import is_for_views_only
from ideabridge.bridge.publishing.idea_tools import evidence_of
from ideabridge.bridge.runs.replay import recorded_answer
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.run_record import ENDED
from ideabridge.bridge.store.users import LOCAL, user_of
from ideabridge.server.answers import (
    ToolAnswer,
    bounded_answer,
    object_input,
    object_output,
    refusal,
    showable,
    solution_error_line,
    text_answer,
    value_answer,
    without_misfit,
)
from ideabridge.server.asking.rounds import InputRequired, ToolRequest
from ideabridge.server.assumed import may_assume, reporting_output, with_report
from ideabridge.server.direct_calls import DirectCalls, Entry
from ideabridge.server.running import Running
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text, normalise
from ideabridge.tools.errors import ActivityError, IdeabridgeError
from ideabridge.tools.message import DataMessage
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import META_PROPERTIES, ActivityFunction, Annotations, Tool

logger = logging.getLogger(__name__)


class ServedTool(Protocol):
    """The interface of a served tool for the catalogue."""

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in wire form."""
        ...

    async def call(self, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Answer a call. Raises `IdeabridgeError` with a message for the caller."""
        ...


# -- exposed tools ---------------------------------------------------------------------------------

_ERROR_CHARACTERS: Final = 4096
_CONTENT: Final[TypeAdapter[list[types.ContentBlock]]] = TypeAdapter(list[types.ContentBlock])


class DirectCallError(IdeabridgeError):
    """Raised when the configuration denies a direct call, or the call cannot become a run."""


class UncertainCallError(IdeabridgeError):
    """Raised when a direct call returned no result but might have taken effect."""


class _Rules:
    """The verdicts of the current rules on calls to one exposed tool.

    Attributes:
        approval: the rules that the verdicts are derived from.
        direct: judges direct calls.
        in_run: judges calls of runs.
    """

    def __init__(self, approval: ApprovalSetting, name: str) -> None:
        self.approval = approval
        self.direct = direct_policy(approval, name)
        self.in_run = policy_named(approval)


class ExposedTool:
    """A tool from a tool file or a server, under the name that clients see. A server's tool has no
    activity.

    If the configuration changes the tool, clients see the changed tool (`listed`). Everything else
    refers to the tool that the server lists (`tool`).
    """

    def __init__(
        self,
        name: str,
        tool: Tool,
        activity: ActivityFunction | None,
        running: Running,
        record: DirectCalls,
    ) -> None:
        output, self._wrapped = object_output(tool.wrapper or tool.output)
        self._views = running.module_views
        self.is_hidden = (
            is_for_views_only((tool.wire or {}).get("_meta")) and tool.module != self._views.module
        )
        """Whether only views can call the tool, and its module's views are not passed on."""
        tool_as_sent = tool
        if tool.module is not None and tool.wire is not None:
            tool_as_sent = dataclasses.replace(tool, wire=self._views.part(tool.module, tool.wire))

        self.definition = _definition_of(name, tool_as_sent, object_input(tool.parameters), output)
        self.as_sent = self.definition
        """The definition with the schemas as the module sends them."""
        if tool.module is not None:
            sent = output if self._wrapped else tool.wrapper or tool.output
            self.as_sent = _definition_of(name, tool_as_sent, tool.parameters, sent)

        self.listed = tool
        self._defaults = tool.defaults or {}
        tool = tool.real
        self.tool = tool
        self.name = name
        self._activity = activity
        self._bridge = running.bridge
        self._running = running
        self._record = record
        self._waiting = record.waiting
        self._rules = _Rules(self._bridge.approval, name)
        self._parameters = Validator(tool.parameters, what=f"parameters of {name}")
        self._output: Validator | None = None
        # Check only the results of activities, because those of a server's tools are checked where
        # the server is called.
        if activity is not None and tool.output is not None:
            self._output = Validator(tool.output, what=f"the result of {name}")

    async def call(self, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Answer a direct call, and record it.

        Raises:
            DirectCallError: a rule denies the call, or the call cannot become a run.
            ValueMismatchError: the arguments, or the result of an activity, do not satisfy their
                schema.
            UncertainCallError: the call returned no result but might have taken effect.
            IdeabridgeError: the activity, or the call to the server, failed; the class names the
                cause.
        """
        omitted = {name: value for name, value in self._defaults.items() if name not in arguments}
        arguments = {**omitted, **arguments}
        entry = self._record.begin(self.name, self.tool, arguments, request)
        result: ToolAnswer | None = None
        try:
            result = await self._answered(arguments, request, entry)
            if self.tool.module is None:
                return await without_misfit(result, self.definition)

            passed_on = await without_misfit(
                self._views.result(self.tool.module, result), self.definition
            )
            structured = result.get("structuredContent")
            if structured is not None and "structuredContent" not in passed_on:
                passed_on = {
                    **passed_on,
                    "content": _with_text(passed_on["content"], cast("JSON", structured)),
                }

            return passed_on
        except InputRequired:
            entry.outcome = "asked"
            raise
        except Exception as error:
            entry.error = error
            entry.outcome = entry.outcome if entry.outcome == "denied" else "error"
            if not isinstance(error, IdeabridgeError) or self.tool.annotations.read_only is True:
                raise
            if error.outcome == "unknown":
                entry.outcome = "unknown"
                raise UncertainCallError(
                    f"outcome unknown: {error}. {self.name} may have taken effect: check before "
                    "you call it again"
                ) from error

            if error.outcome == "ran":
                raise UncertainCallError(
                    f"{self.name} ran, but its result cannot be used: {error}"
                ) from error

            raise
        finally:
            # Without any other outcome, the call was cancelled.
            self._record.end(entry, result)

    async def _answered(
        self, arguments: JSONObject, request: ToolRequest, entry: Entry
    ) -> ToolAnswer:
        if request.resumed is not None:
            return await self._of_run(request.resumed, request, entry)

        tool = self.tool
        if self._activity is None:
            await self._bridge.offer.know_names()
            # Use the definition that the server lists now, because it might have changed.
            owner = self._bridge.modules[tool.module or ""]
            tool = await owner.current(tool.name_in_module, request.progress)

        # Use the tool's name in the offer for the rules, because several servers can have a tool
        # with its own name.
        offered = tool
        if tool.module is not None:
            named = self._bridge.offer.known_catalogue.get(self.tool.key) or self.tool
            offered = dataclasses.replace(tool, name=named.name, remote_name=named.remote_name)

        if self._rules.approval != self._bridge.approval:
            self._rules = _Rules(self._bridge.approval, self.name)

        rules = self._rules
        verdict = rules.direct(offered, arguments)
        if verdict.verdict == "allow" and tool.annotations.read_only:
            return await self._called(tool, arguments, request, entry)

        digest = self._waiting.digest(self.tool, arguments, request)
        if verdict.verdict == "allow":
            waiting = await self._waiting.find(digest, request.caller)
            if waiting is not None and waiting.status != "needs_approval":
                # The same call was decided under earlier rules, and its result has not been
                # returned yet.
                return await self._of_run(waiting, request, entry)

            if waiting is not None:
                reason = "the rules now allow the call, and it was repeated"
                await self._bridge.cancel(waiting.id, reason, caller=request.caller)
            return await self._called(tool, arguments, request, entry)

        if verdict.verdict == "deny":
            entry.outcome = "denied"
            raise DirectCallError(
                f"{self.name} is denied by the configuration of ideabridge: {verdict.why}"
            )

        if rules.in_run(offered, arguments).verdict == "allow":
            # A run with this call would not ask for approval, because the rules for runs do not
            # match exposed names.
            raise DirectCallError(
                f"{self.name}: a rule requires approval for this tool under its exposed name, but "
                "would not apply to a run that calls the tool. Write the rule for the tool's own "
                f"name, {offered.name!r}"
            )

        meta = next((key for key in arguments if key in META_PROPERTIES), None)
        if meta is not None:
            raise DirectCallError(f"{self.name} has no parameter {meta!r}")

        module: JSONObject = {} if tool.module is None else {"_module": tool.module}
        call: JSONObject = {"_tool": tool.name, **module, **cast("JSONObject", escaped(arguments))}

        async def start() -> Run:
            title = f"a direct call of {self.name}"
            return await self._bridge.run_plan(
                {"calls": [call]}, caller=request.caller, title=title
            )

        run = await self._waiting.run_of(digest, request.caller, start)
        return await self._of_run(run, request, entry)

    async def _of_run(self, run: Run, request: ToolRequest, entry: Entry) -> ToolAnswer:
        """Return the result of a call that needs approval.

        This is the tool's result once the tool has run, and the answer about the run until then.
        """
        entry.run = run.id
        status = await self._running.wait_started(run, request)
        if status in ENDED:
            await self._waiting.give(run)

        call = run.calls()[0] if run.calls() else None
        if status != "done" or call is None:
            entry.outcome = "asked" if status == "needs_approval" else "error"
            again = (
                f"after the decision, call {self.name} again with the same arguments to get its "
                "result; it asks and runs only once"
            )
            notes = [] if status in ENDED else [again]
            return {**self._running.answer_of(run, request, notes=notes), "isError": True}

        if run.errors():
            entry.outcome = "denied" if (call.error or {}).get("kind") == "denied" else "error"
            return refusal("\n".join(solution_error_line(error) for error in run.errors()))

        ran = call.tool
        if ran is None or (ran.module, ran.name) != (self.tool.module, self.tool.name):
            # A person has replaced the call with one to another tool.
            return {**self._running.answer_of(run, request), "isError": True}

        return await self._answer(ran, call.value)

    async def _called(
        self, tool: Tool, arguments: JSONObject, request: ToolRequest, entry: Entry
    ) -> ToolAnswer:
        parameters = self._parameters
        if tool.parameters != self.tool.parameters:
            parameters = Validator(tool.parameters, what=f"parameters of {self.name}")

        await parameters.check_apart(arguments)
        if self._activity is None:
            return await self._of_module(tool, arguments, request, entry)

        try:
            result = await self._activity(
                arguments, DirectContext({"_tool": tool.name, **arguments}, request)
            )
        except IdeabridgeError:
            raise
        except Exception as error:  # noqa: BLE001 - any exception from an activity fails only its call
            raise ActivityError(
                f"{type(error).__name__}: {str(error)[:_ERROR_CHARACTERS]}"
            ) from None

        # Take only the data, because a direct call has no run whose context could receive the
        # message.
        data = result.data if isinstance(result, DataMessage) else result
        value = normalise(data, what=f"the result of {tool.name}")
        if self._output is not None:
            await self._output.check_apart(value)

        value = self._bridge.secrets.redact(value)
        entry.give(tool, value)
        return await self._answer(tool, value)

    async def _of_module(
        self, tool: Tool, arguments: JSONObject, request: ToolRequest, entry: Entry
    ) -> ToolAnswer:
        """Return the result of a server's tool as the server sent it, even if the tool failed.

        Raises:
            MCPError: the server returned this JSON-RPC error.
        """
        call = ModuleCall(
            tool.name_in_module,
            arguments,
            progress=request.progress,
            queue_key=request.client,
        )
        name = tool.module or ""
        try:
            answer = await self._running.relaying.answered(
                request.context,
                request.relayed,
                request.responses,
                name,
                lambda module, client: module.answer(dataclasses.replace(call, client=client)),
            )
        except ModuleToolError as error:
            if error.result is None:
                raise
            entry.error = error
            self._running.relaying.note_named(name, error.result, request.caller)
            return bounded_answer(_in_era({**error.result}, request))
        except ModuleOutputError as error:
            if error.result is None:
                raise

            entry.error = error
            problem = str(error)
            if tool.annotations.read_only is not True:
                problem = f"{self.name} ran, but its result cannot be used: {problem}"

            _, *sent = cast("list[JSON]", error.result["content"])
            return bounded_answer(
                _in_era(
                    {**error.result, "content": [{"type": "text", "text": problem}, *sent]}, request
                )
            )
        except ModuleProtocolError as error:
            if error.code in (None, types.MISSING_REQUIRED_CLIENT_CAPABILITY):
                raise
            entry.error = error
            raise MCPError(error.code, error.said, error.data) from None

        entry.give(tool, answer.value)
        result: ToolAnswer = {**(answer.result or {})}
        self._running.relaying.note_named(name, result, request.caller)
        if "structuredContent" in result and self._wraps(tool):
            result["structuredContent"] = {"result": answer.value}

        return bounded_answer(_in_era(result, request))

    async def _answer(self, tool: Tool, value: JSON) -> ToolAnswer:
        if self._activity is None and tool.output is None:
            return await _unstructured(value)
        return await value_answer(value, wrapped=self._wraps(tool), schema=tool.output)

    def _wraps(self, tool: Tool) -> bool:
        """Return whether the output schema describes `{"result": value}`."""
        if tool.output == self.tool.output and tool.wrapper == self.tool.wrapper:
            return self._wrapped
        return object_output(tool.wrapper or tool.output)[1]


def _definition_of(
    name: str, tool: Tool, parameters: JSONObject, output: JSONObject | None
) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": name, "inputSchema": showable(parameters)}
    if tool.description:
        definition["description"] = tool.description

    if output is not None:
        definition["outputSchema"] = showable(output)

    if tool.wire is not None:
        return {**definition, **tool.wire}

    annotations = tool.annotations.to_json()
    if annotations:
        definition["annotations"] = annotations
        if tool.annotations.title:
            definition["title"] = tool.annotations.title

    return definition


def _in_era(result: ToolAnswer, request: ToolRequest) -> ToolAnswer:
    """Return a server's result in the form for the protocol version of a request.

    Up to 2025-11-25, structured content must be an object. Structured content of any other type
    becomes text, unless a text block already contains it.
    """
    structured = cast("JSON", result.get("structuredContent"))
    if "structuredContent" not in result or isinstance(structured, dict) or request.has_rounds:
        return result
    others = {key: part for key, part in result.items() if key != "structuredContent"}
    content = result["content"]
    return {**others, "content": content if structured is None else _with_text(content, structured)}


def _with_text(content: Sequence[JSON], structured: JSON) -> list[JSON]:
    """Return the content blocks of a result.

    The structured content is added as text, unless a block already contains it.
    """
    text = encode_text(structured)
    blocks = [*content]
    if not any(isinstance(block, dict) and _is_text(block.get("text"), text) for block in blocks):
        blocks.append({"type": "text", "text": text})
    return blocks


def _is_text(text: JSON, value: str) -> bool:
    """Return whether a string is exactly the value whose JSON is `value`."""
    if not isinstance(text, str):
        return False
    try:
        return text == value or encode_text(decode(text)) == value or encode_text(text) == value
    except IdeabridgeError:
        return encode_text(text) == value


async def _unstructured(value: JSON) -> ToolAnswer:
    """Return the result of a server's tool that has no output schema: its text and blocks,
    unchanged.
    """
    if isinstance(value, dict):
        return await value_answer(value, wrapped=False)
    if value is None:
        return {"content": [], "resultType": "complete"}

    if isinstance(value, list) and value:
        with suppress(ValidationError):
            _CONTENT.validate_python(value, by_name=False)
            return bounded_answer({"content": cast("list[Any]", value), "resultType": "complete"})

    return text_answer(value)


@dataclass(frozen=True, slots=True)
class DirectContext:
    """The `ActivityContext` of a direct call, which has no instance, no output paths and no next
    Request.
    """

    call: JSONObject
    request: ToolRequest
    instance: None = None
    output_paths: tuple[str, ...] = ()

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to the client."""
        await self.request.context.session.report_progress(progress, total, message)

    def add_message(self, message: JSONObject) -> None:
        """Ignore the message, because there is no next Request."""

    def choose(self, path: str) -> None:
        """Raise an error, because there are no output paths."""
        raise ActivityError(
            f"cannot choose output path {path!r}: called directly, the call has no _outputPath"
        )


# -- published ideas -------------------------------------------------------------------------------

_INPUT_CHARACTERS: Final = 300
"""Maximum number of characters of the input shown in the description of a recorded answer."""

_MOST_ERRORS: Final = 20


class PublishedTool:
    """A published idea as a tool."""

    def __init__(
        self, name: str, publication: Publication, running: Running, record: DirectCalls
    ) -> None:
        self._record = record
        self.publication = publication
        output, self._wrapped = reporting_output(publication)
        self._bridge = running.bridge
        self._running = running
        self._input = Validator(
            publication.input_schema or {"type": "object"}, what=f"the input of {name}"
        )
        self._output: Validator | None = None
        if publication.output_schema is not None:
            self._output = Validator(publication.output_schema, what=f"the output of {name}")

        self._tools_seen: list[Tool] | None = None
        self._definition: dict[str, Any] = {
            "name": name,
            "description": published_description(publication),
            "inputSchema": showable(object_input(publication.input_schema)),
        }
        if output is not None:
            self._definition["outputSchema"] = showable(output)

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in wire form. Its annotations are derived from the current tools that it
        calls.
        """
        tools = self._bridge.offer.known
        if tools is not self._tools_seen:
            self._tools_seen = tools
            publication = self.publication
            hints = self._bridge.hints(publication, caller=publication.owner or LOCAL)
            annotations = Annotations.from_json(hints).to_json()
            self._definition = {
                key: value for key, value in self._definition.items() if key != "annotations"
            }
            if annotations:
                self._definition["annotations"] = annotations

        return self._definition

    async def call(self, arguments: JSONObject, request: ToolRequest) -> ToolAnswer:
        """Return the recorded output, run the plan, or solve the task again. `_meta` says which.

        Raises:
            ValueMismatchError: the arguments do not satisfy the input schema.
            PublicationError: the input differs from the recorded input, or the idea is no longer
                complete.
            PlanError: the plan cannot run.
        """
        entry = self._record.begin(self.publication.name, self.publication.name, arguments, request)
        try:
            result = await self._answered(arguments, request, entry)
            return await without_misfit(result, self._definition)
        except Exception as error:
            entry.error = error
            raise
        finally:
            self._record.end_idea(entry)

    async def _answered(
        self, arguments: JSONObject, request: ToolRequest, entry: Entry
    ) -> ToolAnswer:
        if request.resumed is not None:
            entry.run = request.resumed.id
            return await self._of_run(request.resumed, request)

        publication = self.publication
        if publication.answer == "recorded":
            await self._input.check_apart(arguments)
            value = recorded_answer(publication, arguments)
            entry.give(publication.name, value)
            return await self._of_value(value)

        replay = await self._bridge.start_idea(
            publication.name,
            arguments,
            caller=request.caller,
            version=publication.version,
            samples=request.samples,
        )
        if replay.run is None:
            entry.give(publication.name, replay.output)
            return await self._of_value(replay.output)

        entry.run = replay.run.id
        return await self._of_run(replay.run, request)

    async def _of_run(self, run: Run, request: ToolRequest) -> ToolAnswer:
        status = await self._running.wait_started(run, request)
        errors = [f"- {solution_error_line(error)}" for error in run.errors()[:_MOST_ERRORS]]
        if status == "done":
            # Always report what a person approved, because a person might have been asked about a
            # call in the program even if the program assumes nothing.
            result = with_report(
                await self._of_value(run.given()),
                assumed=run.assumed,
                approved=run.approved,
                noted=run.noted,
                declared=may_assume(self.publication),
            )
            if errors and not result.get("isError"):
                result["content"].append({"type": "text", "text": "\n".join(["errors:", *errors])})
        else:
            # The run has no output, or none yet.
            result = self._running.answer_of(run, request)
            result["isError"] = True
            if status not in ("running", "needs_approval", "needs_solution"):
                reason = f": {run.machine.reason}" if run.machine.reason else ""
                line = (
                    f"{self._definition['name']} has no output: its run "
                    f"{run.id} is {status}{reason}"
                )
                result = with_report(
                    refusal("\n".join([line, *errors]), result["structuredContent"]),
                    assumed=run.assumed,
                    approved=run.approved,
                    noted=run.noted,
                )

        result["_meta"] = {
            "ideabridge/answer": run.way,
            "ideabridge/run": run.id,
            **result.get("_meta", {}),
        }
        return result

    async def _of_value(self, value: JSON) -> ToolAnswer:
        if self._output is not None:
            await self._output.check_apart(value)
        return await value_answer(
            value, wrapped=self._wrapped, schema=self.publication.output_schema
        )


def published_description(publication: Publication) -> str:
    """Return the description for models.

    It names the user who published the tool. For a recorded answer, it includes the input; for a
    plan, it says what the runs leave open.
    """
    sharer = None if publication.owner is None else user_of(publication.owner)
    whose = "" if sharer is None else f" (Published by the user {sharer}.)"
    description = " ".join(
        filter(None, (cut_description(publication.description), evidence_of(publication)))
    )
    if publication.answer != "recorded":
        return f"{description}{whose}"

    recorded_input = publication.recording.input
    if recorded_input is None:
        return f"{description}{whose}"

    text = encode_text(recorded_input)
    ellipsis = "…" if len(text) > _INPUT_CHARACTERS else ""
    return f"{description} That input: {text[:_INPUT_CHARACTERS]}{ellipsis}{whose}"
