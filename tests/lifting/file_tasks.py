"""Tasks over `@modelcontextprotocol/server-filesystem`, which is written in another
language, by others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ideabridge.tools.decorator import tool
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.toolbox import Toolbox
from tests.lifting.runs import Seen, Turn
from tests.lifting.runs import turn as t
from tests.lifting.tasks import Given, Task, c
from tests.lifting.world import World, echo, length


def papers(w: World) -> Path:
    """The folder of a world's papers."""
    return w.path.parent / f"papers-{w.word}"


_SIZES = {
    "anvil": (3, 9, 5),
    "bellows": (8, 2, 6),
    "forge": (7, 4, 8),
    "cog": (4, 7, 1),
    "dynamo-x": (2, 3, 9),
    "ei": (1, 6, 4),
}
"""Lines of the three reports of each world: the longest stands in another place each time."""

_WITH_NEWS = ("anvil", "bellows", "forge", "dynamo-x")


def make_papers(worlds: list[World]) -> None:
    """Write them, as they were."""
    for w in worlds:
        folder = papers(w)
        folder.mkdir(exist_ok=True)
        for name, count in zip(("a.md", "b.md", "c.md"), _SIZES[w.word], strict=True):
            told = "".join(f"{w.word} reports {line} in {name}\n" for line in range(count))
            (folder / name).write_text(told, encoding="utf-8")
        # In the runs of the minds, the file has as many lines as were asked for. In some of the new
        # worlds, it has one more.
        (folder / "list.txt").write_text(
            "".join(f"{w.word} {n}\n" for n in range(w.n + (w.n > 3 and w.word != "forge"))),
            encoding="utf-8",
        )
        (folder / "copy.txt").unlink(missing_ok=True)
        if w.word in _WITH_NEWS:
            (folder / "news.txt").write_text(f"news of {w.word}", encoding="utf-8")
        else:
            (folder / "news.txt").unlink(missing_ok=True)


@tool(read_only=True)
def lines(text: str) -> list[str]:
    """The lines of a text that are not empty."""
    return [line for line in text.splitlines() if line.strip()]


@tool(read_only=True)
def sizes(folder: str, listing: str) -> list[JSONObject]:
    """The files of what list_directory_with_sizes tells."""
    rows = [line.split() for line in listing.splitlines() if line.startswith("[FILE]")]
    return [{"path": f"{folder}/{name}", "bytes": int(count)} for _, name, count, *_ in rows]


def file_toolbox() -> Toolbox:
    """What the tasks call besides the server."""
    return Toolbox(lines, sizes, length, echo)


FOLDER: Given = lambda w: {"folder": str(papers(w))}  # noqa: E731
REPORT: Given = lambda w: {"file": f"{papers(w)}/a.md"}  # noqa: E731


def read(path: JSON, **more: JSON) -> JSONObject:
    return c("read_text_file", path=path, **more)


def text_of(w: World, name: str) -> str:
    return (papers(w) / name).read_text(encoding="utf-8")


def first(text: str, count: int) -> str:
    return "\n".join(text.splitlines()[:count])


def measured(w: World) -> list[Path]:
    return sorted(papers(w).glob("*.md"), key=lambda path: path.stat().st_size)


def listed(s: Seen) -> JSONObject:
    return c("list_directory_with_sizes", path=s.folder)


def longest(s: Seen) -> JSON:
    files = s.result(1)
    assert isinstance(files, list)
    return max(
        (one for one in files if isinstance(one, dict)), key=lambda one: int(str(one["bytes"]))
    )["path"]


SIZED: Turn = lambda s: t(listed(s), c("sizes", folder=s.folder, listing="†results.0.content"))  # noqa: E731


def same_count(w: World) -> int:
    return len(text_of(w, "list.txt").splitlines())


LENGTHS: Callable[[World], JSON] = lambda w: len(measured(w)[-1].read_text(encoding="utf-8"))  # noqa: E731

FILES: list[Task] = [
    Task(
        "a file, its path copied",
        REPORT,
        [lambda s: t(read(s.file)), lambda s: t(output=s.result(0, "content"))],
        lambda w: text_of(w, "a.md"),
    ),
    Task(
        "the length of a file, its text copied",
        REPORT,
        [
            lambda s: t(read(s.file)),
            lambda s: t(c("length", text=s.result(0, "content"))),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: len(text_of(w, "a.md")),
    ),
    Task(
        "the first lines, as many as asked for",
        lambda w: {"file": f"{papers(w)}/list.txt", "n": w.n},
        [lambda s: t(read(s.file, head=s.n)), lambda s: t(output=s.result(0, "content"))],
        lambda w: first(text_of(w, "list.txt"), w.n),
    ),
    Task(
        "the first two lines",
        lambda w: {"file": f"{papers(w)}/a.md", "n": 2},
        [lambda s: t(read(s.file, head=2)), lambda s: t(output=s.result(0, "content"))],
        lambda w: first(text_of(w, "a.md"), 2),
        "head: 2 beside an input n that is always 2",
    ),
    Task(
        "how many lines a file has",
        lambda w: {"file": f"{papers(w)}/list.txt", "n": w.n},
        [
            lambda s: t(
                read(s.file), c("lines", text="†results.0.content"), c("count", items="†results.1")
            ),
            lambda s: t(output=s.result(2)),
        ],
        same_count,
        "the file has n lines in both runs, by chance",
    ),
    Task(
        "the longest report",
        FOLDER,
        [
            SIZED,
            lambda s: t(read(longest(s))),
            lambda s: t(c("length", text="†results.2.content")),
            lambda s: t(output="†results.3"),
        ],
        LENGTHS,
        "one of a list because it is the largest",
    ),
    Task(
        "the longest report, by its place",
        FOLDER,
        [
            SIZED,
            lambda s: t(read("†results.1.1.path")),
            lambda s: t(c("length", text="†results.2.content")),
            lambda s: t(output="†results.3"),
        ],
        lambda w: len(text_of(w, "b.md")),
        "a reference to a place in a listing",
    ),
    Task(
        "a path put together in the head",
        FOLDER,
        [lambda s: t(read(f"{s.folder}/a.md")), lambda s: t(output="†results.0.content")],
        lambda w: text_of(w, "a.md"),
        "folder and name written as one text",
    ),
    Task(
        "a path put together by a template",
        FOLDER,
        [
            lambda s: t(
                c("template", text="{folder}/a.md", values={"folder": s.folder}),
                read("†results.0"),
                output="†results.1.content",
            )
        ],
        lambda w: text_of(w, "a.md"),
    ),
    Task(
        "all reports of a folder, found and copied",
        FOLDER,
        [
            lambda s: t(
                c("search_files", path=s.folder, pattern="*.md"),
                c("lines", text="†results.0.content"),
            ),
            lambda s: t(c("read_multiple_files", paths=s.result(1))),
            lambda s: t(c("length", text=s.result(2, "content"))),
            lambda s: t(output=s.result(3)),
        ],
        lambda w: len(
            "\n---\n".join(
                f"{path}:\n{path.read_text()}\n" for path in sorted(papers(w).glob("*.md"))
            )
        ),
    ),
    Task(
        "each report of a folder",
        FOLDER,
        [
            lambda s: t(
                c("search_files", path=s.folder, pattern="*.md"),
                c("lines", text="†results.0.content"),
            ),
            lambda s: t(read("†item", _each=s.result(1))),
            lambda s: t(output={"reports": s.result(2)}),
        ],
        lambda w: {"reports": [{"content": text_of(w, name)} for name in ("a.md", "b.md", "c.md")]},
    ),
    Task(
        "the news, if there are any",
        FOLDER,
        [
            lambda s: t(c("directory_tree", path=s.folder)),
            lambda s: t(
                read(f"{s.folder}/news.txt")
                if "news.txt" in str(s.result(0))
                else c("echo", value={"content": ""})
            ),
            lambda s: t(output={"news": "†results.1.content"}),
        ],
        lambda w: {"news": text_of(w, "news.txt") if (papers(w) / "news.txt").exists() else ""},
        "a branch taken because of a listing",
    ),
    Task(
        "a copy of a file",
        lambda w: {"file": f"{papers(w)}/a.md", "copy": f"{papers(w)}/copy.txt"},
        [
            lambda s: t(read(s.file)),
            lambda s: t(c("write_file", path=s.copy, content=s.result(0, "content"))),
            lambda s: t(read(s.copy)),
            lambda s: t(output=s.result(2, "content")),
        ],
        lambda w: text_of(w, "a.md"),
        "what was read is what was written, and what was read before",
    ),
    Task(
        "a word replaced, and the file read again",
        lambda w: {"file": f"{papers(w)}/news.txt", "old": w.word, "new": w.zone},
        [
            lambda s: t(c("write_file", path=s.file, content=s.old)),
            lambda s: t(c("edit_file", path=s.file, edits=[{"oldText": s.old, "newText": s.new}])),
            lambda s: t(read(s.file)),
            lambda s: t(output={"text": s.result(2, "content")}),
        ],
        lambda w: {"text": w.zone},
        "calls that share no data, in one file",
    ),
]
