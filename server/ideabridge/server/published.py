"""Published ideas as tools."""

from __future__ import annotations

from typing import Any, Final

from ideabridge.bridge.context.preview import cut_description
from ideabridge.bridge.runs.replay import recorded_answer
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.users import LOCAL, user_of
from ideabridge.server.answers import (
    ToolAnswer,
    error_line,
    object_input,
    object_output,
    refusal,
    showable,
    value_answer,
)
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.asking.sampling import samples
from ideabridge.server.running import Running
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.schema import Validator
from ideabridge.tools.tool import Annotations, Tool

_INPUT: Final = 300
"""Characters of the input of a recorded answer in its description."""


class PublishedTool:
    """A published idea as a tool."""

    def __init__(self, name: str, publication: Publication, running: Running) -> None:
        self.publication = publication
        output, self._wrapped = object_output(publication.output_schema)
        self._bridge = running.bridge
        self._running = running
        self._input = Validator(publication.input_schema or {"type": "object"}, what=f"the input of {name}")
        self._output: Validator | None = None
        if publication.output_schema is not None:
            self._output = Validator(publication.output_schema, what=f"the output of {name}")
        self._known: list[Tool] | None = None
        self._definition: dict[str, Any] = {
            "name": name,
            "description": described(publication),
            "inputSchema": showable(object_input(publication.input_schema)),
        }
        if output is not None:
            self._definition["outputSchema"] = showable(output)

    @property
    def definition(self) -> dict[str, Any]:
        """The tool in its wire form. Its annotations follow from the current tools that it calls."""
        known = self._bridge.known_tools()
        if known is not self._known:
            self._known = known
            publication = self.publication
            hints = self._bridge.hints(publication, caller=publication.owner or LOCAL)
            annotations = Annotations.from_json(hints).to_json()
            self._definition = {key: value for key, value in self._definition.items() if key != "annotations"}
            if annotations:
                self._definition["annotations"] = annotations
        return self._definition

    async def call(self, arguments: JSONObject, asked: ToolRequest) -> ToolAnswer:
        """Return the recorded output, run the plan, or solve the task again; `_meta` says which.

        Raises:
            ValueMismatchError: the arguments do not satisfy the input schema.
            PublicationError: the recorded input differs, or the idea is no longer complete.
            PlanError: the plan cannot run.
        """
        if asked.resumed is not None:
            return await self._run(asked.resumed, asked)
        publication = self.publication
        if publication.answer == "recorded":
            await self._input.check_apart(arguments)
            return await self._value(recorded_answer(publication, arguments))
        replay = await self._bridge.call_idea(
            publication.name,
            arguments,
            caller=asked.caller,
            version=publication.version,
            samples=samples(asked),
        )
        return await (self._value(replay.output) if replay.run is None else self._run(replay.run, asked))

    async def _run(self, run: Run, asked: ToolRequest) -> ToolAnswer:
        result = await self._answered(run, asked)
        result["_meta"] = {"ideabridge/answer": run.machine.mode, "ideabridge/run": run.id}
        return result

    async def _answered(self, run: Run, asked: ToolRequest) -> ToolAnswer:
        status = await self._running.wait_started(run, asked)
        machine = run.machine
        if status == "done":
            result = await self._value(run.given())
            if run.errors() and not result.get("isError"):
                told = "\n".join(f"- {error_line(error)}" for error in run.errors()[:20])
                result["content"].append({"type": "text", "text": f"errors:\n{told}"})
            return result
        # There is no output (yet). Hosts validate structured content against the output schema, except in errors.
        told = self._running.answer_of(run, asked)
        if status in ("running", "needs_approval", "needs_solution"):
            return {**told, "isError": True}
        name = self.definition["name"]
        reason = f": {machine.reason}" if machine.reason else ""
        lines = [f"{name} gave no output: its run {run.id} is {status}{reason}"]
        lines += [f"- {error_line(error)}" for error in run.errors()[:20]]
        return refusal("\n".join(lines), told["structuredContent"])

    async def _value(self, value: JSON) -> ToolAnswer:
        if self._output is not None:
            await self._output.check_apart(value)
        return value_answer(value, wrapped=self._wrapped)


def described(publication: Publication) -> str:
    """The description for models, with the input of a recorded answer, and with the user who wrote it."""
    sharer = None if publication.owner is None else user_of(publication.owner)
    whose = "" if sharer is None else f" (Published by the user {sharer}.)"
    given = publication.recorded.get("input") if isinstance(publication.recorded, dict) else None
    description = cut_description(publication.description)
    if publication.answer != "recorded" or given is None:
        return f"{description}{whose}"
    text = encode_text(given)
    return f"{description} That input: {text[:_INPUT]}{'…' if len(text) > _INPUT else ''}{whose}"
