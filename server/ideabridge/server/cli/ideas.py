"""`ideabridge ideas`: the saved ideas, and the tools made of them."""

from __future__ import annotations

import functools
import inspect
import json
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from ideabridge.server.cli.console import (
    ExitCode,
    UsageError,
    at_terminal,
    counted,
    print_json,
    print_table,
    print_value,
    say,
    show,
)
from ideabridge.server.cli.inputs import ask_input, read_input, value_of
from ideabridge.server.cli.lifting import (
    AcceptOption,
    TakeOption,
    WithOption,
    lift_run,
    publish,
    read_decisions,
    verify_ideas,
)
from ideabridge.server.cli.options import LimitOption, Options, command, names
from ideabridge.server.cli.stores import REF_HELP, lookup_idea, open_store, resolve_idea, with_existing_store
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.errors import ValueMismatchError

if TYPE_CHECKING:
    from ideabridge.bridge.store.idea import IdeaMeta, Publication, StoredIdea
    from ideabridge.bridge.store.ideas import IdeaFilter
    from ideabridge.bridge.store.portable import Document
    from ideabridge.bridge.store.pruning import Prunable
    from ideabridge.bridge.store.store import Store


# -- idea text -------------------------------------------------------------------------------------------------------
#
# Idea as text: what it is, and what runs when it is called, every call of it whole.

Lines = list[tuple[str, str | None]]
"""(text, style) of each line."""

LONGEST = 2000
"""Characters shown of a message of a context and of a result; `export` has them whole. What runs is never cut."""


def result_of(store: Store, stored: StoredIdea) -> JSONObject:
    """What the run of the idea gave, if this store has the run and the idea was its last."""
    record = store.runs.get(stored.meta.run) if stored.meta.run else None
    if record is None or record.summary is None or record.summary.get("idea") != stored.id:
        return {}
    # An earlier ideabridge noted what a run gave beside its journal, too.
    kept: JSONObject = {key: record.summary[key] for key in ("output", "state") if key in record.summary}
    if not kept:
        from ideabridge.bridge.loop.event import JournalError

        try:
            kept = _given(store, record.id)
        except JournalError as error:
            kept = {"error": str(error)}
    return {"run": record.id, "status": record.status, **kept, "reason": record.summary.get("reason")}


def _given(store: Store, run: str) -> JSONObject:
    """What a run that has ended gave, from its journal."""
    from ideabridge.bridge.loop.event import event_from_json
    from ideabridge.bridge.loop.machine import Machine
    from ideabridge.bridge.runs.values import given_by

    machine = Machine()
    for _, event in store.runs.events(run):
        machine.receive(event_from_json(event))
    return {"output" if machine.has_output else "state": given_by(machine)}


def idea_lines(stored: StoredIdea, result: JSONObject, publication: Publication | None) -> Lines:
    """The idea, readable."""
    meta = stored.meta
    lines: Lines = [(f"idea {stored.id}", "bold")]
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
    if publication is not None:
        state = "" if publication.live else " (not the one the name stands for now)"
        told = f"{publication.name}, version {publication.version}, answers by {publication.answer}{state}"
        lines.append((f"  {'published:':<11}{told}", "green"))
        lines += _indented(publication.description, 2)
        lines += _running(publication.answer, publication.plan, publication.recorded)
        lines.append(("context of its run", "bold"))
    else:
        lines.append(("context", "bold"))
    for message in stored.idea.context:
        lines += _message(message)
    if publication is None:
        lines.append(("plan", "bold"))
        lines += _plan(stored.idea.solution)
    if result:
        lines.append((f"result ({result['status']})", "bold"))
        if "error" in result:
            lines.append((f"  {result['error']}", None))
        else:
            lines += _value(result.get("output", result.get("state")), 2)
    return lines


def document_lines(document: Document) -> Lines:
    """What an exported idea would be here, readable."""
    lines: Lines = [(f"idea {document.idea.id}", "bold")]
    if document.meta.title:
        lines.append((f"  {'title:':<11}{document.meta.title}", None))
    if document.publication is None:
        return [*lines, ("plan", "bold"), *_plan(document.idea.solution)]
    told = document.publication_members()
    lines.append((f"  {'name:':<11}{told['name']}, answers by {told['answer']}", "green"))
    lines += _indented(told["description"], 2)
    for what in ("input_schema", "output_schema"):
        if told[what] is not None:
            lines.append((f"  {what}: {json.dumps(told[what], ensure_ascii=False)}", None))
    return [*lines, *_running(told["answer"], told["plan"], told["recorded"])]


def _running(answer: str, plan: JSON, recorded: JSON) -> Lines:
    """What a call of a publication does."""
    kept = recorded if isinstance(recorded, dict) else {}
    if answer == "recorded":
        lines: Lines = [("nothing runs; it answers, for the input it was recorded with, by", "bold")]
        return [*lines, *_whole(kept.get("output"), 2)]
    if answer != "solve" and isinstance(plan, dict):
        return [("the plan that runs", "bold"), *_plan(plan)]
    guide = kept.get("solve")
    body = guide if isinstance(guide, dict) else {}
    lines = [("a mind solves it anew; its run begins with", "bold")]
    context = body.get("context")
    for message in context if isinstance(context, list) else []:
        lines += _message(message, whole=True)
    lines.append((f"  tools: {json.dumps(body.get('tools'), ensure_ascii=False)}", None))
    return [*lines, ("guided by the plan", "bold"), *_plan(body.get("plan"))] if body.get("plan") else lines


def _plan(solution: JSON) -> Lines:
    """Calls and output of a plan or a solution, every value whole."""
    body = solution if isinstance(solution, dict) else {}
    calls = body.get("calls")
    lines: Lines = []
    for place, call in enumerate(calls if isinstance(calls, list) else []):
        lines += _call_lines(place, call)
    for key, value in body.items():
        if key not in ("calls", "lifting", "reading") and value is not None:
            lines += [(f"  {key}", "cyan"), *_whole(value, 4)]
    return lines


def _message(message: JSON, *, whole: bool = False) -> Lines:
    shown = _whole if whole else _value
    if not isinstance(message, dict):
        return shown(message, 2)
    kind = str(message.get("type") or message.get("role") or "message")
    instance = f" {message['_instance']}" if message.get("_instance") else ""
    content = message.get("content", message.get(kind))
    return [(f"  {kind}{instance}", "cyan"), *shown(content, 4)]


def _call_lines(place: int, call: JSON) -> Lines:
    if not isinstance(call, dict):
        return _whole(call, 2)
    module = f"{call['_module']}/" if call.get("_module") else ""
    writes = f" -> {call['_outputPath']}" if call.get("_outputPath") else ""
    name = f" ({call['_id']})" if call.get("_id") else ""
    lines: Lines = [(f"  {place}. {module}{call.get('_tool')}{name}{writes}", "cyan")]
    for key, value in call.items():
        if key in ("_tool", "_module", "_outputPath", "_id"):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines += [
            (f"       {key}: {line}" if not index else f"         {line}", None)
            for index, line in enumerate(text.split("\n"))
        ]
    return lines


def _value(value: JSON, indent: int) -> Lines:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return _indented(_cut(text), indent)


def _whole(value: JSON, indent: int) -> Lines:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return _indented(text, indent)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _indented(text: str, indent: int) -> Lines:
    return [(" " * indent + line, None) for line in text.split("\n")]


def print_lines(lines: Lines) -> None:
    """Print them on standard output."""
    for text, style in lines:
        show(text, style)


# -- filters ---------------------------------------------------------------------------------------------------------
#
# Options that choose among ideas: declared once, for every command that lists them.

_Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="Saved since: 2026-11-21, or how long ago: 3d, 12h.")
]
_Outcome = Annotated[
    str | None, typer.Option("--outcome", metavar="HOW", help="Only ideas with this outcome: done, failed, ...")
]
_FILTERS: Final[dict[str, Any]] = {
    "tool": Annotated[str | None, typer.Option("--tool", metavar="TOOL", help="Only ideas that call this tool.")],
    "module": Annotated[
        str | None, typer.Option("--module", metavar="MODULE", help="Only ideas that call this module.")
    ],
    "since": _Since,
    "until": Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Saved before then.")],
    "outcome": _Outcome,
    "mind": Annotated[
        str | None, typer.Option("--mind", metavar="WHO", help="Only ideas this mind answered: turns, model, ...")
    ],
    "tag": Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only ideas with this tag.")],
}
"""The members of an `IdeaFilter`."""


def filtered(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a command the filters, as one argument `chosen`, an `IdeaFilter`."""
    # The class itself is loaded once a command runs: starting has to be fast.
    signature = inspect.signature(function, eval_str=True, locals={"IdeaFilter": object})
    own = [parameter for parameter in signature.parameters.values() if parameter.name != "chosen"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _FILTERS.items()
    ]

    @functools.wraps(function)
    def wrapper(*words: Any, **arguments: Any) -> int | None:
        from ideabridge.bridge.store.ideas import IdeaFilter

        given = {name: arguments.pop(name) for name in _FILTERS}
        return function(*words, chosen=IdeaFilter(**given), **arguments)

    wrapper.__dict__["__signature__"] = inspect.Signature([*own, *added])
    return wrapper


# -- ideas -----------------------------------------------------------------------------------------------------------

app = typer.Typer(help="Find, publish, call and share the saved ideas.", no_args_is_help=True)

ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="me|all|USER,...", help="Who gets it. Default: as before; a new name, everybody."),
]
RefArgument = Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)]


@app.command("list")
@command("config", "project", "store", "json")
@filtered
def list_ideas(
    options: Options,
    *,
    chosen: IdeaFilter,
    published: Annotated[bool, typer.Option("--published", help="List what is published as a tool.")] = False,
    limit: LimitOption = 20,
    after: Annotated[str | None, typer.Option("--after", metavar="CURSOR", help="Go on after this cursor.")] = None,
) -> int:
    """List the saved ideas, newest first; with --published, the tools made of them, by name."""
    if published and not chosen.empty:
        raise UsageError("--published: tools are listed by name; filters are for ideas")

    items: list[JSON]
    with open_store(options) as store:
        if published:
            shown = store.publications.page(limit, after)
            items = [{**_publication(one), "to": list[JSON](_shared(store, one))} for one in shown.items]
            titles = ("name", "version", "answers by", "for", "idea", "description")
            rows = [
                (one.name, str(one.version), one.answer, _for(store, one), one.idea_id[:12], _line(one.description))
                for one in shown.items
            ]
            following = shown.next
        else:
            page = store.ideas.page(limit, after, chosen=chosen)
            items = [{"id": one.id, "names": list[JSON](one.names), **one.meta.to_json()} for one in page.items]
            titles = ("idea", "published as", "outcome", "saved", "title")
            rows = [(one.id[:12], ", ".join(one.names), *_meta(one.meta)) for one in page.items]
            following = page.next
    if options.json:
        print_json({"ideas": items, "next": following})
    elif rows:
        print_table(titles, rows, cut=True)
        if following:
            say(f"more: --after {following}", "dim")
    else:
        what = "tool" if published else "idea"
        if after is not None:
            say(f"no {what} comes after this cursor")
        elif not chosen.empty:
            say("no idea passes these filters")
        else:
            say("nothing is published" if published else "no ideas are saved yet; every run saves one")
    return 0


def _line(text: str) -> str:
    line = text.strip().split("\n")[0]
    return line if len(line) <= 100 else line[:97] + "..."


def _meta(meta: IdeaMeta) -> tuple[str, str, str]:
    return (meta.outcome, meta.time[:19].replace("T", " "), _line(meta.title))


def _shared(store: Store, one: Publication) -> list[str]:
    """Who has a published tool besides its owner, by name; `all`: everybody."""
    from ideabridge.bridge.store.users import person_of

    return [person_of(caller) or "all" for caller in store.publications.shares(one.name)]


def _for(store: Store, one: Publication) -> str:
    from ideabridge.bridge.store.users import person_of

    own = [] if one.owner is None else [person_of(one.owner)]
    return ", ".join([*own, *_shared(store, one)])


def _publication(one: Publication) -> JSONObject:
    return {
        "name": one.name,
        "version": one.version,
        "idea": one.idea_id,
        "answer": one.answer,
        "description": one.description,
        "input_schema": one.input_schema,
        "output_schema": one.output_schema,
        "annotations": one.annotations,
        "owner": one.owner,
        "time": one.time,
        "live": one.live,
    }


@app.command("search")
@command("config", "project", "store", "json")
@filtered
def search_ideas(
    options: Options,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...", help="Words of titles, tasks, tools or names. Without any, the newest ideas."
        ),
    ] = None,
    *,
    chosen: IdeaFilter,
    limit: LimitOption = 20,
) -> int:
    """Search ideas by words, best first. Exit code 1 if nothing is found."""
    with open_store(options) as store:
        hits = store.ideas.search(" ".join(words or ()), limit, chosen)
    if options.json:
        found: list[JSON] = [
            {"id": hit.id, "names": list[JSON](hit.names), "score": hit.score, **hit.meta.to_json()} for hit in hits
        ]
        print_json({"ideas": found})
    elif hits:
        titles = ("idea", "published as", "outcome", "saved", "title")
        print_table(titles, [(hit.id[:12], ", ".join(hit.names), *_meta(hit.meta)) for hit in hits], cut=True)
    else:
        say("nothing found")
    return 0 if hits else 1


@app.command("show")
@command("config", "project", "store", "json")
def show_idea(options: Options, ref: RefArgument) -> int:
    """Show an idea: its context, its plan and its result; of a published name, the plan that a call of it runs."""
    with open_store(options) as store:
        ref = resolve_idea(store, ref)
        stored = store.ideas.get(ref)
        result = result_of(store, stored)
        publication = _published(store, ref)
    if options.json:
        told: JSONObject = {"id": stored.id, "request_id": stored.request_id, "meta": stored.meta.to_json()}
        idea: JSONObject = {
            "context": list(stored.idea.context),
            "schema": stored.idea.schema,
            "solution": stored.idea.solution,
        }
        told = {**told, **idea, **result}
        published: JSONObject | None = None
        if publication is not None:
            # What runs is the publication's own plan, not the solution of the idea.
            published = {**_publication(publication), "plan": publication.plan, "recorded": publication.recorded}
        print_json({**told, "publication": published})
    else:
        print_lines(idea_lines(stored, result, publication))
    return 0


def _published(store: Store, ref: str) -> Publication | None:
    from ideabridge.bridge.store.errors import UnknownPublicationError

    try:
        return store.publications.named(ref)
    except UnknownPublicationError:
        # `ref` was an id or a run.
        return None


app.command("lift")(lift_run)
app.command("verify")(verify_ideas)


@app.command("publish")
@command("config", "project", "store", "tools", "json")
def publish_idea(
    options: Options,
    ref: RefArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the tool: a-z, 0-9 and _.")],
    description: Annotated[
        str | None, typer.Option("--description", "-d", metavar="TEXT", help="What it does, for assistants.")
    ] = None,
    answer: Annotated[
        Literal["auto", "recorded", "plan", "solve"],
        typer.Option(
            "--answer",
            metavar="auto|recorded|plan|solve",
            help="recorded: the stored answer, for its own input. plan: run it with new input. solve: ask a mind anew,"
            " guided by the plan. auto: plan where there is one, else solve.",
        ),
    ] = "auto",
    accept: AcceptOption = None,
    take: TakeOption = None,
    runs: WithOption = None,
    to: ToOption = None,
) -> int:
    """Publish an idea, or the last idea of a run, as a tool of every assistant connected to this store.

    What a person must decide first is asked at the terminal.
    """
    import anyio

    choices = read_decisions(options, accept, take, runs)
    return anyio.run(_publish, options, lookup_idea(options, ref), name, description, answer, choices, to)


async def _publish(
    options: Options, ref: str, name: str, description: str | None, answer: str, choices: JSONObject, to: str | None
) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected

    async with connected(Bridge(with_existing_store(options))) as bridge:
        # What is read-only and what is demanded stands in the tools' own schemas.
        publication = await publish(
            bridge, ref, name, options, description=description, answer=answer, choices=choices, to=to
        )
        if publication is None:
            say("nothing was published", "yellow")
            return ExitCode.FAILED
        change = bridge.store.change_of(publication)
        given = bridge.store.publications.shares(name)
    if options.json:
        print_json({**_publication(publication), "breaking": list[JSON](change.breaking)})
    else:
        say(f"{publication.name}, version {publication.version}, answers by {publication.answer}", "green")
        say(publication.description, "dim")
        if to is not None:
            say(_given_to(name, given))
        for line in change.breaking:
            say(f"breaking, against version {publication.version - 1}: {line}", "yellow")
        if not publication.live:
            say(f"{name} is pinned to another version, and stays with it (`ideas unpin`)", "yellow")
    return 0


def _given_to(name: str, shares: tuple[str, ...]) -> str:
    """Who has a published name besides its owner, for people."""
    from ideabridge.bridge.store.users import EVERYBODY, person_of

    if not shares:
        return f"{name} is its owner's alone"
    return f"{name} is given to {'everybody' if EVERYBODY in shares else ', '.join(map(person_of, shares))}"


@app.command("share")
@command("config", "project", "store", "json")
def share_idea(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=names, help="The published name.")],
    to: Annotated[
        str, typer.Option("--to", metavar="me|all|USER,...", help="Who gets it: its owner alone, everybody, or users.")
    ],
) -> int:
    """Give a published tool to other users than before. It stays its owner's."""
    from ideabridge.bridge.publishing.publishing import read_audience
    from ideabridge.bridge.store.users import person_of

    with open_store(options) as store:
        store.publications.share(name, read_audience(store, to))
        given = store.publications.shares(name)
    if options.json:
        print_json({"name": name, "to": [person_of(caller) or "all" for caller in given]})
    else:
        say(_given_to(name, given), "green")
    return 0


@app.command("unpublish")
@command("config", "project", "store", "json")
def unpublish_idea(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=names, help="The published name.")],
) -> int:
    """Withdraw a published tool. The idea and every version stay in the store."""
    with open_store(options) as store:
        store.publications.unpublish(name)
    if options.json:
        print_json({"unpublished": name})
    else:
        say(f"{name} is no longer a tool", "green")
    return 0


@app.command("call")
@command("config", "project", "store", "tools", "allow_all", "json")
def call_idea(
    options: Options,
    name: Annotated[
        str, typer.Argument(metavar="NAME", autocompletion=names, help="The published name, or NAME@VERSION.")
    ],
    input: Annotated[  # noqa: A002 - the vocabulary's word
        list[str] | None,
        typer.Option("--input", "-i", metavar="JSON|@FILE|KEY=VALUE", help="Its input; may be repeated."),
    ] = None,
) -> int:
    """Call a published idea as an assistant would, and print its answer.

    Input that is required and not given is asked for, at a terminal.
    """
    import anyio

    given = read_input(input) or {}
    with open_store(options) as store:
        publication = store.publications.named(name)
    return anyio.run(_call, options, name, publication, given)


async def _call(options: Options, name: str, publication: Publication, arguments: JSONObject) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.runs.replay import check_arguments
    from ideabridge.server.cli.connecting import show_connecting
    from ideabridge.server.cli.follow import follow, print_result

    if _lacking(publication, arguments) and at_terminal():
        say(f"{name}: {_line(publication.description.split('. ')[0])}", "bold")
        asked = await ask_input(publication.input_schema or {}, arguments)
        if asked is None:
            say("nothing was called", "yellow")
            return ExitCode.FAILED
        arguments = asked
    try:
        check_arguments(publication, arguments)
    except ValueMismatchError as error:
        raise ValueMismatchError("\n".join([str(error), *_input_lines(name, publication)])) from None
    async with Bridge(with_existing_store(options)) as bridge:
        async with show_connecting(bridge, quiet=options.json):
            replay = await bridge.call_idea(name, arguments)
        if replay.run is not None:
            outcome = await follow(replay.run, quiet=options.json, by_turns=True)
            return print_result(outcome, options, extra={"answer": replay.answer})
        if options.json:
            print_json({"status": "done", "answer": replay.answer, "output": replay.output})
        else:
            print_value(replay.output)
        return 0


def _required(publication: Publication) -> list[str]:
    found = (publication.input_schema or {}).get("required")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _lacking(publication: Publication, arguments: JSONObject) -> list[str]:
    return [name for name in _required(publication) if name not in arguments]


def _input_lines(name: str, publication: Publication) -> Iterator[str]:
    """What a published idea takes, a line for each part, and a call of it as an example."""
    fields = (publication.input_schema or {}).get("properties")
    needed = _required(publication)
    yield "it takes:" if fields else "it takes no input"
    for key, field in (fields if isinstance(fields, dict) else {}).items():
        told = field if isinstance(field, dict) else {}
        kind = told.get("type", "any")
        kinds = " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)
        says = f": {_line(str(told['description']))}" if told.get("description") else ""
        yield f"  {key} ({kinds}{'' if key in needed else ', may be left out'}){says}"
    recorded = publication.recorded.get("input") if isinstance(publication.recorded, dict) else None
    if isinstance(recorded, dict) and recorded:
        words = [_word(key, value) for key, value in list(recorded.items())[:5]]
        yield f"example: ideabridge ideas call {name} {' '.join(f'-i {word}' for word in words)}"


def _word(key: str, value: JSON) -> str:
    # Text that would be read as JSON is written as JSON.
    plain = isinstance(value, str) and value_of(value) == value
    text = str(value) if plain else encode_text(value)
    return shlex.quote(f"{key}={text}" if len(text) <= 100 else f"{key}=...")


# -- prune -----------------------------------------------------------------------------------------------------------
#
# `ideabridge ideas prune`: deletes old runs and ideas from the store.


@command("config", "project", "store", "json")
def prune_ideas(
    options: Options,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="WHEN", help="What ended before: 90d, 12h, 2w, or 2026-11-21.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete old runs with their rooms, forks and ideas. Published and tagged ideas and unfinished runs stay.

    Other processes may use the store meanwhile. The file is smaller after `store vacuum`.
    """
    from ideabridge.bridge.store.ideas import read_time

    if not (dry_run or yes or at_terminal()):
        raise UsageError("there is no terminal to ask at: add --yes, or look first with --dry-run")
    read_time(older_than, "--older-than")
    with open_store(options) as store:
        found = store.prunable(before=older_than)
        if options.json and (dry_run or not found.families):
            print_json({"pruned": None, **_prunable_json(found)})
        elif not options.json:
            for line in lines_of(found):
                say(line)
        if dry_run or not found.families:
            return 0
        if not yes and not typer.confirm("Delete them?", err=True):
            say("nothing was deleted", "yellow")
            return 0
        pruned = store.prune(found)
    if options.json:
        done: JSONObject = {
            "runs": pruned.runs,
            "ideas": pruned.ideas,
            "contents": pruned.contents,
            "before": pruned.before,
            "after": pruned.after,
        }
        print_json({"pruned": done, **_prunable_json(found)})
    else:
        freed = f"{_size(pruned.before)} were in use, {_size(pruned.after)} are"
        say(f"{counted(pruned.runs, 'run')} and {counted(pruned.ideas, 'idea')} deleted; {freed}", "green")
        say("the file keeps its size until `ideabridge store vacuum`", "dim")
    return 0


def lines_of(found: Prunable) -> list[str]:
    """What goes and what stays, for a person."""
    if not found.families:
        lines = [f"nothing to delete; {_size(found.used)} are in use"]
    else:
        between = f"from {found.oldest[:10]} to {found.newest[:10]}"
        what = f"{counted(found.runs, 'run')} and {counted(found.ideas, 'idea')}"
        lines = [f"{what} would go, {between}; {_size(found.used)} are in use"]
    if found.kept:
        kept = ", ".join(f"{why}: {count}" for why, count in sorted(found.kept.items()))
        lines.append(f"as old, but kept: {kept}")
    return lines


def _prunable_json(found: Prunable) -> JSONObject:
    return {
        "runs": found.runs,
        "ideas": found.ideas,
        "used": found.used,
        "oldest": found.oldest,
        "newest": found.newest,
        "kept": dict[str, JSON](found.kept),
    }


def _size(number: int) -> str:
    size = float(number)
    for unit in ("bytes", "KB", "MB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GB"
