"""`ideabridge ideas history`, `diff`, `pin`, `unpin`, `rollback` and `tag`: what a name stood for, and stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ideabridge.server.cli.completion import names
from ideabridge.server.cli.options import Options, command
from ideabridge.server.cli.stores import REF_HELP, idea_named, opened
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.ideas.records import Publication

NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=names, help="The published name.")]
VersionArgument = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="One version of a published name.")]


@command("config", "project", "store", "json")
def show_history(options: Options, name: NameArgument) -> int:
    """List the versions of a name: when each was published, from which idea, and what in it breaks callers."""
    from ideabridge.server.cli.console import print_json, show

    told: list[JSONObject] = []
    with opened(options) as store:
        versions = store.versions(name)
        for place, one in enumerate(versions):
            before = versions[place + 1] if place + 1 < len(versions) else None
            meta = store.idea(one.idea_id).meta
            record = store.run(meta.run) if meta.run else None
            line: JSONObject = {
                "version": one.version,
                "live": one.live,
                "pinned": one.pinned,
                "time": one.time,
                "answer": one.answer,
                "idea": one.idea_id,
                "run": meta.run,
                "parent": meta.parent,
                "forked_from": record.forked_from if record is not None else None,
                "breaking": [],
            }
            if before is not None:
                change = store.change(f"{name}@{before.version}", f"{name}@{one.version}")
                line["changed"], line["breaking"] = len(change.lines), list[JSON](change.breaking)
            told.append(line)
    if options.json:
        print_json({"name": name, "versions": list[JSON](told)})
        return 0
    for one, line in zip(versions, told, strict=True):
        stands = " <- the name stands for this" if one.live else ""
        pinned = " (pinned)" if one.pinned else ""
        fork = f", forked from {line['forked_from']}" if line["forked_from"] else ""
        run = f", run {line['run']}" if line["run"] else ""
        made = f"idea {one.idea_id[:12]}{run}{fork}"
        show(f"{name}@{one.version}  {one.time[:19].replace('T', ' ')}  {one.answer}  {made}{stands}{pinned}", "bold")
        broken = line["breaking"]
        for text in broken if isinstance(broken, list) else []:
            show(f"  breaking: {text}", "red")
    return 0


@command("config", "project", "store", "json")
def diff_ideas(
    options: Options,
    old: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    new: Annotated[str, typer.Argument(metavar="REF", help="What to compare it with.")],
) -> int:
    """Compare two ideas or versions: schemas, plan, constants, context. Exit code 1 if they differ."""
    from ideabridge.server.cli.console import print_json, say, show

    with opened(options) as store:
        change = store.change(idea_named(store, old), idea_named(store, new))
    if options.json:
        print_json({"changes": list[JSON](change.lines), "breaking": list[JSON](change.breaking)})
        return 1 if change.lines else 0
    styles = {"+": "green", "-": "red", "~": "yellow"}
    for line in change.lines:
        show(line, styles.get(line[0]))
    for line in change.breaking:
        show(f"breaking: {line}", "bold red")
    if not change.lines:
        say("they are equal")
    return 1 if change.lines else 0


@command("config", "project", "store", "json")
def pin_version(options: Options, ref: VersionArgument) -> int:
    """Make a name stand for one version, even when others are published later."""
    return _stand(options, ref, pinned=True)


@command("config", "project", "store", "json")
def roll_back(options: Options, ref: VersionArgument) -> int:
    """Make a name stand for an earlier version again, until the next is published."""
    return _stand(options, ref, pinned=False)


@command("config", "project", "store", "json")
def unpin_name(options: Options, name: NameArgument) -> int:
    """Make a pinned name stand for its latest version again."""
    with opened(options) as store:
        told = store.stand_for(name)
    return _print_publication(options, told)


def _stand(options: Options, ref: str, *, pinned: bool) -> int:
    from ideabridge.server.cli.exits import UsageError

    name, _, version = ref.partition("@")
    if not (version.isascii() and version.isdigit()):
        raise UsageError(f"NAME@VERSION: expected a name and a version, as weekly_report@2, found {ref[:80]!r}")
    with opened(options) as store:
        told = store.stand_for(name, int(version), pinned=pinned)
    return _print_publication(options, told)


def _print_publication(options: Options, publication: Publication) -> int:
    from ideabridge.server.cli.console import print_json, say

    if options.json:
        print_json({"name": publication.name, "version": publication.version, "pinned": publication.pinned})
    else:
        say(
            f"{publication.name} stands for version {publication.version}{', pinned' if publication.pinned else ''}",
            "green",
        )
    return 0


@command("config", "project", "store", "json")
def tag_idea(
    options: Options,
    ref: Annotated[str, typer.Argument(metavar="REF", help=REF_HELP)],
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG]...", help="Tags to add.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
) -> int:
    """Add tags to an idea, or remove them. A tagged idea is never pruned."""
    from ideabridge.server.cli.console import print_json, say

    with opened(options) as store:
        now = store.tag_idea(idea_named(store, ref), tags or (), remove or ())
    if options.json:
        print_json({"tags": list[JSON](now)})
    else:
        say(f"tags: {', '.join(now) or 'none'}", "green")
    return 0
