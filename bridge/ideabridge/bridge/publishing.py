"""Publishing: the part of the bridge that makes tools of ideas, calls them, and looks after them (DESIGN 4.11)."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from ideabridge.bridge.arguments import check_text, read_object
from ideabridge.bridge.errors import ModulesAwayError, NameInUseError, PublicationError
from ideabridge.bridge.idea_tools import needed_modules
from ideabridge.bridge.ideas.errors import PublicationNameError, UnknownPublicationError
from ideabridge.bridge.ideas.portable import Checks, read_document
from ideabridge.bridge.ideas.publications import RESERVED, check_name
from ideabridge.bridge.ideas.records import Answer, Publication
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.ideas.users import EVERYBODY, user_of
from ideabridge.bridge.ideas.versions import differences
from ideabridge.bridge.keeping import LOCAL, Keeping
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.decider import APPROVER, Decider, decider_of
from ideabridge.bridge.minds.choice import AUTO, Choice, MindName
from ideabridge.bridge.modules.status import ModuleStatus
from ideabridge.bridge.offer import SETTLE_SECONDS
from ideabridge.bridge.plan import Plan, PlanLike
from ideabridge.bridge.replay.adopt import (
    Adopted,
    check_circle,
    check_guide,
    honest_annotations,
    known_calls,
    offered_plan,
)
from ideabridge.bridge.replay.choices import read_choices
from ideabridge.bridge.replay.decide import Decided, decide
from ideabridge.bridge.replay.lift import lift
from ideabridge.bridge.replay.pins import Changed, calls_in, changed_in, defined_in, with_accepted
from ideabridge.bridge.replay.publish import publish
from ideabridge.bridge.replay.replay import Replay, check_arguments, plan_of
from ideabridge.bridge.replay.solving import calls_of
from ideabridge.bridge.replay.verify import Verdict, reason_not_to_run, verdict_of
from ideabridge.bridge.replay.verify import drift as drift_of
from ideabridge.bridge.run import Run
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.ways import Ways
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import known_as, safe_name
from ideabridge.tools.tool import IDEA

T = TypeVar("T")

_AWAY: Final = 1000
"""Characters in which an error names the modules that are not up."""

MAX_AUDIENCE: Final = 100
"""Users that one publication can name."""


def read_audience(store: Store, to: str | Iterable[str]) -> tuple[str, ...]:
    """The callers that are meant by `me` (none besides the owner), `all`, or names of users; see `Store.share`.

    Raises:
        PublicationError: it is none of these.
        UnknownUserError: there is no such user.
    """
    words = to.split(",") if isinstance(to, str) else [*to]
    names = [word.strip() for word in words if word.strip()]
    if not names or (len(names) > 1 and not {"me", "all"}.isdisjoint(names)):
        raise PublicationError(f"to: expected me, all, or names of users, found {', '.join(names)[:80]!r}")
    if len(names) > MAX_AUDIENCE:
        raise PublicationError(f"to: expected at most {MAX_AUDIENCE} names, found {len(names):,}; all: everybody")
    if names == ["me"]:
        return ()
    return (EVERYBODY,) if names == ["all"] else store.users.audience(names)


class Publishing(Keeping):
    """Makes tools of ideas. `Bridge` is this and the runs."""

    @abstractmethod
    async def run_plan(self, plan: PlanLike, *, caller: str = LOCAL, title: str = "") -> Run:
        """Start a plan."""

    @abstractmethod
    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]:
        """What a plan would do."""

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> Adopted:
        """Save an exported idea, and `publish` it as the next version of the name in it.

        What the document says of its effects is not believed: the annotations are those of the tools here. A plan whose
        tools are all here is checked against their schemas.

        Args:
            document: what `export_idea` gave.
            publish: publish it too.
            caller: who imports it.
            edited: somebody has looked at the document, which need not be what was exported.
            replace: the published names, each NAME or NAME@VERSION, that it may take the place of.

        Raises:
            IdeaDocumentError, TamperedIdeaError, NameTakenError: see `Store.import_idea`.
            NameInUseError: the name stands for something else here, and `replace` does not name it.
            ModulesAwayError: a module that it calls is configured and not up.
            PublicationError: its plan would call itself, or cannot run with the tools here; or no fresh run could begin
                with what it says one begins with; or its name is a tool's here.
            SecretGivenError: it holds a secret of the configuration.
        """
        checks: Checks = "nothing" if edited else "whole"
        read = read_document(document, checks)
        if isinstance(document, dict):
            Screen(self.secrets).check(document)
        if not publish:
            return Adopted(await self.patiently(lambda: self.store.import_idea(document, checks=checks)))
        told = read.publication_members()
        name = str(told["name"])
        self.check_free(name, caller=caller)
        plan = offered_plan(read)
        check_guide(self.store, read)
        if plan is not None:
            await self._expect_listed(plan.calls, _defined_by(plan), caller)
            # Somebody may have taken it meanwhile.
            self.check_free(name, caller=caller)
        here = offered = self.offer.catalogue
        if plan is not None:
            here = self.offer.of_plan(dataclasses.replace(plan, tools=()), caller)
            offered = self.offer.of_plan(plan, caller)
            check_circle(self.store, name, plan.calls)
            if known_calls(plan, offered):
                try:
                    await self.dry_run(plan, caller=caller)
                except IdeabridgeError as error:
                    raise PublicationError(f"publication.plan: it cannot run with the tools here: {error}") from None
        annotations = honest_annotations(plan, here, offered)
        owner = None if caller == LOCAL else caller

        def keep() -> tuple[Publication | None, str, Publication]:
            with self.store.transaction():
                try:
                    before = self.store.publication(name, caller=caller)
                except UnknownPublicationError:
                    before = None
                idea_id = self.store.import_idea(
                    document, with_publication=True, owner=owner, annotations=annotations, checks=checks
                )
                after = self.store.versions(name)[0]
                if before is not None and not {name, f"{name}@{before.version}"} & set(replace):
                    lines = differences(before, after)
                    if lines:
                        # Nothing of the document is kept.
                        raise NameInUseError(f"{name}@{before.version}", lines)
                return before, idea_id, after

        before, idea_id, after = await self.patiently(keep)
        # A document that says which tools it means goes on meaning them; of another, those that are here are meant.
        return Adopted(idea_id, await self.ways.pinned(after, caller), before)

    def check_free(self, name: str, *, caller: str = LOCAL) -> None:
        """Refuse a name that a publication may not have, since calls by it mean another tool: ideabridge's own, the
        built-in ones, those of tool files and of modules by every name they are reached by, and the modules' names.

        A name that stands for an idea already keeps doing so: no module takes it by listing a tool of that name.

        Raises:
            PublicationNameError: it is no name, or is ideabridge's own.
            PublicationError: it is a tool's or a module's here.
        """
        check_name(name)
        if name in RESERVED:
            raise PublicationNameError(f"name: {name!r} is a name of ideabridge itself; choose another")
        tools = [tool for tool in self.offer.known if tool.module is None or not tool.module.startswith("idea:")]
        if any(tool.module is None and name in known_as(tool.name, None, None) for tool in tools):
            raise PublicationError(f"name: {name!r} is a tool of ideabridge, or of a tool file here; choose another")
        try:
            self.store.publication(name, caller=caller)
        except UnknownPublicationError:
            pass
        else:
            return
        if any(name == safe_name(module) for module in self.configuration.modules):
            raise PublicationError(f"name: {name!r} is a module here; choose another")
        for tool in tools:
            if tool.module is not None and name in known_as(tool.name, tool.remote_name, tool.module):
                raise PublicationError(f"name: {name!r} is a tool of module {tool.module!r} here; choose another")
        # Hosts were told it, also where the module lists it no more.
        module, tool = self.store.tool_memory.exposed_names(self._scope).get(name, ("", ""))
        if module in self.configuration.modules:
            raise PublicationError(f"name: {name!r} is the name of {module}.{tool} for hosts; choose another")

    @property
    def _scope(self) -> str:
        """Where names of exposed tools count: stores are shared by projects."""
        return str(self.configuration.folder.absolute())

    @abstractmethod
    async def patiently(self, call: Callable[[], T]) -> T:
        """Call what writes into the store; again, where it cannot be written."""

    @property
    @abstractmethod
    def ways(self) -> Ways:
        """How calls of published ideas are answered, and which tools they mean."""

    @abstractmethod
    async def _replay(
        self, publication: Publication, arguments: JSONObject, mind: MindName | Choice, caller: str, *, samples: bool
    ) -> Replay:
        """Answer a call that was checked: give the stored answer, or start the run that answers."""

    async def publish(
        self,
        ref: str,
        name: str,
        *,
        description: str | None = None,
        answer: Answer = "auto",
        choices: ObjectLike | None = None,
        by: str | Decider = APPROVER,
        to: str | Iterable[str] | None = None,
        caller: str = LOCAL,
    ) -> Publication:
        """Publish an idea, or the last idea of a run, as a tool; see `ideabridge.bridge.replay.publish`. Waits for the
        modules that its plan calls.

        Args:
            ref: the idea, or the run.
            name: what it is called.
            description: what it does, for models.
            answer: how a call is answered.
            choices: what a person decides about a plan.
            by: who made the choices; a text is the name of an approver.
            to: to whom, see `read_audience`; None: to those it is given to already, and a new name to everybody where
                the local person publishes it, to the caller alone where anybody else does.
            caller: who publishes. An admin may publish a version of what others share with them.

        Raises:
            PublicationError: it cannot be published so.
            ModulesAwayError: a module that its plan calls is not up.
            UnknownUserError: it is to be published to a user that there is not.
            UnknownIdeaError, UnknownRunError: there is none that a run of this caller's made.
            SecretGivenError: its name or description holds a secret of the configuration.
            ArgumentError: `ref`, `name` or `choices` is of another kind.
            PublicationNameError: see `check_free`.
        """
        check_text("ref", ref)
        check_text("name", name)
        Screen(self.secrets).check({"name": name, "description": description})
        self.check_free(name, caller=caller)

        async def tools(plan: Plan, held: JSONObject) -> Catalogue:
            await self._expect_listed(calls_in(held), defined_in(held), caller)
            # Somebody may have taken it meanwhile.
            self.check_free(name, caller=caller)
            return self.offer.of_plan(plan, caller)

        return await publish(
            self.store,
            tools,
            ref,
            name,
            description=description,
            answer=answer,
            choices=read_object("choices", choices),
            by=decider_of(by),
            caller=caller,
            owner=None if caller == LOCAL else caller,
            audience=None if to is None else self._audience(to, caller),
            replaces=self.store.users.manages(caller),
            patiently=self.patiently,
        )

    async def _expect_listed(self, calls: Iterable[JSON], defined: frozenset[str], caller: str) -> None:
        """Wait until the modules have listed their tools that calls need; see `needed_modules`.

        Raises:
            ModulesAwayError: one has not.
        """
        calls = list(calls)

        async def unlisted() -> list[ModuleStatus]:
            needed = needed_modules(self.store, calls, caller, self.offer.known_catalogue, defined)
            return await self.offer.listed(needed)

        # Looked at again: which module has a tool may be known only once it has listed it.
        if await unlisted() and (away := await unlisted()):
            shown = "; ".join(one.error or f"module {one.name!r} is {one.state}" for one in away)
            raise ModulesAwayError(
                f"its calls need tools of a module that is not up: {shown[:_AWAY]}. Try again when it is up"
            )

    def _audience(self, to: str | Iterable[str], caller: str) -> tuple[str, ...]:
        audience, users = read_audience(self.store, to), self.store.users
        only_admins = self.configuration.users.share == "admins"
        if audience and only_admins and user_of(caller) is not None and not users.manages(caller):
            raise PublicationError("to: here only admins publish to others; leave `to` out, or say me")
        return audience

    def lift(self, ref: str, *, choices: ObjectLike | None = None, caller: str = LOCAL) -> Decided:
        """The plan a run, or the run of an idea, would be published as, with what is still asked; `report_of` tells it.

        Args:
            ref: as `publish` takes it.
            choices: what is decided already; see `read_choices`.
            caller: whose runs are looked at.

        Raises:
            PublicationError: it cannot be a plan whatever is accepted, or a choice does not fit it.
            UnknownIdeaError, UnknownRunError: there is none that a run of this caller's made.
        """
        check_text("ref", ref)
        chosen = read_choices(read_object("choices", choices))
        return decide(lift(self.store, ref, caller, chosen.runs), chosen)

    async def call_idea(
        self,
        name: str,
        arguments: ObjectLike,
        *,
        mind: MindName | Choice = AUTO,
        caller: str = LOCAL,
        version: int | None = None,
        samples: bool = False,
    ) -> Replay:
        """Answer a call of a published idea: with the recorded output, or by a run, started here, of its plan or one
        that solves it anew. `auto` is the plan where there is one, else solving anew.

        Args:
            name: NAME, or NAME@VERSION.
            arguments: its input.
            mind: who answers where it is solved anew, see `choose`.
            caller: who calls; a run is theirs.
            version: where the name does not say it; None: the one it stands for now.
            samples: as for `run_plan`.

        Raises:
            ValueMismatchError: the arguments do not satisfy the tool's parameters.
            PublicationError: recorded with another input, or a tool it was solved with is gone.
            PlanError: the plan cannot run (a tool is gone, say).
            MindUnavailableError: a mind that is not there.
            UnknownPublicationError: nothing is published to this caller under that name.
            ArgumentError: the name is not text, or the arguments are no object.
        """
        store = self.store
        check_text("name", name)
        given = read_object("arguments", arguments) or {}
        pinned = version is not None
        publication = store.publication(name, version, caller=caller) if pinned else store.named(name, caller=caller)
        check_arguments(publication, given)
        return await self._replay(publication, given, mind, caller, samples=samples)

    # -- looking after them ------------------------------------------------------------------------------------

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """Run a plan with the input it was recorded with, and compare what it gives.

        Args:
            plan: with its recorded input.
            output: what it gave then.
            effects: run it also where its calls may do more than read; what asks waits for approval, and is a fault.
            caller: whose run it is.

        Returns:
            (why it is not run, what is different now); (None, None): it gives the same.
        """
        try:
            await self._expect_listed(plan.calls, _defined_by(plan), caller)
        except ModulesAwayError as error:
            return str(error), None
        why = reason_not_to_run(plan.calls, self.offer.of_plan(plan, caller), effects=effects)
        if why is not None:
            return why, None
        run = await self.run_plan(plan, caller=caller, title=f"verify {plan.name or 'a lifted plan'}")
        status = await run.wait()
        different = drift_of(run, output)
        if status != "done":
            run.cancel("it was only to be compared")
        return None, different

    async def verify(
        self, names: Iterable[str] = (), *, live: bool = True, effects: bool = False, caller: str = LOCAL
    ) -> list[Verdict]:
        """Look after what is published: whether its tools are there and unchanged, the plan still does what its run
        did, and, `live`, still gives what it gave.

        Args:
            names: which, each NAME or NAME@VERSION; none: all that this caller sees.
            live: run plans that only read.
            effects: run the others too.
            caller: who asks.

        Raises:
            UnknownPublicationError: nothing is published to this caller under one of the names.
        """
        wanted = list(names)
        found = [self.store.named(name, caller=caller) for name in wanted] if wanted else self._published(caller)
        verdicts: list[Verdict] = []
        for before in found:
            with suppress(ModulesAwayError):  # the verdict says so
                await self._expect_listed(calls_in(before.plan), defined_in(before.plan), caller)
                await self._expect_listed(calls_of(before.guide or {}), defined_in(before.guide), caller)
            publication = await self.ways.pinned(before, caller)
            recorded = publication.recorded if isinstance(publication.recorded, dict) else {}
            given = recorded.get("input")
            plan = None
            if publication.plan is not None:
                plan = plan_of(publication, given if isinstance(given, dict) else {})
            solved = None if publication.guide is None else Plan(calls=calls_of(publication.guide))
            looked = plan or solved
            tools = self.offer.catalogue if looked is None else self.offer.of_plan(looked, caller)
            standing = self.ways.standing(
                publication.plan or publication.guide, [] if looked is None else looked.calls, tools
            )
            verdict = verdict_of(publication, self.store, standing)
            if publication is not before:
                verdict.notes.append("its tools are pinned now")
            if plan is not None and live and not verdict.faults:
                why, different = await self.drift(plan, recorded.get("output"), effects=effects, caller=caller)
                verdict.faults += [] if different is None else [different]
                verdict.notes.append(f"not run: {why}" if why is not None else "run again")
            verdicts.append(verdict)
        return verdicts

    async def changed_tools(self, module: str) -> list[Changed]:
        """The tools of a module that changed since ideas that call them were published, of every version and owner.

        Args:
            module: the module, `idea:NAME`; "": the tools of this process.

        Raises:
            ModuleError: the module is not up.
            UnknownModuleError: there is none of that name.
        """
        if module and not module.startswith(IDEA):
            await self.modules.ready(module, SETTLE_SECONDS)
        found: list[Changed] = []
        definition = self.store.tool_memory.definition
        for live in self._published(None):
            for before in self.store.versions(live.name):
                one = await self.ways.pinned(before, before.owner or LOCAL)
                looked = plan_of(one, {}) if one.plan is not None else Plan(calls=calls_of(one.guide or {}))
                found += changed_in(one, module, self.offer.of_plan(looked, one.owner or LOCAL), definition)
        return found

    def accept(self, changed: Iterable[Changed], *, by: str | Decider) -> None:
        """Let published ideas mean what changed tools are now. Each version keeps what its tools were, when that was
        accepted and by whom.

        Args:
            changed: from `changed_tools`, as a person saw them.
            by: who accepts.
        """
        groups: dict[tuple[str, int], list[Changed]] = {}
        for one in changed:
            groups.setdefault((one.publication.name, one.publication.version), []).append(one)
        with self.store.transaction():
            for group in groups.values():
                publication = group[0].publication
                plan, guide = publication.plan, publication.guide
                if plan is not None:
                    plan = with_accepted(plan, group, decider_of(by))
                elif guide is not None:
                    guide = with_accepted(guide, group, decider_of(by))
                self.store.pin(publication, plan, guide, {one.tool.digest: one.tool.essence for one in group})

    def _published(self, caller: str | None) -> list[Publication]:
        found: list[Publication] = []
        after: str | None = None
        while True:
            page = self.store.publications(200, after, caller=caller)
            found += page.items
            if page.next is None:
                return found
            after = page.next


def _defined_by(plan: Plan) -> frozenset[str]:
    return frozenset(str(tool.get("name")) for tool in plan.tools)
