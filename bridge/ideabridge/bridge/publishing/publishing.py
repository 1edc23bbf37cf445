"""Publishing: making tools of ideas, and checking whether what is published still holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from ideabridge.bridge.arguments import check_text, read_object
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.errors import ModulesAwayError, NameInUseError, PublicationError
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.bridge.loop.event import APPROVER, Decider, decider_of
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleStatus
from ideabridge.bridge.plan import Plan, PlanLike
from ideabridge.bridge.publishing.idea_tools import needed_modules
from ideabridge.bridge.publishing.importing import (
    ImportResult,
    check_circle,
    check_guide,
    honest_annotations,
    known_calls,
    offered_plan,
)
from ideabridge.bridge.publishing.publish import publish
from ideabridge.bridge.publishing.verify import Verdict, reason_not_to_run, verify_offline
from ideabridge.bridge.publishing.verify import drift as drift_of
from ideabridge.bridge.runs.offer import SETTLE_SECONDS, Offer
from ideabridge.bridge.runs.pins import ChangedTool, calls_in, changed_in, defined_in, with_accepted
from ideabridge.bridge.runs.replay import Ways, plan_of
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.store.errors import PublicationNameError, UnknownPublicationError
from ideabridge.bridge.store.idea import Answer, Publication
from ideabridge.bridge.store.portable import Checks, read_document
from ideabridge.bridge.store.publications import RESERVED, check_name
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import EVERYBODY, LOCAL, user_of
from ideabridge.bridge.store.versions import differences
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
    """The callers that are meant by `me` (none besides the owner), `all`, or names of users; see `Publications.share`.

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


class PlanRunner(Protocol):
    """What publishing needs of a bridge besides its parts."""

    async def run_plan(self, plan: PlanLike, *, caller: str = LOCAL, title: str = "") -> Run:
        """See `Bridge.run_plan`."""
        ...

    async def dry_run(self, plan: PlanLike, *, caller: str = LOCAL) -> dict[str, Any]:
        """See `Bridge.dry_run`."""
        ...

    async def patiently(self, call: Callable[[], T]) -> T:
        """See `Bridge.patiently`."""
        ...


class Publisher:
    """Makes tools of ideas, and checks whether what is published still holds.

    Args:
        bridge: runs plans, and repeats what the store could not write.
        store: holds the ideas and the publications.
        offer: the tools there are now.
        modules: whose tools published plans call.
        configuration: of the bridge.
        screen: refuses secrets.
    """

    def __init__(
        self,
        bridge: PlanRunner,
        *,
        store: Store,
        offer: Offer,
        modules: Modules,
        configuration: Configuration,
        screen: Screen,
    ) -> None:
        self._bridge = bridge
        self._store = store
        self._offer = offer
        self._modules = modules
        self._configuration = configuration
        self._screen = screen
        self._ways = Ways(store, offer, bridge.patiently)

    async def import_idea(
        self,
        document: JSON,
        *,
        publish: bool = False,
        caller: str = LOCAL,
        edited: bool = False,
        replace: Collection[str] = (),
    ) -> ImportResult:
        """See `Bridge.import_idea`."""
        checks: Checks = "nothing" if edited else "whole"
        read = read_document(document, checks)
        if isinstance(document, dict):
            self._screen.check(document)
        if not publish:
            return ImportResult(await self._bridge.patiently(lambda: self._store.import_idea(document, checks=checks)))
        told = read.publication_members()
        name = str(told["name"])
        self.check_free(name, caller=caller)
        plan = offered_plan(read)
        check_guide(self._store, read)
        if plan is not None:
            await self._expect_listed(plan.calls, _defined_by(plan), caller)
            # Somebody may have taken it meanwhile.
            self.check_free(name, caller=caller)
        here = offered = self._offer.catalogue
        if plan is not None:
            here = self._offer.of_plan(dataclasses.replace(plan, tools=()), caller)
            offered = self._offer.of_plan(plan, caller)
            check_circle(self._store, name, plan.calls)
            if known_calls(plan, offered):
                try:
                    await self._bridge.dry_run(plan, caller=caller)
                except IdeabridgeError as error:
                    raise PublicationError(f"publication.plan: it cannot run with the tools here: {error}") from None
        annotations = honest_annotations(plan, here, offered)
        owner = None if caller == LOCAL else caller

        def keep() -> tuple[Publication | None, str, Publication]:
            with self._store.transaction():
                try:
                    before = self._store.publications.get(name, caller=caller)
                except UnknownPublicationError:
                    before = None
                idea_id = self._store.import_idea(
                    document, with_publication=True, owner=owner, annotations=annotations, checks=checks
                )
                after = self._store.publications.versions(name)[0]
                if before is not None and not {name, f"{name}@{before.version}"} & set(replace):
                    lines = differences(before, after)
                    if lines:
                        # Nothing of the document is kept.
                        raise NameInUseError(f"{name}@{before.version}", lines)
                return before, idea_id, after

        before, idea_id, after = await self._bridge.patiently(keep)
        # A document that says which tools it means goes on meaning them; of another, those that are here are meant.
        return ImportResult(idea_id, await self._ways.pinned(after, caller), before)

    def check_free(self, name: str, *, caller: str = LOCAL) -> None:
        """See `Bridge.check_free`."""
        check_name(name)
        if name in RESERVED:
            raise PublicationNameError(f"name: {name!r} is a name of ideabridge itself; choose another")
        tools = [tool for tool in self._offer.known if tool.module is None or not tool.module.startswith("idea:")]
        if any(tool.module is None and name in known_as(tool.name, None, None) for tool in tools):
            raise PublicationError(f"name: {name!r} is a tool of ideabridge, or of a tool file here; choose another")
        try:
            self._store.publications.get(name, caller=caller)
        except UnknownPublicationError:
            pass
        else:
            return
        if any(name == safe_name(module) for module in self._configuration.modules):
            raise PublicationError(f"name: {name!r} is a module here; choose another")
        for tool in tools:
            if tool.module is not None and name in known_as(tool.name, tool.remote_name, tool.module):
                raise PublicationError(f"name: {name!r} is a tool of module {tool.module!r} here; choose another")
        # Hosts were told it, also where the module lists it no more.
        module, tool = self._store.tool_memory.exposed_names(self._scope).get(name, ("", ""))
        if module in self._configuration.modules:
            raise PublicationError(f"name: {name!r} is the name of {module}.{tool} for hosts; choose another")

    @property
    def _scope(self) -> str:
        """Where names of exposed tools count: stores are shared by projects."""
        return str(self._configuration.folder.absolute())

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
        """See `Bridge.publish`."""
        check_text("ref", ref)
        check_text("name", name)
        self._screen.check({"name": name, "description": description})
        self.check_free(name, caller=caller)
        return await publish(
            self._store,
            self,
            ref,
            name,
            description=description,
            answer=answer,
            choices=read_object("choices", choices),
            by=decider_of(by),
            caller=caller,
            owner=None if caller == LOCAL else caller,
            audience=None if to is None else self._audience(to, caller),
            replaces=self._store.users.manages(caller),
        )

    async def tools_for(self, plan: Plan, stored: JSONObject, *, name: str, caller: str) -> Catalogue:
        """See `PublishingHost`."""
        await self._expect_listed(calls_in(stored), defined_in(stored), caller)
        # Another caller may have taken the name in the meantime.
        self.check_free(name, caller=caller)
        return self._offer.of_plan(plan, caller)

    async def patiently(self, call: Callable[[], T]) -> T:
        """See `PublishingHost`."""
        return await self._bridge.patiently(call)

    async def _expect_listed(self, calls: Iterable[JSON], defined: frozenset[str], caller: str) -> None:
        """Wait until the modules have listed their tools that calls need; see `needed_modules`.

        Raises:
            ModulesAwayError: one has not.
        """
        calls = list(calls)

        async def unlisted() -> list[ModuleStatus]:
            needed = needed_modules(self._store, calls, caller, self._offer.known_catalogue, defined)
            return await self._offer.listed(needed)

        # Looked at again: which module has a tool may be known only once it has listed it.
        if await unlisted() and (away := await unlisted()):
            shown = "; ".join(one.error or f"module {one.name!r} is {one.state}" for one in away)
            raise ModulesAwayError(
                f"its calls need tools of a module that is not up: {shown[:_AWAY]}. Try again when it is up"
            )

    def _audience(self, to: str | Iterable[str], caller: str) -> tuple[str, ...]:
        audience, users = read_audience(self._store, to), self._store.users
        only_admins = self._configuration.users.share == "admins"
        if audience and only_admins and user_of(caller) is not None and not users.manages(caller):
            raise PublicationError("to: here only admins publish to others; leave `to` out, or say me")
        return audience

    # -- looking after them ------------------------------------------------------------------------------------

    async def drift(
        self, plan: Plan, output: JSON, *, effects: bool = False, caller: str = LOCAL
    ) -> tuple[str | None, str | None]:
        """See `Bridge.drift`."""
        try:
            await self._expect_listed(plan.calls, _defined_by(plan), caller)
        except ModulesAwayError as error:
            return str(error), None
        why = reason_not_to_run(plan.calls, self._offer.of_plan(plan, caller), effects=effects)
        if why is not None:
            return why, None
        run = await self._bridge.run_plan(plan, caller=caller, title=f"verify {plan.name or 'a lifted plan'}")
        status = await run.wait()
        different = drift_of(run, output)
        if status != "done":
            run.cancel("it was only to be compared")
        return None, different

    async def verify(
        self, names: Iterable[str] = (), *, live: bool = True, effects: bool = False, caller: str = LOCAL
    ) -> list[Verdict]:
        """See `Bridge.verify`."""
        wanted = list(names)
        found = (
            [self._store.publications.named(name, caller=caller) for name in wanted]
            if wanted
            else self._published(caller)
        )
        verdicts: list[Verdict] = []
        for before in found:
            with suppress(ModulesAwayError):  # the verdict says so
                await self._expect_listed(calls_in(before.plan), defined_in(before.plan), caller)
                await self._expect_listed(calls_in((before.guide or {}).get("plan")), defined_in(before.guide), caller)
            publication = await self._ways.pinned(before, caller)
            recorded = publication.recorded if isinstance(publication.recorded, dict) else {}
            given = recorded.get("input")
            plan = None
            if publication.plan is not None:
                plan = plan_of(publication, given if isinstance(given, dict) else {})
            solved = None if publication.guide is None else Plan(calls=calls_in(publication.guide.get("plan")))
            looked = plan or solved
            tools = self._offer.catalogue if looked is None else self._offer.of_plan(looked, caller)
            checked = self._ways.check_pins(
                publication.plan or publication.guide, [] if looked is None else looked.calls, tools
            )
            verdict = verify_offline(publication, self._store, checked)
            if publication is not before:
                verdict.notes.append("its tools are pinned now")
            if plan is not None and live and not verdict.faults:
                why, different = await self.drift(plan, recorded.get("output"), effects=effects, caller=caller)
                verdict.faults += [] if different is None else [different]
                verdict.notes.append(f"not run: {why}" if why is not None else "run again")
            verdicts.append(verdict)
        return verdicts

    async def changed_tools(self, module: str) -> list[ChangedTool]:
        """See `Bridge.changed_tools`."""
        if module and not module.startswith(IDEA):
            await self._modules.ready(module, SETTLE_SECONDS)
        found: list[ChangedTool] = []
        definition = self._store.tool_memory.definition
        for live in self._published(None):
            for before in self._store.publications.versions(live.name):
                one = await self._ways.pinned(before, before.owner or LOCAL)
                looked = (
                    plan_of(one, {}) if one.plan is not None else Plan(calls=calls_in((one.guide or {}).get("plan")))
                )
                found += changed_in(one, module, self._offer.of_plan(looked, one.owner or LOCAL), definition)
        return found

    def accept(self, changed: Iterable[ChangedTool], *, by: str | Decider) -> None:
        """See `Bridge.accept`."""
        groups: dict[tuple[str, int], list[ChangedTool]] = {}
        for one in changed:
            groups.setdefault((one.publication.name, one.publication.version), []).append(one)
        with self._store.transaction():
            for group in groups.values():
                publication = group[0].publication
                plan, guide = publication.plan, publication.guide
                if plan is not None:
                    plan = with_accepted(plan, group, decider_of(by))
                elif guide is not None:
                    guide = with_accepted(guide, group, decider_of(by))
                self._store.publications.pin(
                    publication, plan, guide, {one.tool.digest: one.tool.essence for one in group}
                )

    def _published(self, caller: str | None) -> list[Publication]:
        found: list[Publication] = []
        after: str | None = None
        while True:
            page = self._store.publications.page(200, after, caller=caller)
            found += page.items
            if page.next is None:
                return found
            after = page.next


def _defined_by(plan: Plan) -> frozenset[str]:
    return frozenset(str(tool.get("name")) for tool in plan.tools)
