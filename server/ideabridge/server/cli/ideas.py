"""`ideabridge ideas`: the saved ideas, and the tools made of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ideabridge.server.cli.completion import names
from ideabridge.server.cli.filters import filtered
from ideabridge.server.cli.inputs import read_input, value_of
from ideabridge.server.cli.lifting import (
    AcceptOption,
    TakeOption,
    WithOption,
    lift_run,
    publish,
    read_decisions,
    verify_ideas,
)
from ideabridge.server.cli.options import LimitOption, Options, command
from ideabridge.server.cli.stores import REF_HELP, existing, idea_given, idea_named, opened
from ideabridge.tools.encoding import JSON, JSONObject, encode_text

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.filters import IdeaFilter
    from ideabridge.bridge.ideas.idea import IdeaMeta
    from ideabridge.bridge.ideas.records import Publication
    from ideabridge.bridge.ideas.store import Store

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
    from ideabridge.server.cli.console import print_json, print_table, say
    from ideabridge.server.cli.exits import UsageError

    if published and not chosen.empty:
        raise UsageError("--published: tools are listed by name; filters are for ideas")

    items: list[JSON]
    with opened(options) as store:
        if published:
            shown = store.publications(limit, after)
            items = [{**_publication(one), "to": list[JSON](_shared(store, one))} for one in shown.items]
            titles = ("name", "version", "answers by", "for", "idea", "description")
            rows = [
                (one.name, str(one.version), one.answer, _for(store, one), one.idea_id[:12], _line(one.description))
                for one in shown.items
            ]
            following = shown.next
        else:
            page = store.ideas(limit, after, chosen=chosen)
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
    from ideabridge.bridge.ideas.users import person_of

    return [person_of(caller) or "all" for caller in store.shares(one.name)]


def _for(store: Store, one: Publication) -> str:
    from ideabridge.bridge.ideas.users import person_of

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
    from ideabridge.server.cli.console import print_json, print_table, say

    with opened(options) as store:
        hits = store.search_ideas(" ".join(words or ()), limit, chosen)
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
    from ideabridge.server.cli.console import print_json
    from ideabridge.server.cli.idea_text import idea_lines, print_lines, result_of

    with opened(options) as store:
        ref = idea_named(store, ref)
        stored = store.idea(ref)
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
    from ideabridge.bridge.ideas.errors import UnknownPublicationError

    try:
        return store.named(ref)
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
    return anyio.run(_publish, options, idea_given(options, ref), name, description, answer, choices, to)


async def _publish(
    options: Options, ref: str, name: str, description: str | None, answer: str, choices: JSONObject, to: str | None
) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.server.cli.connecting import connected
    from ideabridge.server.cli.console import print_json, say
    from ideabridge.server.cli.exits import ExitCode

    async with connected(Bridge(existing(options))) as bridge:
        # What is read-only and what is demanded stands in the tools' own schemas.
        publication = await publish(
            bridge, ref, name, options, description=description, answer=answer, choices=choices, to=to
        )
        if publication is None:
            say("nothing was published", "yellow")
            return ExitCode.FAILED
        change = bridge.store.change_of(publication)
        given = bridge.store.shares(name)
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
    from ideabridge.bridge.ideas.users import EVERYBODY, person_of

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
    from ideabridge.bridge.ideas.users import person_of
    from ideabridge.bridge.publishing import read_audience
    from ideabridge.server.cli.console import print_json, say

    with opened(options) as store:
        store.share(name, read_audience(store, to))
        given = store.shares(name)
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
    from ideabridge.server.cli.console import print_json, say

    with opened(options) as store:
        store.unpublish(name)
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
    with opened(options) as store:
        publication = store.named(name)
    return anyio.run(_call, options, name, publication, given)


async def _call(options: Options, name: str, publication: Publication, arguments: JSONObject) -> int:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.replay.replay import check_arguments
    from ideabridge.server.cli.connecting import showing
    from ideabridge.server.cli.console import print_json, print_value, say
    from ideabridge.server.cli.exits import ExitCode, standing_in_terminal
    from ideabridge.server.cli.fill_in import ask_input
    from ideabridge.server.cli.follow import follow, tell
    from ideabridge.tools.errors import ValueMismatchError

    if _lacking(publication, arguments) and standing_in_terminal():
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
    async with Bridge(existing(options)) as bridge:
        async with showing(bridge, quiet=options.json):
            replay = await bridge.call_idea(name, arguments)
        if replay.run is not None:
            outcome = await follow(replay.run, quiet=options.json, by_turns=True)
            return tell(outcome, options, extra={"answer": replay.answer})
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
