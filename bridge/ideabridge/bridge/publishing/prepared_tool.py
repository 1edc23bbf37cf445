"""A tool that is ready to be published, with the data that is stored for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.lifting.plain import OpenPoint
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.publishing.drafting import Drafted
from ideabridge.bridge.publishing.idea_tools import hints_of
from ideabridge.bridge.publishing.outline import Outline, first_names
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.runs.called_ideas import asking_calls
from ideabridge.bridge.store.idea import Answer
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.reading import Solution
from ideabridge.tools.tool import ANONYMOUS, Tool
from ideabridge.tools.typed import read_as

RECORDED: Final = "Returns the recorded answer, for one input only."


@dataclass(frozen=True, slots=True)
class PreparedTool:
    """How a publication answers calls, and the data that is stored for it.

    Attributes:
        answer: how calls are answered.
        sentences: the sentences in the tool's description about how calls are answered.
        annotations: the behaviour hints of the tool.
        input_schema: the parameters of the tool.
        example: the input for which the tool reproduces its run.
        plan: the plan or program in its published form, or None.
        guide: the starting point for a mind that solves the idea again, or None if no mind does.
        draft: the plan as it was lifted, or None if no plan answers the tool's calls.
        report: the report on the tool's program, or None if no program answers the tool's calls.
        output: a 1-tuple with the value that the tool returns for `example`, or None if this is the
            result of the tool's run.
        no_plan: why the requested plan is missing, or "".
    """

    answer: Answer
    sentences: str
    annotations: JSONObject
    input_schema: JSONObject
    example: JSONObject
    plan: JSONObject | None = None
    guide: JSONObject | None = None
    draft: Drafted | None = None
    report: JSONObject | None = None
    output: tuple[JSON] | None = None
    no_plan: str = ""

    def recorded(self, outline: Outline) -> JSONObject:
        """Return the value of `Publication.recorded` for the run that an outline describes."""
        recorded: JSONObject = {"input": self.example}
        if self.output is not None:
            recorded["output"] = self.output[0]
        elif outline.is_done:
            recorded["output"] = outline.result

        if self.guide is not None:
            recorded["solve"] = self.guide

        return recorded

    def output_schema(self, outline: Outline) -> JSONObject | None:
        """Return the schema of the result, which is the output schema of the run if it has one."""
        if outline.is_done or self.plan is not None or self.guide is None:
            return outline.output_schema
        schema = self.guide["output_schema"]
        return schema if isinstance(schema, dict) else {"type": "string"}

    def description(self, task: str, outline: Outline) -> str:
        """Return the description of the tool: its task, and how its calls are answered."""
        unfinished = ""
        if self.plan is not None and self.output is None and not outline.is_done:
            unfinished = f"It does what its run did before the run ended ({outline.status})."
        return " ".join(filter(None, (task, unfinished, self.sentences)))

    def full_report(self) -> JSONObject | None:
        """Return the report on the new version; see `Publication.report`."""
        if self.draft is not None:
            return {**self.draft.report, "open": self.draft.open}
        if self.report is not None or not self.no_plan:
            return self.report
        point = OpenPoint("no_plan", "", f"the run is not a plan: {self.no_plan}")
        return {"left_open": self.no_plan, "open": [point.to_json()]}


def recorded_tool(outline: Outline, no_plan: str) -> PreparedTool:
    """Create a tool that returns the recorded result of its run."""
    return PreparedTool(
        "recorded",
        RECORDED,
        hints_of(()),
        outline.input_schema,
        outline.input or {},
        no_plan=no_plan,
    )


def planned_tool(
    draft: Drafted, catalogue: Catalogue, store: Store, request: PublishRequest
) -> PreparedTool:
    """Create a tool that runs the plan of its run.

    Args:
        draft: the plan.
        catalogue: the tools that the plan's calls refer to.
        store: contains the ideas that the plan calls.
        request: the publisher's request.
    """
    places = asking_calls(store, catalogue, draft.calls)
    asking = ", ".join(
        f"calls.{place} ({WrittenCall.of(draft.calls[place]).tool})" for place in places
    )
    plan: JSONObject = {**draft.plan, "lifting": _lifting_of(draft, request)}
    return PreparedTool(
        "auto" if request.answer == "auto" else "plan",
        f"A model is asked only for {asking}." if asking else "",
        hints_of(acting_tools(read_as(Solution, plan).calls, catalogue)),
        draft.schema,
        draft.arguments,
        plan=plan,
        draft=draft,
    )


def _lifting_of(draft: Drafted, request: PublishRequest) -> JSONObject:
    """Return the part of a published plan that says which runs the plan was lifted from."""
    choices = request.choices.to_json()
    lifting: JSONObject = {
        "run": draft.run,
        "runs": draft.runs,
        "checked": "confirmed" if draft.confirmed else "self-consistent",
        "confirmed_by": draft.confirmed,
        "choices": choices,
        "parameters": request.parameters,
    }
    if draft.places is not None:
        # For each call in the plan, its number in the run. It has several numbers if calls were
        # merged into one, and null if only another run made the call.
        lifting["places"] = draft.places

    if choices or request.parameters:
        lifting["decided_by"] = request.by.to_json()

    if draft.open:
        lifting["open"] = draft.open

    return lifting


def acting_tools(calls: Sequence[JSON], catalogue: Catalogue) -> list[Tool]:
    """Return the tools that the calls use, except latent tools, which only ask a mind."""
    called = [catalogue.look_up(call) for call in written_calls(calls)]
    return [tool for tool in called if tool is not None and tool.key not in catalogue.latent]


def guided_tool(guide: JSONObject, answer: Answer, outline: Outline, no_plan: str) -> PreparedTool:
    """Create a tool for which a mind solves the idea again at each call.

    Args:
        guide: the starting point for the mind.
        answer: the kind of answer that the publisher wants.
        outline: the outline of the tool's run.
        no_plan: why the tool does not answer with a plan, or "" if no plan was wanted.
    """
    catalogue = outline.catalogue
    # Leave out clean rooms, because they have only the tools of the run itself.
    offered = [
        tool
        for tool in catalogue.tools
        if tool.key not in catalogue.latent and tool.module != ANONYMOUS
    ]
    hints = hints_of(offered)
    return PreparedTool(
        "auto" if answer == "auto" else "solve",
        describe_guide(offered, hints),
        hints,
        outline.input_schema,
        outline.input or {},
        guide=guide,
        no_plan=no_plan,
    )


def describe_guide(offered: Sequence[Tool], hints: JSONObject) -> str:
    """Say, in one sentence, that a mind solves the idea and which tools it can call."""
    names = [tool.name for tool in offered]
    reads = ", which only read" if hints["readOnlyHint"] is True else ""
    may = f"; it may call {first_names(names)}{reads}" if names else ""
    return f"A model solves the task again{may}."


def with_guide(planned: PreparedTool, guided: PreparedTool) -> PreparedTool:
    """Add a guide to a plan, so that a mind continues if the plan produces no output."""
    hints: JSONObject = {}
    for key, hint in planned.annotations.items():
        pair = (hint, guided.annotations.get(key))
        if key in ("readOnlyHint", "idempotentHint"):
            hints[key] = all(value is True for value in pair)
        else:
            hints[key] = any(value is not False for value in pair)

    sentences = f"{planned.sentences} Where the plan cannot continue, a model takes over.".lstrip()
    return dataclasses.replace(planned, annotations=hints, sentences=sentences, guide=guided.guide)
