"""Publishing: turn ideas into tools, and check whether what is published still works.

Theory of operation. `Publisher.publish` reads the run that made an idea as a function, and chooses
how calls will be answered:

| answer | what a call does | what is stored |
|---|---|---|
| `plan` | runs the lifted plan with the new input | the plan and its pins |
| `program` | runs the program with the new input | the program, the names of its tools and their pins |
| `solve` | asks a mind anew, with the plan as guidance | a guide: context, tools, output schema, plan |
| `recorded` | returns the stored output for the stored input | nothing more |

`auto` chooses the program if one program is all that the run did, or else the first of the others
that is possible. A version that it publishes as a plan or for solving keeps the answer `auto`.
Input and output are always stored, so that `verify` can compare them later. What is uncertain about
a plan is no reason to refuse it: the plan keeps all explanations of a copied value, and each answer
says what it assumes.

Invariants. A plan or program is published only if it is self-consistent (with the recorded results
it returns the recorded output), and it does not call itself through other ideas. After the tools
are known, nothing waits until the version is written: the plan is checked against the tools that
its pins name. A failed publication stores nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar

from ideabridge.bridge.arguments import check_text, read_object
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.explanations import same
from ideabridge.bridge.errors import (
    ConstantsOpenError,
    MeantToolError,
    ModulesAwayError,
    NameInUseError,
    NeedsPersonError,
    NoFinishedRunError,
    ProgramRefusedError,
    PublicationError,
)
from ideabridge.bridge.lifting.choices import Choices, read_choices
from ideabridge.bridge.lifting.function import Function
from ideabridge.bridge.lifting.parameters import ParameterDecision, read_decisions
from ideabridge.bridge.lifting.plain import OpenPoint
from ideabridge.bridge.lifting.rows import parameter_rows
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import APPROVER, Decider, decider_of
from ideabridge.bridge.minds.choice import AUTO, Choice, MindName
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.offer.offer import SETTLE_SECONDS, Offer
from ideabridge.bridge.offer.plan_tools import PlanTools
from ideabridge.bridge.plan import Plan, PlanLike, read_published
from ideabridge.bridge.programs.names import ProgramNames
from ideabridge.bridge.programs.runner import setting_of
from ideabridge.bridge.programs.sandbox import Sandbox
from ideabridge.bridge.publishing.distilling import distill, read_inputs
from ideabridge.bridge.publishing.drafting import Drafted, Drafting, OutlinedRun
from ideabridge.bridge.publishing.idea_tools import find_published, hints_of, needed_modules
from ideabridge.bridge.publishing.importing import (
    SavedIdea,
    check_explained,
    check_guide,
    honest_annotations,
    offered_plan,
    own_cycle,
)
from ideabridge.bridge.publishing.outline import Outline, first_names, outline_of
from ideabridge.bridge.publishing.program_answer import ProgramAnswer
from ideabridge.bridge.publishing.program_request import (
    MUCH_ROOM,
    NO_WORDS,
    ROOM,
    ProgramRequest,
    RefusedProgram,
    ToolWords,
    program_request,
)
from ideabridge.bridge.publishing.programs import (
    Judgement,
    RecordedLiteral,
    RecordedResults,
    copied_values,
    declared_calls,
    input_schema_of,
    named_tools,
    of_one_task,
    own_program,
    recorded_defaults,
    reproduce,
    seen_before_sent,
    sent_texts,
    unreached_sites,
)
from ideabridge.bridge.publishing.teaching import add_record, without_claims
from ideabridge.bridge.publishing.verify import (
    Verdict,
    reason_not_to_run,
    silent_defaults,
    verify_offline,
)
from ideabridge.bridge.publishing.verify import drift as drift_of
from ideabridge.bridge.runs.pins import (
    ChangedTool,
    Pin,
    calls_in,
    changed_in,
    check_pins,
    defined_in,
    essences_of,
    pinned_tools,
    read_pins,
    with_accepted,
    with_own_module,
)
from ideabridge.bridge.runs.replay import (
    Ways,
    asking_calls,
    definitions_in,
    plan_of,
    with_plain_ideas,
)
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.runs.runs import REFUSED_PROGRAM
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import PublicationNameError
from ideabridge.bridge.store.idea import ANSWERS, Answer, NewPublication, Publication
from ideabridge.bridge.store.portable import Checks, read_document
from ideabridge.bridge.store.publications import RESERVED, check_name
from ideabridge.bridge.store.removed_kinds import with_present_kinds
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import EVERYBODY, LOCAL, SEES_ALL, Viewer, user_of
from ideabridge.bridge.store.versions import differences
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import known_as, safe_name
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import ANONYMOUS, IDEA, Tool

T = TypeVar("T")

_AWAY: Final = 1000
"""The largest number of characters in which an error names the modules that are not up."""

MAX_AUDIENCE: Final = 100
"""The largest number of users that one publication can name."""


def read_audience(store: Store, to: str | Iterable[str]) -> tuple[str, ...]:
    """Return the callers that `me` (only the owner), `all`, or names of users stand for; see
    `Publications.share`.

    Raises:
        PublicationError: `to` is empty, has too many names, or combines `me` or `all`
            with other names.
        UnknownUserError: there is no such user.
    """
    words = to.split(",") if isinstance(to, str) else [*to]
    names = [word.strip() for word in words if word.strip()]
    if not names or (len(names) > 1 and not {"me", "all"}.isdisjoint(names)):
        raise PublicationError(
            f"to: expected me, all, or names of users, found {', '.join(names)[:80]!r}"
        )

    if len(names) > MAX_AUDIENCE:
        raise PublicationError(
            f"to: expected at most {MAX_AUDIENCE} names, found {len(names):,}; all: everybody"
        )

    if names == ["me"]:
        return ()
    return (EVERYBODY,) if names == ["all"] else store.users.audience(names)


class _Bridge(Protocol):
    """The methods of `Bridge` that publishing uses."""

    async def run_plan(self, plan: PlanLike, *, caller: str = LOCAL, title: str = "") -> Run: ...
    async def solve(
        self,
        task: str,
        *,
        output_schema: JSONObject,
        tools: Sequence[str],
        context: Sequence[JSON],
        mind: MindName | Choice,
        caller: str = LOCAL,
    ) -> Run: ...
    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]: ...
    async def patiently(self, call: Callable[[], T]) -> T: ...

    async def write(self, job: Callable[[], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes and imports ideas, and checks what is published. `Bridge` documents its methods.

    Attributes:
        bridge: runs plans and programs, and repeats writes that the store refuses.
        store: holds the ideas and the publications.
        offer: the present tools.
        modules: the modules whose tools published plans call.
        configuration: the configuration of the bridge.
        screen: refuses secrets.
        sandbox: returns the workers that check programs, and run them with recorded results.
    """

    bridge: _Bridge
    store: Store
    offer: Offer
    modules: Modules
    configuration: Configuration
    screen: Screen
    sandbox: Callable[[], Sandbox]

    @property
    def drafting(self) -> Drafting:
        """Makes the plans of runs."""
        return Drafting(self.store)

    @property
    def ways(self) -> Ways:
        """Decides how calls are answered, and pins the tools that they mean."""
        return Ways(self.store, self.offer, self.bridge.patiently)

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> SavedIdea:
        """See `Bridge.import_idea`."""
        checks: Checks = "nothing" if edited else "whole"
        read = read_document(document, checks)
        if isinstance(document, dict):
            self.screen.check(document)

        if not publish:
            idea_id = await self.bridge.patiently(
                lambda: self.store.import_idea(document, checks=checks)
            )
            return SavedIdea(idea_id, left_out=read.meta.left_out)

        name = str(read.publication_members()["name"])
        self.check_free(name, caller=caller)
        current = find_published(self.store, name, caller)
        if (
            current is not None
            and current.idea_id == read.idea.id
            and self._is_export_of(name, document)
        ):
            return SavedIdea(current.idea_id, current, current)

        check_explained(read)
        # The digest of the document was checked above.
        written = with_present_kinds(document)
        if written is not document and checks == "whole":
            checks = "idea"

        document = written
        read = read_document(document, checks)
        plan = offered_plan(read)
        check_guide(self.store, read)
        annotations = await self.check_plan(plan, name, caller, where="publication.plan")
        owner = None if caller == LOCAL else caller

        def keep() -> tuple[Publication | None, str, Publication]:
            with self.store.transaction():
                before = find_published(self.store, name, caller)
                proved = without_claims(document, before)
                # The digest of the document was checked above.
                proved_checks: Checks = checks if proved is document else "nothing"
                idea_id = self.store.import_idea(
                    proved,
                    with_publication=True,
                    owner=owner,
                    annotations=annotations,
                    checks=proved_checks,
                )
                after = self.store.publications.versions(name, caller=SEES_ALL, limit=1)[0]
                lines = [] if before is None else differences(before, after)
                if (
                    before is not None
                    and lines
                    and not {name, f"{name}@{before.version}"} & set(replace)
                ):
                    # The transaction is rolled back, so nothing of the document is stored.
                    raise NameInUseError(f"{name}@{before.version}", lines)
                if before is not None and not lines and before.idea_id == idea_id:
                    raise _UnchangedError(before)
                return before, idea_id, after

        try:
            before, idea_id, after = await self.bridge.patiently(keep)
        except _UnchangedError as unchanged:
            return SavedIdea(
                unchanged.publication.idea_id, unchanged.publication, unchanged.publication
            )

        # A document with pins keeps them. Without pins, its calls mean the tools that are here.
        return SavedIdea(
            idea_id, await self.ways.pinned(after, caller), before, left_out=read.meta.left_out
        )

    def _is_export_of(self, name: str, document: JSON) -> bool:
        """Whether a document is what this store would export for a name."""
        try:
            exports = [
                self.store.export_idea(name, caller=SEES_ALL, results=results)
                for results in (False, True)
            ]
        except IdeabridgeError:
            # It contains a secret, for example.
            return False
        return isinstance(document, dict) and document.get("digest") in [
            export["digest"] for export in exports
        ]

    async def check_plan(
        self, plan: Plan | None, name: str, caller: str, *, where: str
    ) -> JSONObject:
        """Check the plan of a document with the tools that are here, and return its
        behaviour hints.

        Args:
            plan: the plan, with an input; None: the idea has none, so its effects are unknown.
            name: the name to publish it under.
            caller: who publishes.
            where: the member of the document that the plan comes from, for errors.

        Raises:
            ModulesAwayError: a module that it calls is configured and not up.
            PublicationError: it would call itself, or cannot run with the tools here.
            PublicationNameError: see `check_free`.
        """
        if plan is None:
            return honest_annotations(None, self.offer.catalogue, self.offer.catalogue)
        await self.expect_listed(plan.calls, _defined_by(plan), caller)
        # Another caller may have taken the name in the meantime.
        self.check_free(name, caller=caller)
        present = PlanTools(self.offer, dataclasses.replace(plan, tools=()), caller).present()
        offered = PlanTools(self.offer, plan, caller).present()
        named = {
            str(call["_tool"])
            for call in plan.calls
            if isinstance(call, dict) and offered.look_up(call)
        }
        calls = with_plain_ideas([with_own_module(call, offered) for call in plan.calls], named)
        cycle = own_cycle(self.store, name, calls)
        if cycle is not None:
            raise PublicationError(f"{where}: {cycle}")

        if all(isinstance(call, dict) and offered.look_up(call) is not None for call in plan.calls):
            try:
                # What an idea that it calls lacks may come later, as its own tools may.
                with suppress(MeantToolError):
                    await self.bridge.dry_run(plan, caller=caller)
            except IdeabridgeError as error:
                raise PublicationError(
                    f"{where}: it cannot run with the tools here: {error}"
                ) from None

        return honest_annotations(plan, present, offered)

    def check_free(self, name: str, *, caller: str = LOCAL) -> None:
        """Check that a publication may have a name.

        Names of modules are taken, and so is every name by which ideabridge's own tools, the
        built-in ones, or those of tool files and modules are called. A name that is already
        published stays valid: no module takes it by listing a tool of that name.

        Raises:
            PublicationNameError: it is not a valid name, or is reserved.
            PublicationError: it belongs to a tool or a module here.
        """
        check_name(name)
        if name in RESERVED:
            raise PublicationNameError(
                f"name: {name!r} is a name of ideabridge itself; choose another"
            )

        tools = [
            tool
            for tool in self.offer.known
            if tool.module is None or not tool.module.startswith("idea:")
        ]
        if any(tool.module is None and name in known_as(tool.name, None, None) for tool in tools):
            raise PublicationError(
                f"name: {name!r} is a tool of ideabridge, or of a tool file here; choose another"
            )

        if find_published(self.store, name, caller) is not None:
            return
        if any(name == safe_name(module) for module in self.configuration.modules):
            raise PublicationError(f"name: {name!r} is a server here; choose another")

        for tool in tools:
            if tool.module is not None and name in known_as(
                tool.name, tool.remote_name, tool.module
            ):
                raise PublicationError(
                    f"name: {name!r} is a tool of server {tool.module!r} here; choose another"
                )

        # Hosts know this name, even if the module no longer lists the tool.
        module, tool = self.store.tool_memory.exposed_names(self._scope).get(name, ("", ""))
        if module in self.configuration.modules:
            raise PublicationError(
                f"name: {name!r} is the name of {module}.{tool} for hosts; choose another"
            )

    @property
    def _scope(self) -> str:
        """The project within which names of exposed tools are unique: projects can share a
        store.
        """
        return str(self.configuration.folder.absolute())

    async def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: Answer = "auto",
        parameters: ObjectLike | None = None,
        choices: ObjectLike | None = None,
        strict: bool = False,
        or_solve: bool = False,
        by: str | Decider = APPROVER,
        to: str | Iterable[str] | None = None,
        program: str | ProgramAnswer | Literal[False] | None = None,
        inputs: Sequence[JSON] | None = None,
        caller: str = LOCAL,
    ) -> Publication:
        """See `Bridge.publish`."""
        check_text("ref", ref)
        check_text("name", name)
        written = _written_program(program, inputs)
        if written is not None:
            description = description or written.description
            parameters = {**written.parameters, **(read_object("parameters", parameters) or {})}

        self.screen.check({"name": name, "description": description})
        self.check_free(name, caller=caller)
        chosen = read_choices(read_object("choices", choices))
        decisions = read_decisions(read_object("parameters", parameters))
        audience = None if to is None else self.audience(to, caller)
        if answer not in ANSWERS:
            raise PublicationError(f"answer: expected {', '.join(ANSWERS)}; found {answer!r}")

        decided = read_object("parameters", parameters) or {}
        making = _Making(chosen, decisions, decided, strict)
        function: Function | None = None
        if written is not None or answer in ("program", "recorded"):
            function = await self.drafting.function(ref, caller)
            outlined = OutlinedRun(outline_of(function, name), None, "")
        else:
            outlined = await self.drafting.outlined(
                ref,
                caller,
                name,
                answer,
                choices=chosen.to_json(),
                parameters=decided,
                strict=strict,
            )

        outline = outlined.outline
        text = (description or outline.description).rstrip()
        text = text if text.endswith((".", "!", "?")) else f"{text}."
        prepared = _PreparedTool(
            "recorded", RECORDED, hints_of(()), outline.input_schema, outline.input or {}
        )
        own = outline.program
        is_done = outline.is_done
        if own is not None and written is None and not is_done:
            # Its results cannot judge the program, which is published as it was written.
            raise NoFinishedRunError(f"run {outline.run} is {outline.status}, not done")
        if answer == "recorded" and not is_done:
            raise PublicationError(
                f"it cannot be recorded: its run is {outline.status} and gave no output; publish "
                "it as a plan or to be solved (answer: plan, solve)"
            )

        if written is not None and answer not in ("auto", "program"):
            raise PublicationError(f"answer: expected 'program' for a program, found {answer!r}")
        if answer == "program" and written is None and own is None:
            raise PublicationError(
                "it cannot be published as a program: its calls were not made by one program; "
                "write one, or let a mind write it (--program ask)"
            )

        no_plan = ""
        if written is not None:
            self.screen.check(written.to_json())
            function = function or await self.drafting.function(outline.run, caller)
            prepared = await self._program(function, written, making, name, caller)
            if written.is_of_mind:
                # A person is asked about a program that the recordings accept.
                audience = self._audience_of_mind(name, audience, decider_of(by), caller)
        elif answer in ("auto", "program") and own is not None:
            function = function or await self.drafting.function(outline.run, caller)
            try:
                prepared = await self._program(function, ProgramAnswer(own), making, name, caller)
            except ProgramRefusedError as error:
                if answer == "program":
                    raise PublicationError(
                        f"it cannot be published as a program: {error}"
                    ) from None
                no_plan = str(error)
        elif answer in ("auto", "plan"):
            lifted = await self._lifted(outlined, making, name, caller)
            if isinstance(lifted, _Lifted):
                prepared = _as_plan(lifted, answer, self.store, decider_of(by), making)
            elif answer == "plan":
                raise PublicationError(f"it cannot be replayed as a plan: {lifted}")
            else:
                no_plan = lifted

        if answer == "auto" and prepared.plan is None and not is_done and not outline.has_results:
            # It is published as it was written.
            raise NoFinishedRunError(f"run {outline.run} is {outline.status}, and did nothing")

        if answer == "solve" or (answer == "auto" and prepared.plan is None):
            guide = await self.drafting.guide(outline.run, caller, text, name)
            if isinstance(guide, dict):
                prepared = _as_guide(guide, answer, outline)
            elif answer == "solve":
                raise PublicationError(f"it cannot be solved anew: {guide}")
            elif not is_done:
                raise PublicationError(f"it cannot become a tool: {no_plan}; and {guide}")

        if or_solve and prepared.plan is not None:
            guide = await self.drafting.guide(outline.run, caller, text, name)
            if isinstance(guide, str):
                raise PublicationError(f"or_solve: it cannot be solved anew: {guide}")
            prepared = _with_guide(prepared, _as_guide(guide, answer, outline))

        recorded: JSONObject = {"input": prepared.recorded}
        sentences = prepared.sentences
        if prepared.output is not None:
            recorded["output"] = prepared.output[0]
        elif is_done:
            recorded["output"] = outline.result
        elif prepared.plan is not None:
            sentences = f"It does what its run did before it ended ({outline.status}). {sentences}"

        if prepared.guide is not None:
            recorded["solve"] = prepared.guide

        output_schema = outline.output_schema
        if not is_done and prepared.plan is None and prepared.guide is not None:
            guide_schema = prepared.guide["output_schema"]
            as_text: JSONObject = {"type": "string"}
            output_schema = guide_schema if isinstance(guide_schema, dict) else as_text

        pins = read_pins(prepared.plan or prepared.guide) or []
        essences = essences_of(outline.catalogue)
        new = NewPublication(
            name=name,
            idea_id=outline.idea,
            description=f"{text} {sentences}".rstrip(),
            answer=prepared.answer,
            input_schema=prepared.input_schema,
            output_schema=output_schema,
            annotations=prepared.annotations,
            plan=prepared.plan,
            recorded=recorded,
            owner=None if caller == LOCAL else caller,
        )

        def keep() -> Publication:
            with self.store.transaction():
                self.store.tool_memory.keep_definitions(
                    {pin.digest: essences[pin.digest] for pin in pins if pin.digest in essences}
                )
                return self.store.publications.publish(
                    new, audience=audience, replaces=self.store.users.manages(caller)
                )

        published = await self.bridge.write(keep)
        if prepared.draft is not None:
            for record in prepared.draft.records:
                add_record(self.store, published, record)
            return dataclasses.replace(
                published, report={**prepared.draft.report, "open": prepared.draft.open}
            )

        report = prepared.report
        if report is None and no_plan:
            point = OpenPoint("no_plan", "", f"the run is no plan: {no_plan}")
            report = {"left_open": no_plan, "open": [point.to_json()]}

        return dataclasses.replace(published, report=report)

    def _audience_of_mind(
        self, name: str, audience: tuple[str, ...] | None, by: Decider, caller: str
    ) -> tuple[str, ...] | None:
        """The callers with whom a version is shared whose words a mind wrote: it has read
        what others wrote.

        A new name is for the publisher alone, and a person decides about anybody else.

        Raises:
            NeedsPersonError: others would see it, and no person has agreed.
        """
        if by.kind == "person" or not self.store.users.exist():
            return audience

        publication = find_published(self.store, name, caller)
        others = audience or (
            ()
            if audience is not None or publication is None
            else self.store.publications.shares(name)
        )
        if others:
            raise NeedsPersonError(
                f"{name!r} is shared with others, and an assistant wrote the program and its "
                "descriptions; a person agrees first, or it gets another name and no `to`"
            )

        return ()

    async def _program(
        self, function: Function, written: ProgramAnswer, making: _Making, name: str, caller: str
    ) -> _PreparedTool:
        """Return a program as a tool.

        Raises:
            ProgramRefusedError: it is malformed, cannot run here, or does not do what its runs did.
        """
        program = written.program
        if making.strict or making.choices.take:
            raise PublicationError(
                "a program has no copied values to decide on: leave strict and take out"
            )

        if function.instances:
            raise ProgramRefusedError("it ran over instances")

        functions = [
            function,
            *[await self.drafting.function(ref, caller) for ref in making.choices.runs],
        ]
        recorded = of_one_task([await self._results(run_function) for run_function in functions])
        inputs = read_inputs(functions, written.inputs)
        names = named_tools(functions, program)
        await self._check_form(program, functions)
        schema, arguments = input_schema_of(program, function, inputs[0], making.decisions)
        if written.inputs:
            schema = await compute_in_thread(_with_examples, schema, written.inputs[0], recorded[0])

        calls = declared_calls(names, program)
        catalogue = recorded[0].catalogue
        plan: JSONObject = {"program": program, "names": names, "calls": calls}
        if function.tools:
            plan["tools"] = list[JSON](function.tools)

        plan["pins"] = [
            Pin.of(tool).to_json() for tool in pinned_tools(calls, catalogue, defined_in(plan))
        ]
        await self.expect_listed(calls, defined_in(plan), caller)
        # Another caller may have taken the name in the meantime.
        self.check_free(name, caller=caller)
        present = PlanTools(
            self.offer, read_published(plan, {}, None, None, name=name), caller
        ).present()
        cycle = own_cycle(self.store, name, calls)
        checked = check_pins(plan, calls, present, essences_of(catalogue).get)
        fault = next((problem for problem in (cycle, *checked.faults) if problem is not None), None)
        if fault is not None:
            raise ProgramRefusedError(fault)

        judgements = await self._judge(program, names, inputs, recorded)
        runs = [other.run for other in recorded[1:]]
        copied = await compute_in_thread(copied_values, program, list[JSON](inputs), recorded)
        if own_program(function) != program:
            stated = {
                parameter: decision.default[0]
                for parameter, decision in making.decisions.items()
                if decision.default
            }
            defaults = await compute_in_thread(recorded_defaults, program, stated, inputs, recorded)
            lines_of_defaults = {(literal.line, literal.value) for literal in defaults}
            copied = [
                *defaults,
                *(
                    literal
                    for literal in copied
                    if (literal.line, literal.value) not in lines_of_defaults
                ),
            ]
            undeclared = [
                literal for literal in defaults if not _is_declared(literal, written.constants)
            ]
            if undeclared:
                plan["recorded_defaults"] = list[JSON](
                    dict.fromkeys(literal.parameter for literal in undeclared)
                )

        if written.is_of_mind and not runs:
            _expect_confirmed(copied, written.constants)

        if own_program(function) != program:
            # Most of these are the same for every input, so they are named and not asked about.
            sent = await compute_in_thread(sent_texts, program, list[JSON](inputs), recorded)
            lines_of_copied = {(literal.line, literal.value) for literal in copied}
            copied += [
                literal for literal in sent if (literal.line, literal.value) not in lines_of_copied
            ]

        if copied:
            plan["copied"] = [value.text for value in copied]

        report: JSONObject = {
            "reproduces": [function.run.id, *runs],
            "copied": [value.text for value in copied],
        }
        report["rows"] = [row.to_json() for row in parameter_rows(schema, arguments)]
        if own_program(function) != program:
            reached = sorted({site for judgement in judgements for site in judgement.reached})
            plan["reached"] = [site.to_json() for site in reached]
            unreached = unreached_sites(program, ProgramNames.of(names, catalogue.tools), reached)
            if unreached:
                report["unreached"] = [call.text for call in unreached]

        lifting: JSONObject = {"run": function.run.id, "runs": list[JSON](runs)}
        lifting |= {
            "checked": "confirmed" if runs else "self-consistent",
            "confirmed_by": list[JSON](runs),
        }
        if written.is_of_mind:
            lifting["words_of"] = "assistant"

        if "unreached" in report:
            lifting["unreached"] = report["unreached"]

        called = [
            tool
            for call in calls
            if isinstance(call, dict) and (tool := present.look_up(call)) is not None
        ]
        asking = ", ".join(
            _tool(calls[place]) for place in asking_calls(self.store, present, calls)
        )
        sentences = f"A model is asked by {asking}." if asking else ""
        if written.is_of_mind:
            sentences = f"{sentences} {_WORDS_OF_MIND}".lstrip()

        hints = hints_of(tool for tool in called if tool.key not in present.latent)
        plan["lifting"] = lifting
        output = None if recorded[0].output_counts else (judgements[0].output,)
        return _PreparedTool(
            "program", sentences, hints, schema, arguments, plan=plan, report=report, output=output
        )

    async def _judge(
        self,
        program: str,
        names: JSONObject,
        inputs: Sequence[JSONObject],
        recorded: Sequence[RecordedResults],
    ) -> list[Judgement]:
        """Run a program with the results of each run.

        Raises:
            ProgramRefusedError: it does not do what one of them did.
        """
        judgements: list[Judgement] = []
        for results, value in zip(recorded, inputs, strict=True):
            judgement = await reproduce(self.sandbox(), program, names, value, results)
            if judgement.difference is not None:
                raise ProgramRefusedError(
                    f"with the results of run {results.run}, {judgement.difference}"
                )
            judgements.append(judgement)

        return judgements

    async def _check_form(self, program: str, functions: Sequence[Function]) -> None:
        """Raise ProgramRefusedError if a program that is not that of its run is malformed."""
        if own_program(functions[0]) == program:
            return

        tools = {
            tool.key: tool
            for function in functions
            for tool in function.run.machine.catalogue.tools
        }
        setting = setting_of(ProgramNames(tools.values()), {"input": {}, "state": {}}, 0.0, "")
        problem = await self.sandbox().check(program, setting)
        if problem is not None:
            raise ProgramRefusedError(problem)

    async def _results(self, function: Function) -> RecordedResults:
        record = self.store.runs.get(function.run.id)
        if record is None:
            raise PublicationError(f"run {function.run.id} is gone: it was deleted in the meantime")
        return await compute_in_thread(RecordedResults.of, function.run, record)

    async def distill(
        self,
        refs: Sequence[str],
        name: str,
        *,
        description: str | None = None,
        to: str | Iterable[str] | None = None,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
    ) -> tuple[Publication, list[RefusedProgram]]:
        """Let a mind write a program that does what runs did, and publish it. It may
        try three times.

        Args:
            refs: runs of the same task, each as in `Bridge.publish`; the parameters are those
                of the first one.
            name: see `Bridge.publish`.
            description: see `Bridge.publish`.
            to: see `Bridge.publish`.
            mind: who writes it; see `choose`.
            caller: the owner of the runs.

        Returns:
            (the publication, the programs that were refused before it, each with the reason).

        Raises:
            PublicationError: no program does what the runs did, or there is no mind.
        """
        self.check_free(name, caller=caller)
        if not refs:
            raise PublicationError("refs: expected at least one run")

        choices: JSONObject = {"runs": list[JSON](refs[1:])}

        async def publish(answer: ProgramAnswer) -> Publication:
            return await self.publish(
                refs[0],
                name,
                description=description,
                to=to,
                choices=choices,
                program=answer,
                caller=caller,
            )

        words = ToolWords(name, description)
        describe = partial(self.program_request, refs, caller, words=words, room=MUCH_ROOM)
        return await distill(self.bridge, describe, publish, self.note_refused, mind, caller)

    async def note_refused(self, run: str, reason: str) -> None:
        """Note that the program which a mind wrote in a run was refused: the run
        itself ended well.
        """
        await self.bridge.write(
            lambda: self.store.settings.set(REFUSED_PROGRAM + run, reason.encode())
        )

    async def program_request(
        self,
        refs: Sequence[str],
        caller: str,
        refused: Sequence[RefusedProgram] = (),
        *,
        words: ToolWords = NO_WORDS,
        room: int = ROOM,
    ) -> ProgramRequest:
        """Return what the author of a program for `Bridge.publish` is told about runs.

        Args:
            refs: runs of the same task, each as in `Bridge.publish`.
            caller: the owner of the runs.
            refused: the programs that the author wrote before.
            words: what the publisher says about the tool.
            room: the most estimated tokens of its text.
        """
        runs: list[tuple[Function, RecordedResults]] = []
        for ref in refs:
            function = await self.drafting.function(ref, caller)
            runs.append((function, await self._results(function)))
        points = await self.drafting.open_points(refs, caller)
        return await compute_in_thread(
            partial(program_request, runs, points, refused, words=words, room=room)
        )

    async def _lifted(
        self, run: OutlinedRun, making: _Making, name: str, caller: str
    ) -> _Lifted | str:
        """Return the plan with every choice applied, or the reason why the run cannot be a plan."""
        draft = run.draft
        if draft is None:
            return run.no_plan
        await self.expect_listed(calls_in(draft.plan), defined_in(draft.plan), caller)
        # Another caller may have taken the name in the meantime.
        self.check_free(name, caller=caller)
        plan = read_published(
            draft.plan, draft.arguments, draft.schema, run.outline.output_schema, name="it"
        )
        catalogue = PlanTools(self.offer, plan, caller).present()
        cycle = own_cycle(self.store, name, calls_in(draft.plan))
        if cycle is not None:
            return cycle

        essences = essences_of(run.outline.catalogue)
        checked = check_pins(draft.plan, calls_in(draft.plan), catalogue, essences.get)
        if checked.faults:
            return checked.faults[0]
        if draft.fault is not None:
            raise PublicationError(draft.fault)
        if draft.difference is not None and making.choices.take:
            raise PublicationError(
                f"with what was taken, it does not do what its run did: {draft.difference}"
            )

        if draft.difference is None:
            return _Lifted(draft, catalogue)
        return draft.difference

    async def expect_listed(
        self, calls: Iterable[JSON], defined: frozenset[str], caller: str
    ) -> None:
        """Wait until the modules that calls need have listed their tools; see `needed_modules`.

        Raises:
            ModulesAwayError: a module has not listed its tools.
        """
        calls = list(calls)

        async def unlisted() -> list[ModuleStatus]:
            needed = needed_modules(self.store, calls, caller, self.offer.known_catalogue, defined)
            return await self.offer.unreached(needed)

        # Twice, because a module may turn out to be needed only when another has listed its tools.
        if await unlisted() and (away := await unlisted()):
            problems = "; ".join(
                status.error or f"server {status.name!r} is {status.state}" for status in away
            )
            raise ModulesAwayError(
                "its calls need tools of a server that is not up: "
                f"{problems[:_AWAY]}. Try again when it is up"
            )

    def audience(self, to: str | Iterable[str], caller: str) -> tuple[str, ...]:
        """Return the callers that a new version is shared with; see `read_audience`."""
        audience = read_audience(self.store, to)
        users = self.store.users
        only_admins = self.configuration.users.share == "admins"
        if audience and only_admins and user_of(caller) is not None and not users.manages(caller):
            raise PublicationError(
                "to: here only admins publish to others; leave `to` out, or say me"
            )
        return audience

    # -- verifying ---------------------------------------------------------------------------------

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """See `Bridge.drift`."""
        try:
            await self.expect_listed(plan.calls, _defined_by(plan), caller)
        except ModulesAwayError as error:
            return str(error), None

        reason = reason_not_to_run(
            plan.calls, PlanTools(self.offer, plan, caller).present(), effects=effects
        )
        if reason is not None:
            return reason, None

        run = await self.bridge.run_plan(
            plan, caller=caller, title=f"verify {plan.name or 'a lifted plan'}"
        )
        status = await run.wait()
        different = drift_of(run, output)
        if status != "done":
            run.cancel("it was only run for a comparison")

        return None, different

    async def verify(
        self,
        names: Iterable[str] = (),
        *,
        live: bool = True,
        effects: bool = False,
        caller: str = LOCAL,
    ) -> list[Verdict]:
        """See `Bridge.verify`."""
        publications = [
            self.store.publications.named(name, caller=caller) for name in names
        ] or self._published(caller)
        verdicts: list[Verdict] = []
        for before in publications:
            with suppress(ModulesAwayError):  # the verdict reports it
                await self.expect_listed(calls_in(before.plan), defined_in(before.plan), caller)
                await self.expect_listed(
                    calls_in((before.guide or {}).get("plan")), defined_in(before.guide), caller
                )

            publication = await self.ways.pinned(before, caller)
            recorded = publication.recorded if isinstance(publication.recorded, dict) else {}
            plan = _plan_of(publication, recorded.get("input"))
            tools = PlanTools(self.offer, plan, caller).present()
            checked = self.ways.check_pins(publication.plan or publication.guide, plan.calls, tools)
            verdict = await verify_offline(publication, self.store, checked)
            if plan.program is not None and "output" in recorded and not verdict.faults:
                await self._reproduce(publication, plan, caller, verdict)

            verdict.notes += await self._silent_defaults(publication, caller)
            if publication is not before:
                verdict.notes.append("its tools are pinned now")

            if publication.plan is not None and "output" not in recorded:
                verdict.notes.append("not run: no output is recorded to compare with")
            elif publication.plan is not None and live and not verdict.faults:
                reason, different = await self.drift(
                    plan, recorded.get("output"), effects=effects, caller=caller
                )
                verdict.faults += [] if different is None else [different]
                verdict.notes.append(f"not run: {reason}" if reason is not None else "run again")

            verdicts.append(verdict)

        return verdicts

    async def _silent_defaults(self, publication: Publication, caller: str) -> list[str]:
        """Return what a plan that an earlier version published does not say; see `silent_defaults`.

        Only its run shows that, so no migration can add it to plans whose run is gone.
        """
        plan = publication.plan or {}
        lifting = plan.get("lifting")
        if not isinstance(lifting, dict) or "program" in plan or publication.learned is not None:
            return []

        run = lifting.get("run")
        if not isinstance(run, str) or self.store.runs.get(run) is None:
            return []

        choices = lifting.get("choices")
        parameters = lifting.get("parameters")
        try:
            draft = await self.drafting.draft(
                run,
                publication.owner or caller,
                choices=choices if isinstance(choices, dict) else None,
                parameters=parameters if isinstance(parameters, dict) else None,
                strict=plan.get("strict") is True,
            )
        except IdeabridgeError as error:
            return [f"its run would not become this plan today: {error}"]

        return silent_defaults(plan, draft.plan)

    async def _reproduce(
        self, publication: Publication, plan: Plan, caller: str, verdict: Verdict
    ) -> None:
        """Check whether a published program still does what its run did, if this
        store has the run.
        """
        lifting = (publication.plan or {}).get("lifting")
        run = lifting.get("run") if isinstance(lifting, dict) else None
        try:
            function = await self.drafting.function(
                str(run or publication.idea_id), publication.owner or caller
            )
        except IdeabridgeError as error:
            # An imported program comes without its run.
            verdict.notes.append(f"its run cannot be read: {error}")
            return

        results = await self._results(function)
        names = plan.names or {}
        judgement = await reproduce(
            self.sandbox(), plan.program or "", names, plan.input or {}, results
        )
        difference = judgement.difference
        if difference is None:
            verdict.notes.append("with its recorded results it does what its run did")
        else:
            verdict.faults.append(f"not self-consistent any more: {difference}")

    async def changed_tools(self, module: str) -> list[ChangedTool]:
        """See `Bridge.changed_tools`."""
        if module and not module.startswith(IDEA):
            await self.modules[module].ready(SETTLE_SECONDS)

        changed: list[ChangedTool] = []
        definition = self.store.tool_memory.definition
        for live in self._published(SEES_ALL):
            for before in self.store.publications.versions(live.name, caller=SEES_ALL):
                pinned = await self.ways.pinned(before, before.owner or LOCAL)
                tools = PlanTools(self.offer, _plan_of(pinned, {}), pinned.owner or LOCAL).present()
                changed += changed_in(pinned, module, tools, definition)

        return changed

    def accept(self, changed: Iterable[ChangedTool], *, by: str | Decider) -> None:
        """See `Bridge.accept`."""
        groups: dict[tuple[str, int], list[ChangedTool]] = {}
        for change in changed:
            groups.setdefault((change.publication.name, change.publication.version), []).append(
                change
            )

        with self.store.transaction():
            for group in groups.values():
                publication = group[0].publication
                plan = publication.plan
                guide = publication.guide
                if plan is not None:
                    plan = with_accepted(plan, group, decider_of(by))
                elif guide is not None:
                    guide = with_accepted(guide, group, decider_of(by))

                self.store.publications.pin(
                    publication,
                    plan,
                    guide,
                    {change.tool.digest: change.tool.essence for change in group},
                )

    def _published(self, caller: Viewer) -> list[Publication]:
        publications: list[Publication] = []
        after: str | None = None
        while True:
            page = self.store.publications.page(200, after, caller=caller)
            publications += page.items
            if page.next is None:
                return publications
            after = page.next


def _defined_by(plan: Plan) -> frozenset[str]:
    return frozenset(str(tool.get("name")) for tool in plan.tools)


def _plan_of(publication: Publication, arguments: JSON) -> Plan:
    """Return the plan of a publication with an input, or else the calls of its guide."""
    if publication.plan is not None:
        return plan_of(publication, arguments if isinstance(arguments, dict) else {})
    guide = publication.guide or {}
    return Plan(calls=calls_in(guide.get("plan")), tools=definitions_in(guide))


class _UnchangedError(Exception):
    """Rolls a transaction back in which nothing changed."""

    def __init__(self, publication: Publication) -> None:
        self.publication = publication


RECORDED: Final = "The recorded answer, for its one input."

_WORDS_OF_MIND: Final = "An assistant wrote its program and these descriptions."


def _written_program(
    program: str | ProgramAnswer | Literal[False] | None, inputs: Sequence[JSON] | None
) -> ProgramAnswer | None:
    if isinstance(program, ProgramAnswer):
        return program
    if program is None or program is False:
        return None
    return ProgramAnswer(program, None if inputs is None else tuple(inputs))


_EXAMPLE: Final = 100
"""The most characters of an example."""


def _with_examples(schema: JSONObject, arguments: JSON, recording: RecordedResults) -> JSONObject:
    """Return an input schema with an example for each parameter that has no description: the
    value of the run.

    Everybody whom the tool is shared with sees it. So it is a value that the publisher gave the
    run, and none that may come from one of its results, which are the publisher's own.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not isinstance(arguments, dict):
        return schema

    described: JSONObject = {}
    for name, declared in properties.items():
        value = arguments.get(name)
        described[name] = declared
        if not isinstance(declared, dict) or not {"description", "default", "examples"}.isdisjoint(
            declared
        ):
            continue

        is_short = isinstance(value, str | int | float) and 0 < len(str(value)) <= _EXAMPLE
        if is_short and not isinstance(value, bool) and not seen_before_sent(value, recording):
            described[name] = {**declared, "examples": [value]}

    return {**schema, "properties": described}


def _expect_confirmed(copied: Sequence[RecordedLiteral], constants: Sequence[JSON]) -> None:
    """Raise ConstantsOpenError if a mind's program has recorded values that the mind did not
    name as constants.

    One run cannot show whether they are the same for other input: a program that only writes its
    values down does what the run did, and nothing else. A person's program is published as it is,
    and its report names them.
    """
    open_ = [literal for literal in copied if not _is_declared(literal, constants)]
    if open_:
        named = "; ".join(literal.text for literal in open_)
        values = [*dict.fromkeys(literal.value for literal in open_)]
        raise ConstantsOpenError(
            f"it does what the run did, but recorded values stand in it: {named}. Take them from "
            "a result or from `input`; or, if they are the same for every input, hand it in with "
            f"constants: {encode_text(list[JSON](values))}",
            list[JSON](values),
        )


def _is_declared(literal: RecordedLiteral, constants: Sequence[JSON]) -> bool:
    """Return whether the author of a program says that a recorded value is the same
    for every input.
    """
    return any(same(literal.value, constant) for constant in constants)


@dataclass(frozen=True, slots=True)
class _PreparedTool:
    """How a publication answers, the sentences that its description says about this, and what
    is stored for it.

    `recorded` is the input with which it repeats its run; `output`, if given, is its output instead
    of that of the run.
    """

    answer: Answer
    sentences: str
    annotations: JSONObject
    input_schema: JSONObject
    recorded: JSONObject
    plan: JSONObject | None = None
    guide: JSONObject | None = None
    draft: Drafted | None = None
    report: JSONObject | None = None
    output: tuple[JSON] | None = None


@dataclass(frozen=True, slots=True)
class _Making:
    """What a person decides about a plan; `decisions` are what `parameters` says."""

    choices: Choices
    decisions: dict[str, ParameterDecision]
    parameters: JSONObject
    strict: bool


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A plan with every choice applied, and the tools that it calls."""

    draft: Drafted
    catalogue: Catalogue


def _as_plan(
    lifted: _Lifted, answer: str, store: Store, by: Decider, making: _Making
) -> _PreparedTool:
    draft = lifted.draft
    catalogue = lifted.catalogue
    places = asking_calls(store, catalogue, draft.calls)
    asking = ", ".join(f"calls.{place} ({_tool(draft.calls[place])})" for place in places)
    lifting: JSONObject = {
        "run": draft.run,
        "runs": draft.runs,
        "checked": "confirmed" if draft.confirmed else "self-consistent",
        "confirmed_by": draft.confirmed,
        "choices": making.choices.to_json(),
        "parameters": making.parameters,
    }
    if draft.places is not None:
        # The calls of the run, by the places of the plan; several if they were folded into one,
        # null if only another run made it.
        lifting["places"] = draft.places

    if lifting["choices"] or making.parameters:
        lifting["decided_by"] = by.to_json()

    if draft.open:
        lifting["open"] = draft.open

    plan: JSONObject = {**draft.plan, "lifting": lifting}
    listed = [call for call in calls_in(plan) if isinstance(call, dict)]
    # A latent call only asks a mind.
    called = [
        tool
        for call in listed
        if (tool := catalogue.look_up(call)) and tool.key not in catalogue.latent
    ]
    return _PreparedTool(
        "auto" if answer == "auto" else "plan",
        f"A model is asked for {asking} alone." if asking else "",
        hints_of(called),
        draft.schema,
        draft.arguments,
        plan=plan,
        draft=draft,
    )


def _as_guide(guide: JSONObject, answer: str, outline: Outline) -> _PreparedTool:
    catalogue = outline.catalogue
    # Clean rooms have the same tools as the run itself.
    offered = [
        tool
        for tool in catalogue.tools
        if tool.key not in catalogue.latent and tool.module != ANONYMOUS
    ]
    hints = hints_of(offered)
    kind: Answer = "auto" if answer == "auto" else "solve"
    return _PreparedTool(
        kind,
        describe_guide(offered, hints),
        hints,
        outline.input_schema,
        outline.input or {},
        guide=guide,
    )


def describe_guide(offered: Sequence[Tool], hints: JSONObject) -> str:
    """Return the sentence that says that a mind solves an idea, and which tools it may call."""
    names = [tool.name for tool in offered]
    reads = ", which only read" if hints["readOnlyHint"] is True else ""
    may = f"; it may call {first_names(names)}{reads}" if names else ""
    return f"A model solves it anew{may}."


def _with_guide(prepared: _PreparedTool, guided: _PreparedTool) -> _PreparedTool:
    """A plan after which a mind goes on where it gives no output."""
    pairs = {
        key: (prepared.annotations.get(key), guided.annotations.get(key))
        for key in prepared.annotations
    }
    every = ("readOnlyHint", "idempotentHint")
    hints: JSONObject = {}
    for key, pair in pairs.items():
        if key in every:
            hints[key] = all(hint is True for hint in pair)
        else:
            hints[key] = any(hint is not False for hint in pair)

    sentences = f"{prepared.sentences} Where the plan cannot go on, a model does.".lstrip()
    return dataclasses.replace(prepared, annotations=hints, sentences=sentences, guide=guided.guide)


def _tool(call: JSON) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else ""
