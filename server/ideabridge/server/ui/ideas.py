"""The pages of saved ideas, suggestions for tools, and published tools."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.context.explanations import CUT, Explained, as_it_runs
from ideabridge.bridge.context.state import Missing, read
from ideabridge.bridge.errors import NoFinishedRunError, ProgramRefusedError, PublicationError
from ideabridge.bridge.lifting.choices import Choices, read_choices
from ideabridge.bridge.lifting.evidence import KINDS, explained_in, read_record
from ideabridge.bridge.lifting.plain import read_open
from ideabridge.bridge.lifting.report import ToolReport
from ideabridge.bridge.publishing.drafting import Drafted
from ideabridge.bridge.publishing.publish_request import PublishRequest, program_to_publish
from ideabridge.bridge.store.daily_use import TitledRuns
from ideabridge.bridge.store.errors import PublicationNameError, UnknownRunError
from ideabridge.bridge.store.idea import (
    Answer,
    Change,
    IdeaHit,
    IdeaRecord,
    Publication,
    StoredIdea,
)
from ideabridge.bridge.store.portable import without_recorded_output
from ideabridge.bridge.store.published import PublishedPlan, PublishedRecording
from ideabridge.bridge.store.run_filter import RunFilter
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.bridge.store.users import (
    EVERYBODY,
    LOCAL,
    Viewer,
    owner_of,
    person_of,
    sees_run_of,
)
from ideabridge.server.ui.access import FormFields, Note, Visitor, form_of, visitor_of
from ideabridge.server.ui.coloured import coloured
from ideabridge.server.ui.forms import (
    Audience,
    fields_of_tool,
    number_from,
    read_fields,
    with_values,
    without_place,
)
from ideabridge.server.ui.idea_folder import IdeaFolder
from ideabridge.server.ui.plan_steps import PlanSteps, order_of, words_of_plan
from ideabridge.server.ui.proposed_names import general_title, name_of_calls
from ideabridge.server.ui.readable_names import has_words, readable, title_names_tools
from ideabridge.server.ui.reference_words import ReferenceWords
from ideabridge.server.ui.run_rows import RunRow, RunRows
from ideabridge.server.ui.runs import PAGE as PAGE_OF_RUNS
from ideabridge.server.ui.showing import (
    LONGEST,
    as_json,
    bounded,
    in_few_words,
    in_one_line,
)
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.suggested import SuggestedTool
from ideabridge.server.ui.tool_policies import ToolRow, tool_row
from ideabridge.server.ui.tool_texts import is_built_in, opening_sentence, request_with
from ideabridge.server.ui.tool_titles import ToolTitles
from ideabridge.server.ui.trials import page_after, trial_of
from ideabridge.server.views.records import listed_runs
from ideabridge.server.views.shown import plan_without_ids
from ideabridge.server.views.text import source_text
from ideabridge.server.views.value_table import tool_of
from ideabridge.tools.encoding import (
    JSON,
    JSONObject,
    decode,
    encode,
    encode_text,
    list_or_empty,
    object_or_empty,
    objects_in,
)
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import counted, name_from, safe_name
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import Tool
from ideabridge.tools.typed import read_as

PAGE: Final = 50

VERSIONS: Final = 20
"""Maximum number of versions of a tool on its page. Each is compared with the version before it."""

_EVIDENCE: Final = 100
_USES: Final = 100
"""Number of the latest runs that are searched for calls to a tool."""

_MOST_COUNTED: Final = 1000
"""Number of the latest runs among which the list of tools counts the uses of each."""

_MOST_CHARACTERS: Final = 20_000
"""Number of characters in a context after which a page shows no further message."""

_ANSWERS: Final[tuple[tuple[Answer, str], ...]] = (
    ("auto", "by the plan if there is one, otherwise by a model"),
    ("plan", "by the plan: its calls run again"),
    ("program", "by the program: it runs again"),
    ("recorded", "by the recording: the same output, for the same input only"),
    ("solve", "by a model each time, with this run as an example"),
)
_SEEN_AS: Final = (
    ("Claude Code, Codex", "mcp__ideabridge__{}"),
    ("opencode", "ideabridge_{}"),
    ("Gemini CLI", "mcp_ideabridge_{}"),
)
"""The name under which the model of a host sees a tool; see docs/hosts.md."""

_VIEWS: Final = ("published", "suggested", "written", "saved", "servers", "files", "built-in")

_SUGGESTIONS: Final = 10
"""Maximum number of suggested tools on the page."""

_BESIDE: Final = 10
"""Number of servers' tools that search results show. A link leads to the others."""


@dataclass(frozen=True, slots=True)
class CopiedValue:
    """A copied value in a plan, and what it could become with different data.

    Attributes:
        path: where the value is in the plan.
        place: `path` in words, for example `amount for refund (call 1)`.
        recorded: the recorded value.
        options: the text and value of each option, one per explanation.
        taken: the explanation that calls currently follow.
        runs: how many runs the explanations fit.
        why: why no single explanation is certain.
    """

    path: str
    place: str
    recorded: JSON
    options: list[tuple[str, str]]
    taken: str
    runs: int
    why: str


@dataclass(frozen=True, slots=True)
class SettledValue:
    """An earlier decision about a copied value.

    Attributes:
        path: where the value is in the plan.
        place: `path` in words.
        taken: where the value comes from, in words.
        source: the decision, in the format of the `take` parameter of `Bridge.publish`.
    """

    path: str
    place: str
    taken: str
    source: JSON


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A published tool in the list.

    Attributes:
        publication: the tool.
        audience: who can use the tool.
        lack: why this server cannot call the tool, or None if it can.
        confirmed: how many further runs have confirmed the tool.
        used: how many of the visitor's newest runs called the tool, or None if none did.
        only_reads: whether none of the tools that it calls changes anything.
    """

    publication: Publication
    audience: str
    lack: str | None
    confirmed: int
    used: TitledRuns | None
    only_reads: bool


@dataclass(frozen=True, slots=True)
class ChangeSince:
    """The changes in a version of a tool.

    Attributes:
        before: the number of the previous version.
        change: the differences from that version.
    """

    before: int
    change: Change


@dataclass(frozen=True, slots=True)
class EarlierDecisions:
    """The earlier decisions about a run, as the `parameters` and `choices` of `Bridge.publish`."""

    parameters: JSONObject = field(default_factory=dict[str, JSON])
    choices: JSONObject = field(default_factory=dict[str, JSON])


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One person's recent use of a tool, through one program.

    Attributes:
        runs: how many of the latest runs are calls of the tool by this person through this program.
        run: the latest of these runs.
    """

    runs: int
    run: RunRecord


class IdeaPages:
    """The pages about ideas."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge
        self._run_rows = RunRows(site.bridge)
        self._folder = IdeaFolder(site.bridge.configuration.project.absolute())

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        changing = self._site.changing
        return [
            Route("/ideas", self.list),
            Route("/ideas/publish", self.draft),
            Route("/ideas/publish", changing(self.publish), methods=["POST"]),
            Route("/ideas/id/{idea}", self.saved),
            Route("/ideas/{name}", self.show),
            Route("/ideas/{name}/diff", self.diff),
            Route("/ideas/{name}/call", changing(self.call), methods=["POST"]),
            Route("/ideas/{name}/verify", changing(self.verify), methods=["POST"]),
            Route("/ideas/{name}/version", changing(self.choose_version), methods=["POST"]),
            Route("/ideas/{name}/unpublish", changing(self.unpublish), methods=["POST"]),
        ]

    # -- lists -------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """Show the tools that were made here. With `show`, show handwritten tools, tools of
        servers, tools from files, built-in tools, suggestions or saved runs instead. With `q`, show
        everything that matches the words.
        """
        query = request.query_params
        visitor = visitor_of(request)
        words = query.get("q", "").strip()
        view = query.get("show", "published")
        if view not in _VIEWS:
            view = "published"

        values: dict[str, Any] = {
            "tools": [],
            "ideas": [],
            "server_tools": [],
            "file_tools": [],
            "built_in": [],
            "suggestions": [],
            "older": "",
            "folder": "",
            "files": [],
        }
        if words and view not in ("servers", "saved"):
            view = "found"
            values |= await self._found(words, visitor)
        elif view == "servers":
            values |= await self._of_servers(query, words, visitor)
        elif view in ("built-in", "files"):
            values |= await compute_in_thread(self._rows_of_own_tools, "", visitor)
        elif view == "suggested":
            suggest = partial(self._bridge.suggest, limit=_SUGGESTIONS + 1, caller=visitor.caller)
            suggestions = await compute_in_thread(suggest)
            shown = suggestions[:_SUGGESTIONS]
            titles = self._site.titles(visitor)
            values["suggestions"] = [SuggestedTool.of(suggestion, titles) for suggestion in shown]
            values["more_suggestions"] = len(suggestions) > _SUGGESTIONS
        elif view == "saved":
            values |= self._saved(query, words, visitor)
        else:
            values |= self._made_here(query, visitor, by_hand=view == "written")

        if view == "written" and visitor.is_owner:
            folder = self._folder
            values["folder"] = str(folder.path)
            values["files"] = await compute_in_thread(
                folder.files, self._bridge.store.publications, visitor.scope
            )

        rows = await compute_in_thread(self._rows_of, values["ideas"], visitor)
        suggested = [run for card in values["suggestions"] for run in card.runs]
        rows |= await compute_in_thread(self._rows, suggested, visitor)
        counts = await compute_in_thread(self._counts, visitor)
        return self._site.page(
            request, "ideas.html", view=view, words=words, rows=rows, counts=counts, **values
        )

    def _counts(self, visitor: Visitor) -> dict[str, int]:
        """Return how many tools are in each view, except views that are slow to count."""
        own = self._own_tools("", visitor)
        built_in = sum(map(is_built_in, own))
        return {
            "published": self._bridge.store.publications.count(caller=visitor.scope),
            "servers": len(self._server_tools("", visitor)),
            "files": len(own) - built_in,
            "built-in": built_in,
        }

    async def _found(self, words: str, visitor: Visitor) -> dict[str, Any]:
        """Return the first search results of each kind, and whether there are more."""
        store = self._bridge.store
        tools = store.publications.page(PAGE, caller=visitor.scope, words=words)
        of_servers = await compute_in_thread(self._server_tools, words, visitor)
        ideas = store.ideas.search(words, PAGE + 1, caller=visitor.scope)
        return {
            "tools": self._listed(tools.items, visitor),
            "more_tools": tools.next is not None,
            "server_tools": [
                tool_row(self._bridge, tool, visitor) for tool in of_servers[:_BESIDE]
            ],
            "server_tools_found": len(of_servers),
            **await compute_in_thread(self._rows_of_own_tools, words, visitor),
            "ideas": ideas[:PAGE],
            "more_ideas": len(ideas) > PAGE,
        }

    def _made_here(self, query: QueryParams, visitor: Visitor, *, by_hand: bool) -> dict[str, Any]:
        """Return a page of the tools that were made here or, with `by_hand`, of those that a person
        wrote.
        """
        after = query.get("after") or None
        page = self._bridge.store.publications.page(
            PAGE, after, caller=visitor.scope, by_hand=by_hand
        )
        following = {"show": query.get("show", "published"), "after": page.next}
        return {
            "tools": self._listed(page.items, visitor),
            "older": f"?{urlencode(following)}" if page.next else "",
        }

    def _saved(self, query: QueryParams, words: str, visitor: Visitor) -> dict[str, Any]:
        """Return a page of the saved runs, or the newest ones that match the words. Visitors who do
        not manage get the newest ones that they may see.
        """
        ideas = self._bridge.store.ideas
        if words or not visitor.manages:
            return {"ideas": _of_runs(ideas.search(words, PAGE, caller=visitor.scope))}

        page = ideas.page(PAGE, query.get("after") or None)
        following = {"show": "saved", "after": page.next}
        return {
            "ideas": _of_runs(page.items),
            "older": f"?{urlencode(following)}" if page.next else "",
        }

    async def _of_servers(self, query: QueryParams, words: str, visitor: Visitor) -> dict[str, Any]:
        """Return a page of the servers' tools that match the words."""
        first = number_from(query.get("first", "")) or 0
        known = await compute_in_thread(self._server_tools, words, visitor)
        values: dict[str, Any] = {
            "server_tools": [
                tool_row(self._bridge, tool, visitor) for tool in known[first : first + PAGE]
            ],
            "server_tools_found": len(known),
        }
        if len(known) > first + PAGE:
            following = {"show": "servers", "q": words, "first": first + PAGE}
            values["older"] = f"?{urlencode(following)}"
        return values

    def _server_tools(self, words: str, visitor: Visitor) -> list[Tool]:
        """Return the servers' tools that match the words and that the visitor may call, ordered by
        server.
        """
        known = self._having(words, self._bridge.modules.known_tools(), visitor)
        return sorted(known, key=lambda tool: (tool.module or "", tool.name))

    def _rows_of_own_tools(self, words: str, visitor: Visitor) -> dict[str, list[ToolRow]]:
        """Return rows for the tools of this process that match the words: built-in tools, and tools
        from files.
        """
        rows: dict[str, list[ToolRow]] = {"built_in": [], "file_tools": []}
        for tool in self._own_tools(words, visitor):
            kind = "built_in" if is_built_in(tool) else "file_tools"
            rows[kind].append(tool_row(self._bridge, tool, visitor))
        return rows

    def _own_tools(self, words: str, visitor: Visitor) -> list[Tool]:
        own = (tool for tool in self._bridge.tools() if tool.module is None)
        return sorted(self._having(words, own, visitor), key=attrgetter("name"))

    def _having(self, words: str, tools: Iterable[Tool], visitor: Visitor) -> list[Tool]:
        """Return the tools that match the words and that the visitor may call."""
        offer = self._bridge.offer.to(visitor.caller)
        return [tool for tool in tools if offer.has_tool(tool) and has_words(tool, words)]

    def _rows_of(
        self, ideas: Sequence[IdeaRecord | IdeaHit | StoredIdea], visitor: Visitor
    ) -> dict[str, RunRow]:
        """Return the rows of the runs that ideas come from, keyed by run."""
        return self._rows([idea.meta.run for idea in ideas if idea.meta.run], visitor)

    def _rows(self, runs: Iterable[str], visitor: Visitor) -> dict[str, RunRow]:
        """Return the rows of runs, keyed by run, without those that the visitor cannot see."""
        records: dict[str, RunRecord] = {}
        for run in runs:
            with contextlib.suppress(UnknownRunError):
                records[run] = self._bridge.store.runs.find(run, caller=visitor.scope)

        newest = listed_runs(self._bridge.store, visitor.scope, PAGE_OF_RUNS)
        rows = self._run_rows.of(list(records.values()), newest)
        return {row.record.id: row for row in rows}

    def _listed(self, publications: Sequence[Publication], visitor: Visitor) -> list[ListedTool]:
        names = [publication.name for publication in publications]
        store = self._bridge.store
        confirmed = store.evidence.confirmations(names, caller=visitor.scope)
        used = store.daily_use.runs_by_title(names, _MOST_COUNTED, caller=visitor.scope)
        return [
            ListedTool(
                publication,
                self._audience(publication),
                self._lacks(publication, visitor),
                confirmed.get(publication.name, 0),
                used.get(publication.name),
                self._only_reads(publication, visitor),
            )
            for publication in publications
        ]

    def _only_reads(self, publication: Publication, visitor: Visitor) -> bool:
        hints = self._bridge.hints(publication, caller=visitor.caller)
        return hints.get("readOnlyHint") is True

    def _lacks(self, publication: Publication, visitor: Visitor) -> str | None:
        """Return why this server cannot run a visitor's calls of a tool, or None if it can; see
        `Bridge.why_not_here`.
        """
        return self._bridge.why_not_here(publication, caller=visitor.caller)

    def _audience(self, publication: Publication) -> str:
        if publication.owner is None:
            return self._everybody()
        shares = self._bridge.store.publications.shares(publication.name)
        if EVERYBODY in shares:
            return self._everybody()
        return ", ".join([person_of(publication.owner), *map(person_of, shares)])

    def _everybody(self) -> str:
        """Return a phrase for the people who can call a tool that is shared with everybody."""
        if self._bridge.store.users.exist():
            return "everybody"
        return "all your assistants"

    def _first_audience(self, visitor: Visitor) -> str:
        """Return a phrase for the people who can call a visitor's new tool by default."""
        if owner_of(visitor.caller) == LOCAL:
            return self._everybody()
        return "you alone"

    async def saved(self, request: Request) -> Response:
        """Show one saved idea with its context, schema and solution."""
        visitor = visitor_of(request)
        stored = self._bridge.store.ideas.get(request.path_params["idea"], caller=visitor.scope)
        rows = await compute_in_thread(self._rows_of, [stored], visitor)
        messages = await compute_in_thread(_first_messages, stored.idea.context)
        return await self._site.page_beside(
            request,
            "idea.html",
            stored=stored,
            row=rows.get(stored.meta.run or ""),
            names=stored.meta.tools,
            messages=messages,
            more_messages=len(stored.idea.context) - len(messages),
        )

    # -- one published tool ------------------------------------------------------------------------

    def _publication(self, request: Request) -> Publication:
        """Return the version to show, if it is published to the visitor."""
        version = number_from(request.query_params.get("version", ""))
        return self._bridge.store.publications.get(
            request.path_params["name"], version, caller=visitor_of(request).scope
        )

    def _own(self, request: Request) -> Publication:
        """Return the publication, if the visitor may change the version that its name refers to.

        Raises:
            PublicationError: the publication belongs to someone else.
        """
        publication = self._publication(request)
        visitor = visitor_of(request)
        if not (visitor.manages or publication.owner == owner_of(visitor.caller)):
            owner = person_of(publication.owner or LOCAL)
            raise PublicationError(
                f"{publication.name} belongs to {owner}; only the owner can choose its version"
            )
        return publication

    async def show(self, request: Request) -> Response:
        """Show a published tool: its parameters, what it does with different data, and its
        versions.
        """
        store = self._bridge.store
        publication = self._publication(request)
        visitor = visitor_of(request)
        name = publication.name
        scope = visitor.scope
        after = number_from(request.query_params.get("after", "")) or None
        versions = store.publications.versions(name, caller=scope, limit=VERSIONS + 1, before=after)
        # With a single version, a list would only repeat what the page already shows.
        if len(versions) == 1 and after is None:
            versions = []
        older = ""
        if len(versions) > VERSIONS:
            query = {"after": versions[VERSIONS - 1].version}
            if "version" in request.query_params:
                query["version"] = publication.version
            older = f"?{urlencode(query)}"

        changes = await compute_in_thread(self._changes, versions, scope)
        # Use a thread, because the recording can be megabytes of JSON.
        recording = await compute_in_thread(_recording, publication, visitor)
        evidence = store.evidence.records(name, publication.version, caller=scope)
        run = self._run_of(publication, visitor)
        record = None if run is None else store.runs.get(run)
        plan = _runs(publication)
        steps = PlanSteps()
        if plan is not None:
            order = await order_of(
                self._bridge, _runnable_plan(publication.present_plan or {}), visitor.caller
            )
            steps = PlanSteps.of(plan, order, self._site.titles(visitor))
        trial = await trial_of(self._site, request)
        fields = fields_of_tool(publication, recording.input or {})
        return await self._site.page_beside(
            request,
            "tool.html",
            one=publication,
            audience=self._audience(publication),
            fields=fields if trial is None else with_values(fields, trial.values),
            trial=trial,
            recording=recording,
            choices=_choices_of(publication, self._site.titles(visitor)),
            evidence=[_evidence(record) for record in evidence[-_EVIDENCE:]],
            versions=versions[:VERSIONS],
            older=older,
            changes=changes,
            run=run,
            is_own_run=record is not None and sees_run_of(visitor.caller, record.caller),
            may_change=visitor.manages or publication.owner == owner_of(visitor.caller),
            only_reads=self._only_reads(publication, visitor),
            lack=self._lacks(publication, visitor),
            program=_coloured_program(publication.program),
            plan=plan,
            written_plan="" if plan is None else await compute_in_thread(_coloured_json, plan),
            steps=steps,
            uses=await compute_in_thread(self._uses, publication.name, visitor),
            confirmed=len(evidence),
            origin=record,
            words_of_assistant=publication.is_by_assistant,
            is_made="made" in request.query_params,
            seen_as=[(title, shape.format(name)) for title, shape in _SEEN_AS],
            asked_for=_example_request(publication, recording.input),
        )

    def _uses(self, name: str, visitor: Visitor) -> list[ToolUse]:
        """Return who has called a tool lately, in runs that the visitor may see, latest use
        first.
        """
        latest = self._bridge.store.runs.newest(
            visitor.scope, limit=_USES, rooms=False, chosen=RunFilter(words=name)
        )
        by_asker: dict[tuple[str, str], list[RunRecord]] = {}
        for run in latest:
            if run.title == name:
                by_asker.setdefault((run.caller, run.client), []).append(run)
        return [ToolUse(len(runs), runs[0]) for runs in by_asker.values()]

    def _changes(self, versions: list[Publication], scope: Viewer) -> dict[int, ChangeSince]:
        """Return what changed from one version to the next, keyed by the number of the later
        version. The oldest version has no entry.
        """
        changes: dict[int, ChangeSince] = {}
        for version, before in itertools.pairwise(versions):
            old = f"{version.name}@{before.version}"
            new = f"{version.name}@{version.version}"
            change = self._bridge.store.change(old, new, caller=scope)
            changes[version.version] = ChangeSince(before.version, change)

        return changes

    async def diff(self, request: Request) -> Response:
        """Show the differences between two versions."""
        publication = self._publication(request)
        query = request.query_params
        name = publication.name
        old = number_from(query.get("old", "1"))
        new = number_from(query.get("new", str(publication.version)))
        if old is None or new is None:
            raise ArgumentError("old, new: expected the numbers of two versions")

        visitor = visitor_of(request)
        compare = partial(self._bridge.store.change, caller=visitor.scope)
        change = await compute_in_thread(compare, f"{name}@{old}", f"{name}@{new}")
        return await self._site.page_beside(
            request,
            "diff.html",
            name=name,
            only_reads=self._only_reads(publication, visitor),
            old=old,
            new=new,
            change=change,
        )

    async def call(self, request: Request) -> Response:
        """Call the tool with the values in the form, as an assistant would."""
        publication = self._publication(request)
        visitor = visitor_of(request)
        form = form_of(request)
        arguments = read_fields(publication.input_schema, form)
        version = publication.version if "version" in request.query_params else None
        replay = await self._bridge.start_idea(
            publication.name, arguments, caller=visitor.caller, version=version
        )
        if replay.run is not None:
            page = f"ideas/{quote(publication.name, safe='')}"
            return self._site.back(request, await page_after(replay.run, form, page, version))

        answer = in_one_line(replay.output, 2000)
        visitor.notes.append(Note("good", f"The recorded answer: {answer}"))
        return self._site.back(request, f"/ideas/{publication.name}")

    async def verify(self, request: Request) -> Response:
        """Check whether the tool still works."""
        publication = self._publication(request)
        visitor = visitor_of(request)
        [verdict] = await self._bridge.verify([publication.name], caller=visitor.caller)
        notes = f" ({'; '.join(verdict.notes)})" if verdict.notes else ""
        tool = f"{verdict.name}, version {verdict.version}"
        if verdict.faults:
            raise PublicationError("\n".join([f"{tool} fails the check{notes}:", *verdict.faults]))

        path = f"/ideas/{publication.name}"
        return self._site.back(request, path, f"{tool} holds{notes}.")

    async def choose_version(self, request: Request) -> Response:
        """Pin a version, remove a pin, or go back to an earlier version."""
        publication = self._own(request)
        form = form_of(request)
        publications = self._bridge.store.publications
        action = form.get("action")
        version = number_from(form.get("version", str(publication.version)))
        if version is None:
            raise ArgumentError(
                f"version: expected the number of a version, found {form.get('version')[:20]!r}"
            )

        if action == "unpin":
            chosen = publications.stand_for(publication.name)
        elif action in ("pin", "rollback"):
            chosen = publications.stand_for(publication.name, version, pinned=action == "pin")
        else:
            raise ArgumentError(f"action: expected pin, unpin or rollback, found {action[:40]!r}")

        self._site.front.announcements.poke()
        pinned = ", pinned" if chosen.pinned else ""
        message = f"{chosen.name} means version {chosen.version}{pinned}."
        return self._site.back(request, f"/ideas/{chosen.name}", message)

    async def unpublish(self, request: Request) -> Response:
        """Withdraw the tool. The store keeps its versions."""
        publication = self._own(request)
        self._bridge.store.publications.unpublish(publication.name)
        self._site.front.announcements.poke()
        return self._site.back(request, "/ideas", f"{publication.name} is no longer a tool.")

    # -- publishing --------------------------------------------------------------------------------

    async def draft(self, request: Request) -> Response:
        """Show the tool that a run would become, and the decisions that a person can make about
        it.
        """
        query = request.query_params
        runs = [run for run in query.getlist("with") if run]
        required = [name for name in query.getlist("require") if name]
        return await self._draft_page(
            request, query.get("ref", ""), query.get("name", ""), runs, required=required
        )

    async def _draft_page(
        self,
        request: Request,
        ref: str,
        name: str,
        runs: list[str],
        required: Sequence[str] = (),
        submitted: _Submitted | None = None,
    ) -> Response:
        """Return the page of a draft. `name` is the tool that the draft would change, or "".
        `required` contains the parameters that callers must pass unless a person decides otherwise.
        `submitted` contains what a person submitted on this page and the page refused.
        """
        submitted = submitted or _Submitted()
        visitor = visitor_of(request)
        before: Publication | None = None
        if name:
            # There may be no published tool with this name yet.
            with contextlib.suppress(IdeabridgeError):
                before = self._bridge.store.publications.get(name, caller=visitor.scope)

        decided = submitted.decided or self._decided(before, ref, visitor)
        if required and not decided.parameters:
            decided = EarlierDecisions(_all_required(required), decided.choices)

        choices = dict(decided.choices)
        if runs:
            choices["runs"] = list[JSON](runs)

        why = ""
        draft: Drafted | None = None
        as_it_is = False
        try:
            self._expect_own(ref, visitor)
            drafting = self._bridge.publisher.drafting
            draft = await drafting.draft(
                ref, visitor.caller, choices=choices, parameters=decided.parameters
            )
            if before is None and submitted.decided is None:
                draft, decided = await self._joined(ref, visitor, choices, draft, decided)
        except NoFinishedRunError:
            as_it_is = True
        except PublicationError as error:
            why = str(error)

        values: dict[str, Any] = {
            "report": None,
            "open": [],
            "choices": [],
            "fields": [],
            "settled": [],
            "steps": PlanSteps(),
            "written_plan": "",
            "program": "",
        }
        run = ref.partition(":")[0]
        shown_runs = [other.partition(":")[0] for other in runs]
        if draft is not None:
            titles = self._site.titles(visitor)
            order = await order_of(self._bridge, _runnable_plan(draft.plan), visitor.caller)
            words = words_of_plan(draft.calls, titles)
            # Use a thread, because reading the literals of many calls takes a long time.
            copied = await compute_in_thread(_choices_in, draft, words)
            report = read_as(ToolReport, draft.report)
            plan = _readable_plan(draft.plan)
            values = {
                "report": report,
                "open": read_open(draft.open),
                "choices": copied,
                "fields": _fields(draft, decided.parameters, titles),
                "settled": _settled(decided.choices, copied, words),
                "steps": PlanSteps.of(plan, order, titles),
                "written_plan": await compute_in_thread(_coloured_json, plan),
                "program": _coloured_program(draft.plan.get("program")),
            }
            run = draft.run
            shown_runs += [*report.confirmed_by, *(offer.run for offer in report.offers)]

        title = self._title_of(ref, visitor)
        proposed = _Proposed.of(title, draft, values["fields"])
        return self._site.page(
            request,
            "publish.html",
            ref=ref,
            run=run,
            rows=await compute_in_thread(self._rows, [run, *shown_runs], visitor),
            name=name,
            is_new=before is None,
            proposed=submitted.name or name or self._free_name(proposed.name, draft, visitor),
            refused_name=submitted.refused_name,
            description=submitted.description
            or (proposed.description if before is None else before.description),
            has_users=self._bridge.store.users.exist(),
            gets=self._first_audience(visitor) if before is None else self._audience(before),
            programs=self._bridge.configuration.programs,
            refused=submitted.refused,
            why=why,
            as_it_is=as_it_is,
            fixed=[name for name, decision in decided.parameters.items() if _is_fixed(decision)],
            decided=encode_text([decided.parameters, decided.choices]),
            runs=runs,
            answers=_ANSWERS,
            answer=submitted.answer,
            strict=submitted.strict,
            audience=submitted.audience,
            **values,
        )

    async def _joined(
        self,
        ref: str,
        visitor: Visitor,
        choices: JSONObject,
        draft: Drafted,
        decided: EarlierDecisions,
    ) -> tuple[Drafted, EarlierDecisions]:
        """Return a draft in which parameters with equal text values are joined into one, and the
        decisions that join them. Return the draft and the decisions unchanged if no values are
        equal, or if they differ in one of the given runs.
        """
        titles = self._site.titles(visitor)
        joined: JSONObject = {
            field.key: {"merge": field.twin.key}
            for field in _fields(draft, decided.parameters, titles)
            if field.twin is not None and field.is_text
        }
        if not joined:
            return draft, decided

        parameters: JSONObject = {**decided.parameters, **joined}
        shorter = await self._bridge.publisher.drafting.draft(
            ref, visitor.caller, choices=choices, parameters=parameters
        )
        if shorter.difference != draft.difference or shorter.confirmed != draft.confirmed:
            return draft, decided
        return shorter, EarlierDecisions(parameters, decided.choices)

    async def _proposed_parameters(
        self, form: FormFields, ref: str, visitor: Visitor
    ) -> JSONObject:
        """Return the decisions about parameters that a draft's page proposes."""
        choices: JSONObject = {"runs": list[JSON](form.all("with"))}
        parameters = _all_required(form.all("require"))
        draft = await self._bridge.publisher.drafting.draft(
            ref, visitor.caller, choices=choices, parameters=parameters
        )
        decided = EarlierDecisions(parameters)
        _, decided = await self._joined(ref, visitor, choices, draft, decided)
        return decided.parameters

    def _title_of(self, ref: str, visitor: Visitor) -> str:
        """Return the title of the run that `ref` refers to, or "" if the run has no title or `ref`
        is an idea.
        """
        try:
            record = self._bridge.store.runs.find(ref.partition(":")[0], caller=visitor.scope)
        except UnknownRunError:
            return ""
        return record.title

    def _free_name(self, proposed: str, draft: Drafted | None, visitor: Visitor) -> str:
        """Return a valid name for a run's tool that no other tool visible to the visitor, and no
        tool called by the run, has. Return "" if no name is proposed.
        """
        if not proposed:
            return ""
        taken = set(self._bridge.store.publications.names(visitor.scope))
        if draft is not None:
            taken.update(map(tool_of, objects_in(draft.calls)))
        return safe_name(proposed, taken)

    def _run_of(self, publication: Publication, visitor: Visitor) -> str | None:
        """Return the run that a version was made from, if the visitor may see it."""
        ideas = self._bridge.store.ideas
        return ideas.get(f"{publication.name}@{publication.version}", caller=visitor.scope).meta.run

    def _decided(self, before: Publication | None, ref: str, visitor: Visitor) -> EarlierDecisions:
        """Return the decisions made when this run was published as the current version."""
        if before is None or before.plan is None:
            return EarlierDecisions()
        if ref not in (before.idea_id, self._run_of(before, visitor)):
            # The current version comes from a different run, which has different parameters.
            return EarlierDecisions()

        origin = before.origin
        return EarlierDecisions(origin.parameters, origin.choices)

    def _expect_own(self, ref: str, visitor: Visitor) -> None:
        """Check that the run to publish does not belong to someone else, who would then own the
        tool.

        Raises:
            PublicationError: the run belongs to someone else.
        """
        try:
            record = self._bridge.store.runs.find(ref.partition(":")[0], caller=visitor.scope)
        except UnknownRunError:
            # `ref` is an idea, or a run that the visitor is not allowed to see.
            return
        if not sees_run_of(visitor.caller, record.caller):
            raise PublicationError(
                f"run {record.id} belongs to {person_of(record.caller)}; only the owner can "
                "publish it"
            )

    async def publish(self, request: Request) -> Response:
        """Publish a run or an idea with the person's decisions."""
        form = form_of(request)
        visitor = visitor_of(request)
        ref = form.get("ref").strip()
        typed = form.get("name").strip()
        name = name_from(typed)
        self._expect_own(ref, visitor)
        decided = decode(form.get("decided", "[{}, {}]"), what="the earlier decisions")
        match decided:
            case [dict() as parameters, dict() as choices]:
                pass
            case _:
                raise ArgumentError("the earlier decisions: expected [parameters, choices]")

        if form.get("as_proposed"):
            parameters = await self._proposed_parameters(form, ref, visitor)
        else:
            parameters = _parameters(form, parameters)

        refused_name = self._refused_name(name, form.get("replaces"), visitor)
        if refused_name is not None:
            chosen = _choices(form, read_choices(choices))
            kept = EarlierDecisions(parameters, replace(chosen, runs=()).to_json())
            submitted = _Submitted.of(form, kept, refused_name)
            return await self._draft_page(
                request, ref, form.get("replaces"), list(chosen.runs), submitted=submitted
            )

        publish_request = PublishRequest(
            ref,
            name,
            description=form.get("description").strip() or None,
            choices=_choices(form, read_choices(choices)),
            by=visitor.decider,
            to=Audience.of(form).chosen,
            caller=visitor.caller,
        )
        written = _RefusedText(form.get("program"), form.get("inputs").strip())
        if written.program.strip():
            # The form lists the parameters of the plan. A program has the parameters that it reads,
            # so the form's are ignored.
            program = program_to_publish(written.program, written.read_inputs())
            publish_request = publish_request.for_program(program)
        else:
            answer: Any = form.get("answer", "auto")
            publish_request = replace(
                publish_request,
                answer=answer,
                parameters=parameters,
                strict=form.get("strict") == "on",
            )

        try:
            publication = await self._bridge.saver.publish_run(publish_request)
        except ProgramRefusedError as error:
            # Keep the text on the page, next to a description of what is wrong with it.
            why = self._bridge.secrets.mask(str(error))
            runs = list(publish_request.choices.runs)
            submitted = _Submitted(refused=replace(written, why=why))
            return await self._draft_page(request, ref, name, runs, submitted=submitted)

        self._site.front.announcements.poke()
        message = _became(publication, typed)
        return self._site.back(request, f"/ideas/{publication.name}?made", message)

    def _refused_name(self, name: str, replaces: str, visitor: Visitor) -> RefusedName | None:
        """Return why a visitor cannot publish a tool with this name, or None if the name is free
        for the visitor.

        `replaces` is the tool of which the form makes a new version, or "".
        """
        if not name:
            return RefusedName("The name needs a letter from a to z, or a digit.")
        if name == replaces:
            return None
        if self._bridge.store.publications.find(name, None, visitor.scope) is not None:
            return RefusedName(f"There is already a tool {name}", name)

        try:
            self._bridge.publisher.check_free(name, caller=visitor.caller)
        except (PublicationError, PublicationNameError) as error:
            return RefusedName(self._bridge.secrets.mask(str(error)).removeprefix("name: "))
        return None


def _all_required(names: Iterable[str]) -> JSONObject:
    """Return the decision that callers must pass all of these parameters."""
    return {name: {"required": True} for name in names}


def _became(publication: Publication, typed: str) -> str:
    """Return a message about a tool that was published under the typed name. It says what was
    published and what a call of the tool does.
    """
    name = publication.name
    if publication.version > 1:
        became = f"{name} now has version {publication.version}."
    elif typed == name:
        became = f"{name} is now a tool."
    else:
        became = f"“{in_one_line(typed, 80)}” is now the tool {name}."
    return f"{became} {_what_a_call_does(publication)}"


def _what_a_call_does(publication: Publication) -> str:
    if publication.answer == "recorded":
        return "Each call gives the recorded answer for the recorded input. Nothing ran now."
    if publication.answer == "solve" or publication.plan is None:
        return (
            "In each call, a model solves its task, with this run as an example. Nothing ran now."
        )
    if publication.program is not None:
        return "Each call runs its program. Nothing ran now."
    calls = len(publication.plan_parts.calls)
    return f"Each call runs its {counted(calls, 'step')}. Nothing ran now."


@dataclass(frozen=True, slots=True)
class RefusedName:
    """Why a tool's name was refused. The page shows it beside the field for the name.

    Attributes:
        why: the reason.
        namesake: the tool that already has the name, or "".
    """

    why: str
    namesake: str = ""


@dataclass(frozen=True, slots=True)
class _Submitted:
    """What a person submitted on the page of a draft, and which values were refused.

    The page shows the values again, so that the person does not have to retype them.
    """

    name: str = ""
    refused_name: RefusedName | None = None
    description: str = ""
    decided: EarlierDecisions | None = None
    answer: str = ""
    strict: bool = False
    audience: Audience = field(default_factory=lambda: Audience("", ""))
    refused: _RefusedText | None = None

    @classmethod
    def of(
        cls, form: FormFields, decided: EarlierDecisions, refused_name: RefusedName
    ) -> _Submitted:
        """Read a form whose name was refused."""
        program = form.get("program")
        return cls(
            form.get("name").strip(),
            refused_name,
            form.get("description").strip(),
            decided,
            form.get("answer"),
            form.get("strict") == "on",
            Audience.of(form),
            _RefusedText(program, form.get("inputs").strip()) if program.strip() else None,
        )


@dataclass(frozen=True, slots=True)
class _RefusedText:
    """A refused program that the form shows again, with the inputs of the runs as JSON and the
    reason for the refusal.
    """

    program: str
    inputs: str
    why: str = ""

    def read_inputs(self) -> list[JSON] | None:
        """Return the inputs of the runs, or None if the field is empty.

        Raises:
            ArgumentError: the inputs are not an array.
        """
        if not self.inputs:
            return None
        listed = decode(self.inputs, what="the inputs of the runs")
        if not isinstance(listed, list):
            raise ArgumentError(
                "the inputs of the runs: expected an array with an object for each run"
            )
        return listed


def _of_runs(ideas: Sequence[IdeaRecord | IdeaHit]) -> list[IdeaRecord | IdeaHit]:
    """Return the ideas without those of handwritten tools, for which no run was saved. The page of
    tools lists these.
    """
    return [idea for idea in ideas if idea.meta.run is not None or not idea.names]


def _first_messages(context: list[JSON]) -> list[JSON]:
    """Return as many of the context's first messages as fit on a page, but at least one."""
    room = _MOST_CHARACTERS
    for number, message in enumerate(context):
        room -= min(len(encode(message)), LONGEST)
        if number > 0 and room < 0:
            return context[:number]
    return context


def _choices(form: FormFields, before: Choices) -> Choices:
    """Return a person's decisions about copied values.

    Earlier decisions remain valid unless their box is unticked or a new selection replaces them.
    """
    selected = {key[2:]: value for key, value in form.fields if key.startswith("t.")}
    ticked = {*selected, *form.all("stays")}
    take = {path: value for path, value in before.take.items() if path in ticked}
    take |= {path: _taken(value) for path, value in selected.items() if value}
    runs = [*before.runs, *" ".join(form.all("with")).split()]
    return Choices(take, tuple(dict.fromkeys(runs)))


def _taken(value: str) -> JSON:
    """Parse an option for a copied value: a reference or `keep` is text, an explanation is JSON."""
    if value.startswith(("{", '"')):
        return decode(value, what="the choice")
    return value


@dataclass(frozen=True, slots=True)
class ParameterField:
    """What a person can decide about a parameter.

    Attributes:
        key: the name of the parameter in the run. The form fields are `a.KEY.rename`,
            `.description`, `.merge`, and `.use`, whose value is `required`, `fix`, `default` or "".
        about: the draft's report on the parameter.
        description: the description that a person wrote earlier. If this is empty, the description
            is in `about`.
        proposed: the description that the parameter gets otherwise, without the words about where
            its value is used.
        may_require: whether a person can make the parameter required, because calls can currently
            omit it or a person has already made it required.
        is_required: whether a person has already made the parameter required.
        places: where the parameter is used, for example `customer for List orders`.
        recorded: a short form of the parameter's value in the run, or "" if it had none.
        is_text: whether the value in the run is text.
        twin: an earlier parameter with the same recorded value, which could replace this one.
        joined: the names, in the run, of the parameters that this one replaces.
    """

    key: str
    about: JSONObject
    description: str
    proposed: str
    may_require: bool
    is_required: bool
    places: list[str]
    recorded: str
    is_text: bool
    twin: ParameterField | None
    joined: list[str]


@dataclass(frozen=True, slots=True)
class _Proposed:
    """The name and description that a draft's page proposes.

    If there is no description, the publisher writes one.
    """

    name: str
    description: str = ""

    @classmethod
    def of(cls, title: str, draft: Drafted | None, fields: Sequence[ParameterField]) -> _Proposed:
        """Propose a name and a description for the tool of a run with the given title."""
        names_tools = title_names_tools(title)
        general = ""
        if not names_tools:
            general = general_title(title, [field.recorded for field in fields])
        if general:
            return cls(general, general)

        asked = [str(field.about.get("name")) for field in fields]
        name = "" if draft is None else name_of_calls(_runnable_plan(draft.plan), asked)
        if not name:
            return cls(title, "" if names_tools else title)
        return cls(name, "" if names_tools else readable(name))


def _fields(draft: Drafted, decided: JSONObject, titles: ToolTitles) -> list[ParameterField]:
    merged = _merged(decided)
    keys = {new: old for old, new in draft.renamed.items() if old not in merged}
    first_with: dict[bytes, ParameterField] = {}
    fields: list[ParameterField] = []
    tools = {tool_of(call) for call in objects_in(draft.calls)}
    words = words_of_plan(draft.calls, titles)
    for about in objects_in(draft.report.get("parameters")):
        name = str(about.get("name"))
        key = keys.get(name, name)
        decision = _decision(decided, key)
        is_required = decision.get("required") is True
        places = _places(list_or_empty(about.get("fills")), words)
        value = draft.arguments.get(name)
        # Do not compare flags and empty values, because they are often equal by chance.
        may_merge = bool(places) and bool(value) and not isinstance(value, bool)
        field = ParameterField(
            key,
            about,
            str(decision.get("description") or ""),
            without_place(str(about.get("description") or ""), tools),
            is_required or not about.get("required"),
            is_required,
            places,
            in_few_words(value) if name in draft.arguments else "",
            isinstance(value, str),
            first_with.get(encode(value)) if may_merge else None,
            [other for other, replacement in merged.items() if replacement == key],
        )
        if may_merge:
            first_with.setdefault(encode(value), field)
        fields.append(field)

    return fields


def _places(fills: Iterable[JSON], words: ReferenceWords) -> list[str]:
    """Return where a plan uses the values at the given paths, for example `customer for List
    orders`, without duplicates. A path outside the calls becomes `the output`.
    """
    places: dict[str, None] = {}
    for path in fills:
        keys = tuple(str(path).split("."))
        place = words.place(keys) if keys[0] == "calls" else "the output"
        places[place] = None

    return list(places)


def _decision(decided: JSONObject, parameter: str) -> JSONObject:
    """Return the decision about a parameter, or an empty object if there is none."""
    return object_or_empty(decided.get(parameter))


def _merged(decided: JSONObject) -> dict[str, str]:
    """Return the parameters that were replaced, mapped to their replacements."""
    merges = {name: _decision(decided, name).get("merge") for name in decided}
    return {name: other for name, other in merges.items() if isinstance(other, str)}


def _is_fixed(decision: JSON) -> bool:
    return isinstance(decision, dict) and decision.get("fix") is True


def _parameters(form: FormFields, decided: JSONObject) -> JSONObject:
    """Return the earlier decisions about parameters, updated from the form fields of
    `ParameterField`.
    """
    decisions: dict[str, JSONObject] = {}
    for name in decided:
        # A form contains only ticked boxes and chosen options, so first remove the earlier
        # decisions that they represent.
        decisions[name] = _without(_decision(decided, name), "fix", "required", "merge")

    for entry, value in form.fields:
        head, _, field = entry.partition(".")
        name, _, part = field.rpartition(".")
        if head == "a" and name and value.strip():
            _decide(decisions.setdefault(name, {}), name, part, value.strip())

    for name, decision in decisions.items():
        other = decision.get("merge")
        if isinstance(other, str) and _is_fixed(decisions.get(other)):
            decisions[name] = {"fix": True}
        elif _is_fixed(decision):
            decisions[name] = _without(decision, "rename", "merge", "required")
        elif other is not None:
            decisions[name] = {"merge": other}

    return {name: decision for name, decision in decisions.items() if decision}


def _without(decision: JSONObject, *keys: str) -> JSONObject:
    return {key: value for key, value in decision.items() if key not in keys}


def _decide(decision: JSONObject, name: str, part: str, value: str) -> None:
    """Update the decision about a parameter from one form field."""
    if part == "use" and value in ("fix", "required"):
        decision[value] = True
    elif part == "rename" and value == name:
        decision.pop("rename", None)
    elif part in ("rename", "description", "merge"):
        decision[part] = value


def _settled(
    choices: JSONObject, copied: list[CopiedValue], words: ReferenceWords
) -> list[SettledValue]:
    """Return the earlier decisions about values whose explanation is no longer an open question."""
    questions = {value.path for value in copied}
    settled: list[SettledValue] = []
    for path, source in object_or_empty(choices.get("take")).items():
        if path in questions:
            continue
        taken = "always the recorded value"
        if source != "keep":
            taken = words.in_text(in_one_line(source, 200))
        settled.append(SettledValue(path, words.place(tuple(path.split("."))), taken, source))

    return settled


def _choices_in(draft: Drafted, words: ReferenceWords) -> list[CopiedValue]:
    """Return the copied values of a draft, with the options that a person can choose for each."""
    plan: JSONObject = {"calls": draft.calls}
    explained = read_as(PublishedPlan, draft.plan).explained
    return [_choice(literal, plan, words) for literal in explained_in(explained)]


def _choices_of(publication: Publication, titles: ToolTitles) -> list[CopiedValue]:
    """Return the copied values of a published plan, with the explanation that each follows on the
    current evidence.
    """
    plan = publication.plan or {}
    literals = explained_in(publication.present_plan_parts.explained)
    words = words_of_plan(publication.plan_parts.calls, titles)
    return [_choice(literal, plan, words) for literal in literals]


def _choice(literal: Explained, plan: JSONObject, words: ReferenceWords) -> CopiedValue:
    recorded = read(plan, literal.at)
    if isinstance(recorded, Missing):
        recorded = None

    why = literal.why or ""
    if literal.cut and not why:
        why = CUT

    options = [
        (words.in_text(source.shown), encode_text(source.to_json())) for source in literal.by
    ]
    options.append(("always the recorded value", "keep"))
    path = ".".join(literal.at)
    place = words.place(literal.at)
    return CopiedValue(path, place, recorded, options, options[0][0], literal.runs, why)


def _evidence(record: JSONObject) -> dict[str, Any]:
    """Return the row for one evidence record of a version."""
    read = read_record(record)
    values = [(".".join(at), value) for at, value in read.values.items()]
    counts = KINDS[read.kind]
    if read.kind == "assistant":
        counts = f"{counts}: it removes no explanation"
    return {"run": read.run, "counts": counts, "time": read.time, "values": values}


_MOST_NAMED: Final = 3
"""Maximum number of values in an example of a request."""


def _example_request(publication: Publication, recorded: JSONObject | None) -> str:
    """Return an example of what to ask an assistant for: what the tool does, with values from the
    recorded input.
    """
    sentence = opening_sentence(publication.description).rstrip(".")
    short = {
        name: in_one_line(value, 40)
        for name, value in (recorded or {}).items()
        if isinstance(value, str | int | float)
    }
    return request_with(sentence, dict(itertools.islice(short.items(), _MOST_NAMED)))


def _recording(publication: Publication, visitor: Visitor) -> PublishedRecording:
    """Return the recorded input and output of the published run.

    Visitors other than the owner and managers see the output only if calls return it as the
    recorded answer.
    """
    if not (visitor.manages or publication.owner == owner_of(visitor.caller)):
        publication = without_recorded_output(publication)
    return publication.recording


def _runs(publication: Publication) -> JSONObject | None:
    """Return the plan that a call runs, with the values that are sent in place of copied ones. For
    a program, return the rest of its plan.
    """
    plan = publication.present_plan
    return None if plan is None else _readable_plan(plan)


def _readable_plan(plan: JSONObject) -> JSONObject:
    """Return the plan that a call runs, without call ids so that people can read it."""
    return plan_without_ids(_runnable_plan(plan))


def _runnable_plan(plan: JSONObject) -> JSONObject:
    """Return the plan that a call runs, without its program and the members about its origin."""
    left_out = ("program", "lifting", "pins", "seen", "watch", "decisions", "copied")
    return {key: value for key, value in as_it_runs(plan).items() if key not in left_out}


def _coloured_json(plan: JSONObject) -> Markup | str:
    text = as_json(plan)
    return coloured(text, "json") or bounded(text)


def _coloured_program(program: JSON) -> Markup | str:
    """Return a program, coloured unless it is too long, or "" if `program` is not a string."""
    if not isinstance(program, str):
        return ""
    text = source_text(program)
    return coloured(text, "python") or text
