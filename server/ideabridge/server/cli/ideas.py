"""The commands in `ideabridge ideas` that list, search, show, tag and prune saved ideas, and
suggest tools.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from ideabridge.bridge.store.published import PublishedGuide, PublishedRecording
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.server.cli.console import (
    UsageError,
    at_terminal,
    confirm,
    first_line,
    fit,
    print_json,
    say,
    show_line,
    terminal_width,
    working,
)
from ideabridge.server.cli.options import AfterOption, LimitOption, Line, Options, command
from ideabridge.server.cli.stores import REF_HELP, open_store, resolve_idea
from ideabridge.server.views.text import source_text
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.names import counted, readable_json, size_text, visible
from ideabridge.tools.reading import Solution
from ideabridge.tools.typed import read_as

if TYPE_CHECKING:
    from ideabridge.bridge.publishing.suggested_names import NamedSuggestions
    from ideabridge.bridge.publishing.suggestions import Suggestion
    from ideabridge.bridge.publishing.written import WrittenIdea
    from ideabridge.bridge.store.idea import IdeaHit, IdeaRecord, Publication, StoredIdea
    from ideabridge.bridge.store.ideas import IdeaFilter
    from ideabridge.bridge.store.portable import Document
    from ideabridge.bridge.store.pruning import Prunable
    from ideabridge.bridge.store.store import Store
    from ideabridge.tools.tool import ToolKey

app = typer.Typer(help="Find, publish, call and share the saved ideas.", no_args_is_help=True)

RefArgument = Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)]


_FILTERS: Final[dict[str, Any]] = {
    "tool": Annotated[
        str | None, typer.Option("--tool", metavar="TOOL", help="Only ideas that call this tool.")
    ],
    "module": Annotated[
        str | None,
        typer.Option(
            "--server", "--module", metavar="SERVER", help="Only ideas that call this server."
        ),
    ],
    "since": Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="WHEN",
            help="Saved since a date (2026-11-21) or a duration ago (3d, 12h).",
        ),
    ],
    "until": Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="Saved before a date or a duration ago."),
    ],
    "outcome": Annotated[
        str | None,
        typer.Option(
            "--outcome", metavar="HOW", help="Only ideas with this outcome: done, failed, ..."
        ),
    ],
    "mind": Annotated[
        str | None,
        typer.Option(
            "--mind", metavar="WHO", help="Only ideas that this mind answered: turns, model, ..."
        ),
    ],
    "tag": Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Only ideas with this tag.")
    ],
}
"""The members of an `IdeaFilter`."""


def filtered(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Add the filter options to a command, which receives them as a single argument, the
    `IdeaFilter` `chosen`.
    """
    # Do not import the class itself before a command runs, because the program must start quickly.
    signature = inspect.signature(function, eval_str=True, locals={"IdeaFilter": object})
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "chosen"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _FILTERS.items()
    ]

    @functools.wraps(function)
    def wrapper(*words: Any, **arguments: Any) -> int | None:
        from ideabridge.bridge.store.ideas import IdeaFilter

        chosen = IdeaFilter(**{name: arguments.pop(name) for name in _FILTERS})
        return function(*words, chosen=chosen, **arguments)

    wrapper.__dict__["__signature__"] = inspect.Signature([*own, *added])
    return wrapper


@app.command("list")
@command("config", "project", "store", "json")
@filtered
def list_ideas(
    options: Options,
    *,
    chosen: IdeaFilter,
    published: Annotated[
        bool, typer.Option("--published", help="List the published tools.")
    ] = False,
    limit: LimitOption = 20,
    after: AfterOption = None,
) -> None:
    """List the saved ideas, newest first, or with --published, the published tools by name."""
    if published and not chosen.empty:
        raise UsageError(
            "--published lists tools by their names, so filters for ideas do not apply"
        )

    items: list[JSON]
    lacks: dict[str, str | None] = {}
    with open_store(options) as store:
        if published:
            page = store.publications.page(limit, after, caller=SEES_ALL)
            lacks = _lacks(options, store, page.items)
            items = [
                {
                    **publication_json(publication),
                    "to": list[JSON](_shared(store, publication)),
                    "cannot_be_called": lacks[publication.name],
                }
                for publication in page.items
            ]
            titles = ("name", "version", "answers by", "for", "idea", "description")
            rows = [_publication_row(store, publication) for publication in page.items]
        else:
            page = store.ideas.page(limit, after, chosen=chosen)
            items = [_idea_json(idea) for idea in page.items]
            titles = _IDEA_TITLES
            rows = [_idea_row(idea) for idea in page.items]

    if after is not None and published:
        empty = "no tool comes after this cursor"
    elif after is not None:
        empty = "no idea comes after this cursor"
    elif not chosen.empty:
        empty = "no idea passes these filters"
    elif published:
        empty = "nothing is published"
    else:
        empty = "no ideas are saved yet; every run saves one"

    options.print_rows(
        {"ideas": items, "next": page.next}, titles, rows, empty=empty, more=page.next
    )
    if not options.json:
        for name, lack in lacks.items():
            if lack is not None:
                say(f"{name} cannot be called here: it {lack}", "yellow")


def _lacks(options: Options, store: Store, published: list[Publication]) -> dict[str, str | None]:
    """Return, for each published tool, why it cannot be called here, or None if it can; see
    `why_not_here`.

    Tool files are not loaded, so this function does not check tools from them.
    """
    from ideabridge.bridge.offer.missing_tools import lacking
    from ideabridge.bridge.runs.idea_needs import why_not_here
    from ideabridge.bridge.store.users import LOCAL
    from ideabridge.tools.builtins import builtin_toolbox

    configuration = options.configuration()
    own = None if configuration.tools else builtin_toolbox()

    def look(key: ToolKey) -> str | None:
        return lacking(configuration, key, own)

    return {
        publication.name: why_not_here(store, publication, LOCAL, look) for publication in published
    }


_IDEA_TITLES: Final = ("idea", "published as", "outcome", "saved", "title")


def _idea_row(idea: IdeaRecord | IdeaHit) -> tuple[str, ...]:
    saved = idea.meta.time[:19].replace("T", " ")
    return (
        idea.id[:12],
        ", ".join(idea.names),
        idea.meta.outcome,
        saved,
        first_line(idea.meta.title),
    )


def _publication_row(store: Store, publication: Publication) -> tuple[str, ...]:
    return (
        publication.name,
        str(publication.version),
        publication.answer,
        _for(store, publication),
        publication.idea_id[:12],
        first_line(publication.description),
    )


def _idea_json(idea: IdeaRecord | IdeaHit) -> JSONObject:
    return {"id": idea.id, "names": list[JSON](idea.names), **idea.meta.to_json()}


def _shared(store: Store, publication: Publication) -> list[str]:
    """Return the names of the users, besides the owner, who can use a published tool; `all` means
    everyone.
    """
    from ideabridge.bridge.store.users import person_of

    return [person_of(caller) or "all" for caller in store.publications.shares(publication.name)]


def _for(store: Store, publication: Publication) -> str:
    from ideabridge.bridge.store.users import person_of

    users = _shared(store, publication)
    if publication.owner is not None:
        users.insert(0, person_of(publication.owner))
    return ", ".join(users)


def publication_json(publication: Publication) -> JSONObject:
    """Return a publication as JSON, without its plan and recording."""
    return {
        "name": publication.name,
        "version": publication.version,
        "idea": publication.idea_id,
        "answer": publication.answer,
        "description": publication.description,
        "input_schema": publication.input_schema,
        "output_schema": publication.output_schema,
        "annotations": publication.annotations,
        "owner": publication.owner,
        "time": publication.time,
        "live": publication.live,
    }


@app.command("search")
@command("config", "project", "store", "json")
@filtered
def search_ideas(
    options: Options,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...",
            help="Words from titles, tasks, tools or names. Default: the newest ideas.",
        ),
    ] = None,
    *,
    chosen: IdeaFilter,
    limit: LimitOption = 20,
) -> int:
    """Search ideas by words, best match first. The exit code is 1 if nothing is found."""
    with open_store(options) as store:
        hits = store.ideas.search(" ".join(words or ()), limit, chosen, caller=SEES_ALL)
    ideas: list[JSON] = [{**_idea_json(hit), "score": hit.score} for hit in hits]
    options.print_rows(
        {"ideas": ideas}, _IDEA_TITLES, [_idea_row(hit) for hit in hits], empty="nothing found"
    )
    return 0 if hits else 1


@app.command("show")
@command("config", "project", "store", "json")
def show_idea(
    options: Options,
    ref: RefArgument,
    request: Annotated[
        bool,
        typer.Option(
            "--request", help="Show the Request that it answers, as it was sent to the mind."
        ),
    ] = False,
) -> None:
    """Show an idea: its context, its plan and its result; for a published name, the plan
    that a call runs.
    """
    from ideabridge.bridge.lifting.rows import publication_notes

    with open_store(options) as store:
        ref = resolve_idea(store, ref)
        stored = store.ideas.get(ref, caller=SEES_ALL)
        if request:
            _show_request(options, stored)
            return

        result = idea_result(store, stored)
        publication = store.publications.look_up(ref, caller=SEES_ALL)
        records: list[JSONObject] = []
        if publication is not None:
            records = store.evidence.records(publication.name, publication.version, caller=SEES_ALL)

    published: JSONObject | None = None
    if publication is not None:
        # Show the plan of the publication, because that is what a call runs, and it can differ from
        # the idea's Solution.
        published = {
            **publication_json(publication),
            "plan": publication.plan,
            "recorded": publication.recorded,
            "learned": publication.learned,
            "evidence": list[JSON](records),
            "notes": list[JSON](publication_notes(publication)),
        }

    idea: JSONObject = {
        "id": stored.id,
        "request_id": stored.request_id,
        "meta": stored.meta.to_json(),
        "context": list(stored.idea.context),
        "schema": stored.idea.schema,
        "solution": stored.idea.solution,
        **result,
        "publication": published,
    }
    options.print_lines(idea, idea_lines(stored, result, publication, records))


def _show_request(options: Options, stored: StoredIdea) -> None:
    """Show the text that the mind received for an idea, and the schema of the Solution."""
    from ideabridge.bridge.store.portable import request_of

    request = request_of(stored.idea)
    answer: JSONObject = {
        "id": request.id,
        "texts": list[JSON](request.texts),
        "schema": request.schema,
        "shown": request.shown,
    }
    lines: list[Line] = [(f"request {request.id}", "bold")]
    if stored.meta.left_out:
        values = counted(len(stored.meta.left_out), "value")
        text = f"left out of this copy of {stored.meta.original}: {values}"
        lines.append((text, "red"))

    for text in request.texts:
        lines += [("", None), (f"{text['role']}:", "bold"), (str(text["content"]), None)]

    lines += [("", None), ("schema:", "bold"), (readable_json(request.schema, 1), None)]
    options.print_lines(answer, lines)


@app.command("suggest")
@command("config", "project", "store", "json")
async def suggest_ideas(
    options: Options,
    least: Annotated[
        int,
        typer.Option(
            "--least",
            metavar="N",
            min=2,
            max=1000,
            help=("Only work that was done at least N times."),
        ),
    ] = 2,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, max=100, help=("The maximum number to show.")
        ),
    ] = 10,
) -> int:
    """Show the work that was done repeatedly in your runs, sessions and imported histories, and
    the tools that could be made of it.

    Calls count as repeated if the same tools were called in the same order without errors, either
    with different arguments or at least three times. A single call counts only if it might change
    something. A configured model names the tools; it is shown the names of the tools that were
    called and of their parameters. The exit code is 1 if there is nothing to suggest.
    """
    from ideabridge.bridge.publishing.suggestions import suggest
    from ideabridge.bridge.store.users import LOCAL

    notes: list[str] = []
    with open_store(options) as store:
        suggestions = suggest(store, LOCAL, least=least, limit=limit)
        if suggestions and options.configuration().model is not None:
            named = await _named_by_model(options, store, suggestions)
            suggestions = named.suggestions
            notes = named.notes

    if options.json:
        print_json(
            {
                "suggestions": [suggestion.to_json() for suggestion in suggestions],
                "notes": [*notes],
            }
        )
        return 0 if suggestions else 1

    for note in notes:
        say(note, "yellow")

    for suggestion in suggestions:
        show_line(
            fit(f"done {counted(suggestion.times, 'time')}: would be {suggestion.signature}", 4),
            "bold",
        )
        only_reads = "" if suggestion.changes else " (only reads)"
        tools = " → ".join(suggestion.tools)
        show_line(fit(f"  {tools}{only_reads}: {suggestion.title}", 4), "dim")
        if suggestion.open:
            more = len(suggestion.open) - 1
            tail = f" (and {more} more)" if more else ""
            show_line(fit(f"  open: {suggestion.open[0].line}{tail}", 4), "yellow")
            show_line(
                fit("  a program can settle this: add --program ask, FILE, or show", 4), "yellow"
            )
        # Do not wrap a line with a command, so that the person can copy it.
        show_line(f"  {suggestion.command}")

    if not suggestions:
        say("all work that was done repeatedly is already a tool")

    return 0 if suggestions else 1


async def _named_by_model(
    options: Options, store: Store, suggestions: list[Suggestion]
) -> NamedSuggestions:
    """Let the configured model name the suggestions, without starting any server."""
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.minds.errors import ModelSetupError
    from ideabridge.bridge.publishing.suggested_names import name_suggestions, unnamed
    from ideabridge.bridge.store.users import LOCAL

    try:
        bridge = Bridge(options.configuration(), store=store, only=())
    except ModelSetupError as error:
        return unnamed(suggestions, error)

    async with bridge:
        with working("the model names the tools", quiet=options.json):
            return await name_suggestions(bridge, suggestions, LOCAL)


@app.command("tag")
@command("config", "project", "store", "json")
def tag_idea(
    options: Options,
    ref: RefArgument,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", "-r", metavar="TAG", help="A tag to remove; may be repeated."),
    ] = None,
) -> None:
    """Add tags to an idea, or remove them. A tagged idea is never pruned."""
    with open_store(options) as store:
        present = store.ideas.tag(resolve_idea(store, ref), tags or (), remove or ())
    options.print_or_say({"tags": list[JSON](present)}, f"tags: {', '.join(present) or 'none'}")


@app.command("prune")
@command("config", "project", "store", "json")
def prune_ideas(
    options: Options,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="WHEN",
            help="Delete runs that ended before: 90d, 12h, 2w, or 2026-11-21.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete old runs with their rooms, forks and ideas. Published and tagged ideas, and unfinished
    runs, are kept.

    Other processes can use the store meanwhile. `store vacuum` makes the file smaller afterwards.
    """
    from ideabridge.bridge.store.ideas import past_time

    if not (dry_run or yes or at_terminal()):
        raise UsageError(
            "cannot ask for confirmation without a terminal: add --yes, or check first with "
            "--dry-run"
        )
    past_time(older_than, "--older-than")
    with open_store(options) as store:
        with working("looking for old runs", quiet=options.json):
            prunable = store.prunable(before=older_than)

        result: JSONObject = {
            "pruned": None,
            "runs": prunable.runs,
            "ideas": prunable.ideas,
            "used": prunable.used,
            "oldest": prunable.oldest,
            "newest": prunable.newest,
            "kept": dict[str, JSON](prunable.kept),
        }
        if not options.json:
            _print_prunable(prunable)

        if dry_run or not prunable.families:
            if options.json:
                print_json(result)
            return

        if not yes and not confirm("Delete them?"):
            say("nothing was deleted", "yellow")
            return

        with working("deleting old runs", quiet=options.json):
            pruned = store.prune(prunable)

    sizes = (
        f"{size_text(pruned.before)} were in use before; {size_text(pruned.after)} are in use now"
    )
    text = f"{counted(pruned.runs, 'run')} and {counted(pruned.ideas, 'idea')} deleted; {sizes}"
    options.print_or_say({**result, "pruned": cast("JSONObject", dataclasses.asdict(pruned))}, text)
    if not options.json:
        say("the file keeps its size until you run `ideabridge store vacuum`", "dim")


def _print_prunable(prunable: Prunable) -> None:
    if not prunable.families:
        say(f"there is nothing to delete; {size_text(prunable.used)} are in use")
    else:
        between = f"from {prunable.oldest[:10]} to {prunable.newest[:10]}"
        deletion = f"{counted(prunable.runs, 'run')} and {counted(prunable.ideas, 'idea')}"
        say(f"{deletion} would be deleted, {between}; {size_text(prunable.used)} are in use")
    if prunable.kept:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(prunable.kept.items()))
        say(f"just as old, but kept: {reasons}")


_SHOWN_CHARACTERS: Final = 2000
"""Maximum number of characters shown of a message or a result. `export` writes them in full, and
plans are always shown in full.
"""


def idea_result(store: Store, stored: StoredIdea) -> JSONObject:
    """Return the result of an idea's run. The object is empty if the run is not in the store, or if
    the run has a later idea.
    """
    from ideabridge.bridge.loop.event import JournalError, event_from_json
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.runs.values import doubts_of, given_by

    if not stored.meta.run:
        return {}

    record = store.runs.get(stored.meta.run)
    if record is None or record.summary.idea != stored.id:
        return {}

    machine = Machine()
    result: JSONObject
    try:
        for _, event in store.runs.events(record.id):
            machine.receive(event_from_json(event))
        is_output = machine.has_output or machine.solution.program is not None
        result = {"output" if is_output else "state": given_by(machine), **doubts_of(machine, None)}
    except JournalError as error:
        result = {"error": str(error)}

    return {
        "run": record.id,
        "status": record.status,
        **result,
        "reason": record.summary.reason,
    }


def idea_lines(
    stored: StoredIdea,
    result: JSONObject,
    publication: Publication | None,
    records: list[JSONObject],
) -> list[Line]:
    """Return an idea as lines that fit the terminal. `records` is the evidence for the
    publication.
    """
    meta = stored.meta
    lines: list[Line] = [(f"idea {stored.id}", "bold")]
    for name, text in (
        ("title", meta.title),
        ("saved", meta.time),
        ("run", f"{meta.run}, step {meta.step}" if meta.run else ""),
        ("mind", " ".join(part for part in (meta.mind, meta.model) if part)),
        ("outcome", meta.outcome),
        ("tools", ", ".join(meta.tools)),
    ):
        if text:
            lines.append((f"  {name + ':':<11}{text}", None))

    table: list[Line] = []
    if publication is not None:
        head = f"{publication.name}, version {publication.version}, answers by {publication.answer}"
        if not publication.live:
            head += " (not the live version)"

        lines.append((f"  {'published:':<11}{head}", "green"))
        lines += _indented(publication.description, 2)
        table = [*map(_hanging, lines), *_table_lines(publication)]
        lines = _below_table(publication, records)
        plan = dict(publication.present_plan or {})
        for key in _BESIDE:
            plan.pop(key, None)

        lines += _running(publication.answer, plan or None, publication.recorded)
        lines.append(("context of its run", "bold"))
    else:
        lines.append(("context", "bold"))

    for message in stored.idea.context:
        lines += _message(message)

    if publication is None:
        lines += _titled_plan(stored.idea.solution)

    return [*table, *map(_hanging, lines), *map(_hanging, _result_lines(result))]


def _result_lines(result: JSONObject) -> list[Line]:
    """Return the lines that show the given result from `idea_result`. The list is empty if the
    result is empty.
    """
    if not result:
        return []

    lines: list[Line] = [(f"result ({result['status']})", "bold")]
    if "error" in result:
        return [*lines, (f"  {result['error']}", None)]
    return [*lines, *_value(result.get("output", result.get("state")), 2), *_doubts(result)]


_BESIDE: Final = ("seen", "watch", "decisions", "copied", "pins")
"""The members of a plan that are not shown as part of it: those that only cause warnings, which the
notes describe, and the digests of the plan's tools.
"""


def _hanging(line: Line) -> Line:
    """Wrap a line if it is too long for the terminal, and indent its continuation lines."""
    text, style = line
    return fit(text, len(text) - len(text.lstrip()) + 4), style


@dataclass(frozen=True, slots=True)
class _Doubts:
    """The members of an answer that contain the assumptions and notes of a run."""

    assumed: list[JSON] = field(default_factory=list[JSON])
    noted: list[JSON] = field(default_factory=list[JSON])


def _doubts(result: JSONObject) -> list[Line]:
    """Return lines about the assumptions and notes of a run."""
    from ideabridge.bridge.context.assumption import assumption_lines, note_lines

    doubts = read_as(_Doubts, result)
    lines: list[Line] = [
        (f"assumed: {line}", "yellow") for line in assumption_lines(doubts.assumed)
    ]
    lines += [(f"noted: {line}", "dim") for line in note_lines(doubts.noted)]
    return lines


def _table_lines(publication: Publication) -> list[Line]:
    """Return lines about the parameters of a published tool and their default values."""
    from ideabridge.bridge.lifting.report import table_lines
    from ideabridge.bridge.lifting.rows import publication_rows

    lines: list[Line] = []
    if publication.is_by_assistant:
        lines.append(("  an assistant wrote the names and descriptions", "yellow"))
    return [*lines, *table_lines(publication_rows(publication), terminal_width())]


def _below_table(publication: Publication, records: list[JSONObject]) -> list[Line]:
    """Return lines about the plan of a published tool: how many runs the plan fits, followed by the
    plan's notes.
    """
    from ideabridge.bridge.context.assumption import fitting_lines
    from ideabridge.bridge.lifting.report import evidence_line
    from ideabridge.bridge.lifting.rows import publication_notes, publication_rows

    lines: list[Line] = []
    if any(not row.is_parameter for row in publication_rows(publication)):
        lines.append((evidence_line(records), "dim"))

    notes = fitting_lines([visible(note) for note in publication_notes(publication)])
    return [*lines, *((f"noted: {note}", "dim") for note in notes)]


def document_lines(document: Document) -> list[Line]:
    """Return lines that show an exported idea as it would be imported."""
    lines: list[Line] = [(f"idea {document.idea.id}", "bold")]
    if document.meta.title:
        lines.append((f"  {'title:':<11}{visible(document.meta.title)}", None))
    if document.publication is None:
        return [*lines, *_titled_plan(document.idea.solution)]
    return [*lines, *_publication_lines(document.publication_members())]


def written_lines(written: WrittenIdea) -> list[Line]:
    """Return lines that show a hand-written idea as it would be saved, including everything that
    runs and everything that a mind receives.
    """
    lines: list[Line] = [(f"idea {written.idea.id}", "bold")]
    runs = written.answer in ("plan", "program")
    recorded: JSONObject = {"input": written.example}
    if written.answer == "recorded":
        recorded["output"] = written.recorded_output()
    elif written.answer == "solve":
        recorded["solve"] = written.guide(list[JSON](written.tools or ()))

    publication: JSONObject = {
        "name": written.name or "(it has no name, so it is not a tool)",
        "answer": written.answer,
        "description": written.description or written.title,
        "input_schema": written.input_schema,
        "output_schema": written.output_schema,
        "plan": written.published_plan() if runs else None,
        "recorded": recorded,
    }
    return [*lines, *_publication_lines(publication)]


def _publication_lines(publication: dict[str, Any]) -> list[Line]:
    head = f"  {'name:':<11}{publication['name']}, answers by {publication['answer']}"
    lines: list[Line] = [(head, "green")]
    # Mark these lines, so that none of them can pass for a line of the plan below.
    for line in str(publication["description"]).split("\n"):
        lines.append((f"  | {visible(line)}", None))

    elsewhere = ("name", "answer", "description", "plan", "recorded")
    lines += _members({key: value for key, value in publication.items() if key not in elsewhere}, 2)
    return [*lines, *_running(publication["answer"], publication["plan"], publication["recorded"])]


def _running(answer: str, plan: JSON, recorded: JSON) -> list[Line]:
    """Return lines that say what calling a publication does."""
    from ideabridge.bridge.context.explanations import as_it_runs

    recording = PublishedRecording.of(recorded)
    if answer == "recorded":
        head = f"nothing runs; for the input {readable_json(recording.input)} the answer is"
        return [(head, "bold"), *_value(recording.output, 2, whole=True)]

    guide = recording.guide or {}
    if answer == "solve" or not isinstance(plan, dict):
        return [("a mind solves it again; its run begins with", "bold"), *_guide_lines(guide)]

    lines: list[Line] = [(f"the {_kind(plan)} that runs", "bold"), *_plan(as_it_runs(plan))]
    if guide:
        head = "if the plan gives no output, a mind continues; its run begins with"
        lines += [(head, "bold"), *_guide_lines(guide)]

    return lines


def _guide_lines(guide: JSONObject) -> list[Line]:
    """Return lines that show everything a mind receives when it solves an idea again."""
    lines: list[Line] = []
    for message in read_as(PublishedGuide, guide).context:
        lines += _message(message, whole=True)

    lines.append((f"  tools: {readable_json(guide.get('tools'))}", None))
    # List what a mind also receives, such as the output schema. The members that are left out here
    # are shown elsewhere.
    others = {key: value for key, value in guide.items() if key not in ("context", "tools", "plan")}
    lines += _members(others, 2)
    if guide.get("plan"):
        lines += [("guided by the plan", "bold"), *_plan(guide["plan"])]

    return lines


def _kind(solution: JSON) -> str:
    return "program" if "program" in object_or_empty(solution) else "plan"


def _titled_plan(solution: JSON) -> list[Line]:
    return [(_kind(solution), "bold"), *_plan(solution)]


def _plan(solution: JSON) -> list[Line]:
    """Return lines that show a plan or Solution with all its values in full: its program, or its
    calls and output.
    """
    body = object_or_empty(solution)
    plan = read_as(Solution, body)
    lines: list[Line] = []
    if plan.program is not None:
        program = plan.program.rstrip("\n")
        source = source_text(program)
        lines += [(f"  {line}", None) for line in source.split("\n")]
        if source != program:
            lines.append(("  it contains hidden characters, which are shown as escapes", "yellow"))

        body = {key: value for key, value in body.items() if key != "program"}
        if plan.calls:
            lines.append(("  it can call", "cyan"))

    for place, call in enumerate(plan.calls):
        lines += _call_lines(place, call)

    for key, value in body.items():
        if key not in ("calls", "lifting") and value is not None:
            text = _written(value) if isinstance(value, str) else readable_json(value, 2)
            lines += [(f"  {_key(key)}", "cyan"), *_indented(text, 4)]

    return lines


def _message(message: JSON, *, whole: bool = False) -> list[Line]:
    if not isinstance(message, dict):
        return _value(message, 2, whole=whole)

    kind_key = "type" if message.get("type") else "role"
    kind = str(message.get(kind_key) or "message")
    head = f"  {kind}"
    if message.get("_instance"):
        head += f" {message['_instance']}"

    content_key = "content" if "content" in message else kind
    content = _value(message.get(content_key), 4, whole=whole)
    # List the other members as well, such as a document's schema and description, because a mind
    # also reads them.
    elsewhere = (kind_key, content_key, "_instance")
    members = {key: value for key, value in message.items() if key not in elsewhere}
    # With `visible`, the text cannot begin a new line.
    return [(visible(head), "cyan"), *content, *_members(members, 4, whole=whole)]


def _members(members: JSONObject, indent: int, *, whole: bool = True) -> list[Line]:
    """Return lines for the given members. Each value is shown as JSON, so no text in it can begin a
    new line.
    """
    lines: list[Line] = []
    for key, value in members.items():
        if value is not None:
            text = readable_json(value)
            if len(text) > _SHOWN_CHARACTERS and not whole:
                text = f"{text[:_SHOWN_CHARACTERS]}... ({len(text):,} characters)"
            lines.append((f"{' ' * indent}{_key(key)}: {text}", None))

    return lines


def _call_lines(place: int, call: JSON) -> list[Line]:
    if not isinstance(call, dict):
        return _value(call, 2, whole=True)

    module = f"{call['_module']}/" if call.get("_module") else ""
    head = f"  {place}. {module}{call.get('_tool')}"
    if call.get("_id"):
        head += f" ({call['_id']})"
    if call.get("_outputPath"):
        head += f" -> {call['_outputPath']}"

    # With `visible`, the text cannot begin a new line.
    lines: list[Line] = [(visible(head), "cyan")]
    for key, value in call.items():
        if key not in ("_tool", "_module", "_outputPath", "_id"):
            lines.append((f"       {_key(key)}: {_written(value)}", None))

    return lines


def _key(key: str) -> str:
    if key.removeprefix("†").isidentifier():
        return key
    return readable_json(key)


def _written(value: JSON) -> str:
    """Return a value in a plan as text: a reference unchanged, any other value as JSON, so that no
    string can look like a reference.
    """
    from ideabridge.bridge.context.references import is_reference

    if isinstance(value, str) and is_reference(value) and visible(value) == value:
        return value
    return readable_json(value)


def _value(value: JSON, indent: int, *, whole: bool = False) -> list[Line]:
    text = value if isinstance(value, str) else readable_json(value, 2)
    if len(text) > _SHOWN_CHARACTERS and not whole:
        text = f"{text[:_SHOWN_CHARACTERS]}... ({len(text):,} characters)"
    return _indented(text, indent)


def _indented(text: str, indent: int) -> list[Line]:
    return [(" " * indent + line, None) for line in text.split("\n")]
