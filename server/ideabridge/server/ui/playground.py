"""A page where people write a plan, a program or a context, check it, draw it, and run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ideabridge.bridge.arguments import read_context_document
from ideabridge.bridge.context.messages import Message, read_context, with_instances
from ideabridge.bridge.errors import PlanError
from ideabridge.bridge.loop.initial_documents import initial_documents
from ideabridge.bridge.loop.policy import policy_named
from ideabridge.bridge.offer.task_tools import TaskTools
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.runs.run import Run
from ideabridge.server.ui import drawing
from ideabridge.server.ui.access import FormFields, Visitor, form_of, visitor_of
from ideabridge.server.ui.forms import Field, fields_of, fields_of_tool, with_values
from ideabridge.server.ui.readable_names import has_words
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.text_faults import TextFault, faults_of_plan
from ideabridge.server.ui.tool_policies import page_of
from ideabridge.server.ui.tool_texts import about_tool, is_built_in
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.ui.trials import trial_of
from ideabridge.tools.documents import read_written
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text, object_or_empty
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.keywords import SchemaKeywords
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import IDEA, Tool
from ideabridge.tools.typed import read_as

EXAMPLE_PLAN: Final = """{
  "calls": [
    {"_tool": "compute", "code": "a + b", "a": 2, "b": 3,
     "_outputPath": "sum"},
    {"_tool": "compute", "code": "n * 2", "n": "†state.sum",
     "_outputPath": "double"}
  ],
  "output": {"sum": "†state.sum", "double": "†state.double"}
}
"""
_PROGRAM: Final = """from tools import compute

a = await compute(code="a + b", a=2, b=3)
await compute(code="n * 2", n=a)
"""
_ASKING_PLAN: Final = """{
  "calls": [
    {"_tool": %s, "_module": %s, "_outputPath": "answer"},
    {"_tool": "compute", "code": "len(str(it))", "it": "†state.answer",
     "_outputPath": "length"}
  ],
  "output": {"answer": "†state.answer", "length": "†state.length"}
}
"""
_CONTEXT: Final = """[
  {"role": "system", "content": "Answer in one word."},
  {"type": "state", "_instance": "①", "state": {"text": "This is wonderful!"}},
  {"type": "state", "_instance": "②", "state": {"text": "This is terrible."}},
  {"role": "user", "content": "Write into each state whether its text is positive or negative."}
]
"""
_EACH_PLAN: Final = """{
  "calls": [
    {"_tool": "compute", "code": "len(word)", "word": "†item",
     "_each": ["plan", "program"], "_outputPath": "lengths"}
  ],
  "output": "†state.lengths"
}
"""
_EACH_PROGRAM: Final = """import asyncio
from tools import compute

words = ["plan", "program"]
await asyncio.gather(*[compute(code="len(word)", word=word) for word in words])
"""
_TASK: Final = """[
  {"role": "system", "content": "Answer in one sentence."},
  {"role": "user", "content": "What do the tools that you have do?"}
]
"""


@dataclass(frozen=True, slots=True)
class Example:
    """An example that a person can start from.

    Attributes:
        name: the name of the example in URLs.
        title: a short description of the example.
        text: the plan, program or context itself.
        about: a sentence about what the example shows, or "".
    """

    name: str
    title: str
    text: str
    about: str = ""


_EXAMPLES: Final = {
    "plan": (
        Example("steps", "Two calls in a row", EXAMPLE_PLAN),
        Example("each", "A call for each item", _EACH_PLAN),
    ),
    "program": (
        Example("steps", "Two calls in a row", _PROGRAM),
        Example("each", "A call for each item", _EACH_PROGRAM),
    ),
    "context": (
        Example("states", "A question about two texts", _CONTEXT),
        Example("task", "A question that may use tools", _TASK),
    ),
}
"""The examples of each kind of text. They run on any machine."""


@dataclass(frozen=True, slots=True)
class ToolForm:
    """A form that calls a tool.

    Attributes:
        title, name: the title and the name of the tool.
        page: the path of the tool's page, relative to the path of all pages.
        action: the path to which the form is submitted, relative to the path of all pages.
        description: the description of the tool.
        fields: a field for each parameter.
    """

    title: str
    name: str
    page: str
    action: str
    description: str
    fields: list[Field]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A tool that can be chosen.

    Attributes:
        page: the path of the tool's page, relative to the path of all pages.
        title, name: the title and the name of the tool.
        about: a sentence that says what the tool does.
    """

    page: str
    title: str
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class ToolGroup:
    """The tools of one server that a person can choose from.

    Attributes:
        name: the name of the server, or a heading for tools that do not come from a server.
        tools: the tools that are shown.
        count: how many tools of the group match the search.
        is_open: whether the group is open when the page is loaded.
    """

    name: str
    tools: list[ToolChoice]
    count: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class ToolChoices:
    """The tools that a person can choose from, by server.

    Attributes:
        words: the words of the search, or "".
        groups: the groups of tools.
        total: the number of all tools.
        found: the number of tools that match the words.
        left_out: the number of these tools that the page does not show.
    """

    words: str
    groups: list[ToolGroup]
    total: int
    found: int
    left_out: int

    @classmethod
    def of(
        cls, tools: list[tuple[Tool, str]], titles: ToolTitles, words: str, chosen: str = ""
    ) -> ToolChoices:
        """Return the choices from `tools`, each given with the path of its page. `chosen` is the
        path of the chosen tool, or "".
        """
        by_group: dict[str, list[ToolChoice]] = {}
        for tool, page in tools:
            if has_words(tool, words):
                choice = ToolChoice(page, titles.of_tool(tool), tool.name, about_tool(tool))
                by_group.setdefault(group_of(tool), []).append(choice)

        groups: list[ToolGroup] = []
        room = _MOST_CHOICES
        room_of_open = _MOST_OPEN
        for name in sorted(by_group, key=place_of_group):
            members = sorted(by_group[name], key=attrgetter("name"))
            fits = name != _BUILT_IN and len(members) <= room_of_open
            has_chosen = any(choice.page == chosen for choice in members)
            is_open = fits or has_chosen or bool(words) or len(by_group) == 1
            groups.append(ToolGroup(name, members[:room], len(members), is_open))
            room -= len(groups[-1].tools)
            if is_open:
                room_of_open -= len(members)

        found = sum(group.count for group in groups)
        return cls(words, groups, len(tools), found, found - _MOST_CHOICES + room)


_MADE_HERE: Final = "Made here"
_OF_FILES: Final = "From files"
_BUILT_IN: Final = "Built in"
_ORDER: Final = {_MADE_HERE: 0, _OF_FILES: 1, _BUILT_IN: 3}
"""The sort positions of the groups that are not servers. Servers have position 2."""

_MOST_OPEN: Final = 20
"""Maximum number of tools in the groups that are open from the start, so that a list does not push
down the content below it.
"""

_MOST_CHOICES: Final = 120
"""Maximum number of tools to choose from on one page."""


def group_of(tool: Tool) -> str:
    """Return the heading under which a tool is listed."""
    if tool.module is None:
        return _BUILT_IN if is_built_in(tool) else _OF_FILES
    return _MADE_HERE if tool.module.startswith(IDEA) else tool.module


def place_of_group(name: str) -> tuple[int, str]:
    """Return the sort key of a group. Tools that people made come first."""
    return _ORDER.get(name, 2), name


class Playground:
    """The page for writing plans, programs and contexts."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [
            Route("/playground", self.show, methods=["GET", "POST"]),
            Route("/playground/tools", self.tools),
        ]

    async def show(self, request: Request) -> Response:
        """Show the form of one tool or, with `kind`, the editor. A POST request checks the text in
        the editor and, with `action=run`, runs it.
        """
        form = form_of(request)
        kind = form.get("kind", request.query_params.get("kind", ""))
        if kind not in _EXAMPLES and request.method == "POST":
            kind = "plan"
        if kind not in _EXAMPLES:
            return await self._one_tool(request)

        examples = self._examples(kind, visitor_of(request).caller)
        asked = request.query_params.get("example", "")
        example = next((one for one in examples if one.name == asked), examples[0])
        text = form.get("text", example.text)
        values: dict[str, Any] = {
            "found": None,
            "graph": None,
            "errors": [],
            "why": "",
            "checked": False,
            "messages": None,
        }
        if request.method == "POST":
            visitor = visitor_of(request)
            caller = visitor.caller
            try:
                if form.get("action") == "run":
                    run = await self._run(form, kind, text, caller)
                    return self._site.back(request, f"/runs/{run.id}")

                if kind == "context":
                    values["messages"] = await compute_in_thread(_read_context, text)
                else:
                    rehearsal = await self._bridge.dry_run(_read(form, kind, text), caller=caller)
                    values["found"] = rehearsal
                    values["graph"] = await compute_in_thread(
                        drawing.of_dry_run, rehearsal, self._site.titles(visitor)
                    )
                values["checked"] = True
            except PlanError as error:
                values["errors"] = faults_of_plan(error, text)
                values["why"] = self._bridge.secrets.mask(str(error))
            except IdeabridgeError as error:
                values["why"] = self._bridge.secrets.mask(str(error))
            if values["why"] and not values["errors"]:
                values["errors"] = [TextFault.of(values["why"], text)]

        fields = {name: form.get(name) for name in ("input", "title", "thought_process")}
        return await self._site.page_beside(
            request,
            "playground.html",
            kind=kind,
            examples=examples,
            example=example.name if text == example.text else "",
            text=text,
            **fields,
            **values,
        )

    async def _one_tool(self, request: Request) -> Response:
        """Show the tools to choose from and the form of the chosen tool. With `run`, also show the
        result of a call of the tool.
        """
        query = request.query_params
        visitor = visitor_of(request)
        titles = self._site.titles(visitor)
        caller = visitor.caller
        tools = [(tool, page_of(self._bridge, tool)) for tool in self._tools(caller)]
        tools = [(tool, page) for tool, page in tools if page]
        asked = query.get("tool", "")
        trial = await trial_of(self._site, request)
        values = {} if trial is None else trial.values
        chosen = next(
            (self._form_of(tool, page, values, visitor) for tool, page in tools if page == asked),
            None,
        )
        return await self._site.page_beside(
            request,
            "playground_tool.html",
            kind="tool",
            choices=ToolChoices.of(tools, titles, query.get("q", "").strip(), asked),
            chosen=chosen,
            trial=trial,
        )

    def _form_of(self, tool: Tool, page: str, values: JSONObject, visitor: Visitor) -> ToolForm:
        """Return the form of a tool, given the path of its page and the initial values."""
        # All tools of a server have one address for calls. A published tool has its own.
        action = f"{page.rsplit('/tools/', 1)[0]}/call"
        if tool.module is not None and tool.module.startswith(IDEA):
            name = tool.module.removeprefix(IDEA)
            fields = fields_of_tool(
                self._bridge.store.publications.named(name, caller=visitor.caller), {}
            )
        else:
            fields = fields_of(tool.parameters)
        filled = with_values(fields, values)
        title = self._site.titles(visitor).of_tool(tool)
        return ToolForm(title, tool.name, page, action, tool.description, filled)

    def _examples(self, kind: str, caller: str) -> list[Example]:
        """Return the examples for the given kind of text.

        If a connected server has a tool that can be called without parameters and without approval,
        one of the plans calls that tool.
        """
        examples = [*_EXAMPLES[kind]]
        tool = self._askable(caller) if kind == "plan" else None
        if tool is not None:
            text = _ASKING_PLAN % (encode_text(tool.name), encode_text(tool.module))
            examples.append(Example("server", f"Ask {tool.module}", text))
        return examples

    def _askable(self, caller: str) -> Tool | None:
        """Return a server's tool that is read-only, needs no parameters, and runs without approval,
        or None if there is no such tool.
        """
        offer = self._bridge.offer.to(caller)
        decide = policy_named(self._bridge.configuration.approval_setting)
        for tool in self._bridge.modules.known_tools():
            needs = read_as(SchemaKeywords, tool.parameters).required
            if needs or tool.annotations.read_only is not True or not offer.has_tool(tool):
                continue
            if decide(tool, {}).verdict == "allow":
                return tool
        return None

    async def _run(self, form: FormFields, kind: str, text: str, caller: str) -> Run:
        """Start a plan or program, or run the agent loop on a context. For a context, the form's
        title is the task.
        """
        title = form.get("title").strip()
        if kind == "context":
            context = await compute_in_thread(_read_context, text)
            return await self._bridge.solve(
                title or None,
                context=[message.to_json() for message in context],
                input=_input(form),
                thought_process=True if form.get("thought_process") else None,
                caller=caller,
            )

        return await self._bridge.run_plan(_read(form, kind, text), caller=caller, title=title)

    async def tools(self, request: Request) -> Response:
        """Return the tools with their parameters, for the editor's completion."""
        tools = self._tools(visitor_of(request).caller)
        names = ProgramNames(tools)
        in_order = sorted(tools, key=lambda tool: (place_of_group(group_of(tool)), tool.name))
        return JSONResponse(
            [_completion(tool, names, page_of(self._bridge, tool)) for tool in in_order]
        )

    def _tools(self, caller: str) -> Sequence[Tool]:
        """Return the tools that a caller can call, including those made here."""
        return TaskTools(self._bridge.offer, ("*", f"{IDEA}*"), caller=caller).present().tools


def _completion(tool: Tool, names: ProgramNames, page: str) -> JSONObject:
    place = names.place(tool)
    takes = read_as(SchemaKeywords, tool.parameters)
    parameters: list[JSON] = []
    for name, schema in takes.properties.items():
        types = read_as(SchemaKeywords, schema).types
        note = types[0] if len(types) == 1 else "any"
        if name in takes.required:
            note += ", required"
        parameters.append({"name": name, "note": note})

    return {
        "name": tool.name,
        "program": "" if place is None else ".".join(place),
        "description": about_tool(tool),
        "group": group_of(tool),
        "is_built_in": is_built_in(tool),
        "page": page,
        "parameters": parameters,
    }


def _read(form: FormFields, kind: str, text: str) -> JSONObject:
    """Read the plan and the additional input from a form."""
    plan: JSON = {"program": text}
    if kind != "program":
        plan = decode(text, what="the plan")
        if not isinstance(plan, dict):
            raise ArgumentError('the plan: expected an object, {"calls": [...], "output": ...}')

    more_input = _input(form)
    if more_input is None:
        return plan
    return {**plan, "input": {**object_or_empty(plan.get("input")), **more_input}}


def _input(form: FormFields) -> JSONObject | None:
    """Read the additional input from a form. Return None if the field is empty."""
    written = form.get("input").strip()
    if not written:
        return None

    value = decode(written, what="the input")
    if not isinstance(value, dict):
        raise ArgumentError("the input: expected an object")
    return value


def _read_context(text: str) -> list[Message]:
    """Read the messages of a context from a form, with the names of their instances."""
    messages, _ = read_context_document(read_written(text, what="the context"), "the context")
    read = read_context(with_instances(messages))
    initial_documents(read)
    return read
