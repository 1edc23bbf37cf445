"""Check and publish an idea from elsewhere, without trusting its document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ideabridge.bridge.context.earlier import WHEN
from ideabridge.bridge.context.errors import ExplanationError
from ideabridge.bridge.context.explanations import Explanation, operand_path, read_explanation, same
from ideabridge.bridge.context.messages import read_context
from ideabridge.bridge.context.references import escaped, is_reference
from ideabridge.bridge.context.removed import read_earlier_explained
from ideabridge.bridge.context.state import MISSING, Missing, read
from ideabridge.bridge.context.written_call import WrittenCall, written_calls
from ideabridge.bridge.errors import PublicationError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.settings import Settings
from ideabridge.bridge.minds.choice import AUTO, Choice
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.offer.defined_tools import defined_tools
from ideabridge.bridge.plan import Plan, read_published
from ideabridge.bridge.programs.sandbox import LONGEST_PROGRAM
from ideabridge.bridge.publishing.idea_tools import hints_of
from ideabridge.bridge.publishing.programs import declared_calls
from ideabridge.bridge.runs.called_ideas import cycle_through, next_version
from ideabridge.bridge.runs.replay import context_to_solve
from ideabridge.bridge.runs.starts import start_solve
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.portable import Document
from ideabridge.bridge.store.published import PublishedGuide, PublishedPlan, PublishedRecording
from ideabridge.bridge.store.shapes import Need
from ideabridge.bridge.store.store import CAUTIOUS, Store
from ideabridge.bridge.store.users import LOCAL
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import did_you_mean, joined
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool
from ideabridge.tools.typed import read_as


@dataclass(frozen=True, slots=True)
class SavedIdea:
    """The result of saving or importing an idea.

    Attributes:
        idea_id: the id of the saved idea.
        publication: the version under which the idea was published, or None if it was not
            published.
        before: the previous version of that name, or None if the name was free. If nothing changed,
            there is no new version, and this equals `publication`.
        missing: a sentence for each missing tool that the idea's calls need. Set only by
            `Bridge.save_idea`.
        left_out: values that the document omits because they came from results in the idea's run,
            each as `{"reference" or "message", "type", "bytes"}`.
    """

    idea_id: str
    publication: Publication | None = None
    before: Publication | None = None
    missing: tuple[str, ...] = ()
    left_out: tuple[JSON, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """Whether exactly this idea had already been published under this name."""
        return self.publication is not None and self.publication is self.before


def offered_plan(document: Document) -> Plan | None:
    """Return the plan that answers calls to the idea in a document, with its recorded input, or
    None if there is no plan.

    Raises:
        PublicationError: the plan is a malformed program.
    """
    members = document.publication_members()
    plan: JSON = members["plan"]
    recorded: JSON = members["recorded"]
    if members["answer"] in ("recorded", "solve") or not isinstance(plan, dict):
        return None

    if members["answer"] == "program" or "program" in plan:
        _check_program(plan)

    arguments = PublishedRecording.of(recorded).input or {}
    return read_published(
        plan, arguments, members["input_schema"], members["output_schema"], name=members["name"]
    )


def _check_program(plan: JSONObject) -> None:
    """Check the program of a document.

    Raises:
        PublicationError: the program has no text or no names, or could call a tool that its calls
            do not declare.
    """
    published = read_as(PublishedPlan, plan)
    program = published.program
    if program is None or len(program) > LONGEST_PROGRAM:
        raise PublicationError(
            f"publication.plan.program: expected source code of at most {LONGEST_PROGRAM:,} "
            f"characters, found {show(plan.get('program'))}"
        )

    if published.names is None or not isinstance(plan.get("calls"), list):
        raise PublicationError(
            "publication.plan: a program requires an object `names` and an array `calls` beside it"
        )

    declared = declared_calls(published.names, program)
    extra = [call for call in declared if call not in published.calls]
    if extra:
        raise PublicationError(
            f"publication.plan.calls: {show(extra[0])} is missing, although `names` contains it"
        )


def check_explained(document: Document) -> None:
    """Check that a document's plan sends the literals that it contains: for the recorded input,
    each explanation must yield its literal.

    Explanations that depend on results cannot be checked in this way.

    Raises:
        PublicationError: an explanation yields a different value. The message says where, and gives
            the expected value.
    """
    plan = offered_plan(document)
    listed = (plan.explained or {}).get("values") if plan is not None else None
    if plan is None or not isinstance(listed, list):
        return

    written: JSONObject = {"calls": plan.calls, "output": plan.output}
    try:
        explained = [
            read_earlier_explained(entry, where=f"publication.plan.explained.{n}")
            for n, entry in enumerate(listed)
        ]
    except ExplanationError as error:
        raise PublicationError(str(error)) from None

    # Skip calls that the recorded run did not necessarily make, because they can contain literals
    # from a different run.
    tested = {entry.at[1] for entry in explained if entry.at[2:] == (WHEN,)}
    for entry in explained:
        literal = read(written, entry.at)
        if isinstance(literal, str) and is_reference(literal):
            # The reference is to a parameter, and the literal is in the recorded input.
            literal = _reference_for(literal, plan.input or {})

        if isinstance(literal, Missing) or (entry.at[0] == "calls" and entry.at[1] in tested):
            continue
        for by in entry.by:
            value = _value_for(by, plan.input or {})
            if isinstance(value, Missing):
                continue
            value = escaped(value)
            if not same(value, literal):
                raise PublicationError(
                    f"publication.plan.{'.'.join(entry.at)}: the plan has {show(literal)} here, "
                    f"but a call with the recorded input would send {show(value)} ({by.shown}); "
                    f"expected an explanation that gives {show(literal)}"
                )


def _reference_for(text: str, arguments: JSONObject) -> JSON | Missing:
    """Return the value of a reference, as written in a plan, for the given input. Return MISSING if
    the input has no such value, or the reference does not read the input.
    """
    try:
        value = _value_for(read_explanation(text), arguments)
    except ExplanationError:
        return MISSING
    return value if isinstance(value, Missing) else escaped(value)


def _value_for(explanation: Explanation, arguments: JSONObject) -> JSON | Missing:
    """Return the value of an explanation for the given input, or MISSING if the explanation has no
    value, or depends on results.
    """
    needed = False

    def look(text: str) -> JSON | Missing:
        nonlocal needed
        path = operand_path(text)
        needed = needed or path[0] != "input"
        return read(arguments, path[1:]) if path[0] == "input" else MISSING

    value = explanation.value(look)
    return MISSING if needed else value


def own_cycle(store: Store, name: str, calls: list[WrittenCall]) -> str | None:
    """Return a sentence that names the ideas through which a plan would call itself once it is
    published as `name`, or None if it would not.
    """
    cycle = cycle_through(store, next_version(store, name), calls)
    return None if cycle is None else f"it would call itself: {' -> '.join(cycle)}"


def check_guide(store: Store, document: Document) -> None:
    """Check the guide of a document (`Publication.guide`), except for its tools, which can be added
    later.

    Raises:
        PublicationError: no run could begin with the guide, or the idea would call itself. The
            message says where.
    """
    members = document.publication_members()
    recorded: JSON = members["recorded"]
    guide = object_or_empty(recorded).get("solve")
    if guide is None and members["answer"] != "solve":
        return
    if not isinstance(guide, dict):
        raise PublicationError(f"publication.{_GUIDE}: expected an object, found {show(guide)}")

    for member, expected, fits in _MEMBERS:
        if not fits(guide.get(member)):
            raise PublicationError(
                f"publication.{_GUIDE}.{member}: expected {expected}, found "
                f"{show(guide.get(member))}"
            )

    arguments = PublishedRecording.of(recorded).input or {}
    try:
        start = read_as(PublishedGuide, guide)
        context = context_to_solve(start, arguments)
        defined_tools(read_context(context))
        choice = Choice(AUTO, "it is imported")
        start_solve(context, Catalogue(()), Settings(), start.output_schema, choice)
    except IdeabridgeError as error:
        raise PublicationError(
            f"publication.{_GUIDE}: a run cannot begin with this member: {error}"
        ) from None

    cycle = own_cycle(store, members["name"], written_calls(start.calls))
    if cycle is not None:
        raise PublicationError(f"publication.{_GUIDE}.plan: {cycle}")


def _is_tools(value: JSON) -> bool:
    return isinstance(value, list) and all(map(_is_tool, value))


def _is_tool(value: JSON) -> bool:
    match value:
        case [str() | None, str()]:
            return True
        case _:
            return False


def _is_plan(value: JSON) -> bool:
    if value is None:
        return True
    calls = value.get("calls") if isinstance(value, dict) else None
    return isinstance(calls, list) and all(call.tool for call in written_calls(calls))


_GUIDE: Final = "recorded.solve"
_MEMBERS: Final[tuple[tuple[str, str, Callable[[JSON], bool]], ...]] = (
    ("context", "an array of messages", lambda value: isinstance(value, list)),
    ("tools", "an array of [module or null, name]", _is_tools),
    (
        "output_schema",
        "a JSON Schema, or null for text",
        lambda value: isinstance(value, dict | None),
    ),
    ("by_instance", "true or false", lambda value: value is None or isinstance(value, bool)),
    ("plan", 'an object {"calls": [call, ...], "output"}', _is_plan),
)


def honest_annotations(plan: Plan | None, present: Catalogue, offered: Catalogue) -> JSONObject:
    """Return the behaviour hints of a plan according to the tools that are available in this
    process.

    If the plan calls an unknown tool, which might be added later, the hints are the most cautious
    ones.

    Args:
        plan: the plan, or None if the idea has no plan, so that its effects are unknown.
        present: the available tools, and the tools of the rooms that the plan names.
        offered: the same tools, and those that the plan itself defines. What the plan says about
            the effects of other tools is ignored.
    """
    called: list[Tool] = []
    for call in written_calls(plan.calls if plan is not None else [None]):
        own = offered.look_up(call)
        if own is not None and own.key in offered.latent:
            # A latent call does nothing but ask a mind.
            continue

        tool = present.look_up(call)
        if tool is None:
            return dict(CAUTIOUS)
        called.append(tool)

    return hints_of(called)


def missing(
    needs: Iterable[Need], store: Store, modules: Modules, tools: Iterable[Tool]
) -> list[str]:
    """Return one line for each missing tool that imported ideas call. If there are none, the ideas
    can run.

    Args:
        needs: the tools that the ideas call.
        store: contains the publications.
        modules: the configured servers. A server that is still connecting has not listed its tools.
        tools: the tools that are available here.
    """
    needed = sorted(set(needs))
    tools = list(tools)
    lines: list[str] = []
    absent = {
        need.module for need in needed if need.module and not _exists(need.module, store, modules)
    }
    for module in sorted(absent):
        names = sorted({need.tool for need in needed if need.module == module})
        elsewhere = sorted({tool.module for tool in tools if tool.module and tool.name in names})
        if elsewhere:
            hint = f" {', '.join(elsewhere)} here has tools with these names."
        else:
            hint = ""

        if module.startswith(IDEA):
            lines.append(
                f"it calls {module.removeprefix(IDEA)!r}, "
                "but no idea of this name is published here"
            )
        else:
            lines.append(
                f"the server {module!r} is not configured here (mcpServers); "
                f"it calls {joined(names, 5)}.{hint}"
            )

    away = {
        status.name: status
        for status in modules.statuses()
        if status.state != "up" and not (status.state == "idle" and modules[status.name].is_known)
    }
    for need in needed:
        if need.module in absent or need.module.startswith(IDEA) or need.module == ANONYMOUS:
            continue
        if any(
            need.tool in (tool.name, tool.remote_name) and need.module in ("", tool.module or "")
            for tool in tools
        ):
            continue

        status = away.get(need.module)
        if status is not None:
            lines.append(
                f"the server {need.module!r} is {status.state}, so its tool "
                f"{need.tool!r} cannot be looked up"
            )
            continue

        similar = [tool.name for tool in tools if not need.module or tool.module == need.module]
        if need.module:
            where = f"on the server {need.module!r}"
        else:
            where = "here (is a tool file missing? --tools)"

        lines.append(f"there is no tool {need.tool!r} {where}.{did_you_mean(need.tool, similar)}")

    return lines


def _exists(module: str, store: Store, modules: Modules) -> bool:
    """Return whether the server is configured, or the idea published."""
    if module.startswith(IDEA):
        return store.publications.look_up(module.removeprefix(IDEA), caller=LOCAL) is not None
    return module == ANONYMOUS or module in modules
