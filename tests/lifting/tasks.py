"""Tasks: what the acceptance table is about. One row a task; what lifting makes of each
stands in `table.md`.

A mind is a list of turns; it copies what it saw by hand (`s.repo`, `s.result(0)`), as models do,
unless it writes a reference. `answer` works the right answer out without any plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ideabridge.tools.encoding import JSON, JSONObject
from tests.lifting.runs import Person, Seen, Turn, approves
from tests.lifting.runs import turn as t
from tests.lifting.world import World, card_of, converted, git, sha, shelf_of

Given = Callable[[World], JSONObject]


@dataclass(frozen=True)
class Task:
    """A row.

    Attributes:
        name: of the task.
        given: the input in a world.
        turns: what the mind writes.
        answer: the right answer in a world.
        trap: what a hasty lifting would fall for.
        person: decides about calls that ask while the mind is at work; calls of the published
            plan are approved.
        context: more messages of the run's context.
    """

    name: str
    given: Given
    turns: list[Turn]
    answer: Callable[[World], JSON]
    trap: str = ""
    person: Person = approves
    context: list[JSON] = field(default_factory=list[JSON])


def c(_tool: str, /, **parameters: JSON) -> JSONObject:
    return {"_tool": _tool, **parameters}


def best(s: Seen, key: str, *, least: bool = False) -> JSONObject:
    found = s.result(0)
    assert isinstance(found, list)
    items = [one for one in found if isinstance(one, dict)]
    return (min if least else max)(items, key=lambda one: one[key])  # type: ignore[arg-type, return-value]


def top(word: str, key: str, wanted: str) -> JSON:
    return max(shelf_of(word), key=lambda one: float(str(one[key])))[wanted]


REPO: Given = lambda w: {"repo": w.repo}  # noqa: E731
WORD: Given = lambda w: {"word": w.word}  # noqa: E731
TIMES: Given = lambda w: {"word": w.word, "n": w.n}  # noqa: E731
CLOCK: Given = lambda w: {"zone": w.zone, "clock": w.clock}  # noqa: E731
LOG: Given = lambda w: {"repo": w.repo, "n": w.n}  # noqa: E731
MANY: Given = lambda w: {"words": [w.word, w.zone, w.clock]}  # noqa: E731


def messages(w: World, count: int) -> list[JSON]:
    return list[JSON](subject for _, subject in reversed(w.commits))[:count]


def leading(w: World) -> tuple[str, int]:
    names = [author for author, _ in reversed(w.commits)]
    ranked = max(dict.fromkeys(names), key=names.count)
    return ranked, names.count(ranked)


def zone(w: World, target: str) -> str:
    return converted(w, target).isoformat(timespec="seconds")


PLAIN: list[Task] = [
    Task(
        "word length, by reference",
        WORD,
        [lambda s: t(c("length", text="†input.word"), output="†results.0")],
        lambda w: len(w.word),
    ),
    Task(
        "owner length, by reference over two Requests",
        WORD,
        [
            lambda s: t(c("owner_of", name="†input.word", _outputPath="who")),
            lambda s: t(c("length", text="†state.who"), output="†results.1"),
        ],
        lambda w: len(w.word) + 12,
    ),
    Task(
        "word length, copied",
        WORD,
        [lambda s: t(c("length", text=s.word)), lambda s: t(output=s.result(0))],
        lambda w: len(w.word),
    ),
    Task(
        "owner length, copied",
        WORD,
        [
            lambda s: t(c("owner_of", name=s.word)),
            lambda s: t(c("length", text=s.result(0))),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: len(w.word) + 12,
    ),
    Task(
        "status of a repository",
        REPO,
        [lambda s: t(c("git_status", repo_path=s.repo)), lambda s: t(output=s.result(0))],
        lambda w: "Repository status:\n" + git(w.repo, "status").strip(),
    ),
    Task(
        "subjects of the last commits",
        LOG,
        [
            lambda s: t(c("git_log", repo_path=s.repo, max_count=s.n)),
            lambda s: t(c("subjects", log="†results.0")),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: messages(w, w.n),
    ),
    Task(
        "subjects, the log copied whole",
        LOG,
        [
            lambda s: t(c("git_log", repo_path=s.repo, max_count=s.n)),
            lambda s: t(c("subjects", log=s.result(0))),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: messages(w, w.n),
    ),
    Task(
        "subjects in one text",
        LOG,
        [
            lambda s: t(c("git_log", repo_path=s.repo, max_count=s.n)),
            lambda s: t(
                c("subjects", log="†results.0"), c("join", items="†results.1", separator="; ")
            ),
            lambda s: t(output=s.result(2)),
        ],
        lambda w: "; ".join(map(str, messages(w, w.n))),
    ),
    Task(
        "status beside the path it is of",
        REPO,
        [
            lambda s: t(c("git_status", repo_path="†input.repo")),
            lambda s: t(output={"path": s.repo, "status": s.result(0)}),
        ],
        lambda w: {
            "path": w.repo,
            "status": "Repository status:\n" + git(w.repo, "status").strip(),
        },
    ),
    Task(
        "clock in Lisbon",
        CLOCK,
        [
            lambda s: t(
                c(
                    "convert_time",
                    source_timezone=s.zone,
                    time=s.clock,
                    target_timezone="Europe/Lisbon",
                )
            ),
            lambda s: t(output=s.result(0, "target", "datetime")),
        ],
        lambda w: zone(w, "Europe/Lisbon"),
    ),
    Task(
        "clock in the zone of the input",
        lambda w: {"clock": w.clock, "zone": w.zone},
        [
            lambda s: t(
                c("convert_time", source_timezone="UTC", time=s.clock, target_timezone=s.zone)
            ),
            lambda s: t(output="†results.0.target.datetime"),
        ],
        lambda w: zone(replace(w, zone="UTC"), w.zone),
    ),
    Task(
        "local branches",
        REPO,
        [
            lambda s: t(c("git_branch", repo_path=s.repo, branch_type="local")),
            lambda s: t(output=s.result(0)),
        ],
        lambda w: git(w.repo, "branch").rstrip("\n"),
    ),
    Task(
        "a list copied whole",
        MANY,
        [lambda s: t(c("count", items=s.words)), lambda s: t(output={"many": "†results.0"})],
        lambda w: {"many": 3},
    ),
    Task(
        "a list joined",
        MANY,
        [lambda s: t(c("join", items=s.words, separator=" ")), lambda s: t(output=s.result(0))],
        lambda w: f"{w.word} {w.zone} {w.clock}",
    ),
    Task(
        "an object copied whole",
        WORD,
        [
            lambda s: t(c("card", name=s.word)),
            lambda s: t(c("echo", value=s.result(0))),
            lambda s: t(output="†results.1"),
        ],
        lambda w: card_of(w.word),
    ),
    Task(
        "a part of an object",
        WORD,
        [
            lambda s: t(c("card", name=s.word)),
            lambda s: t(c("echo", value=s.result(0, "place"))),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: card_of(w.word)["place"],
    ),
    Task(
        "tags, a list of a result",
        WORD,
        [lambda s: t(c("card", name=s.word)), lambda s: t(output=s.result(0, "tags"))],
        lambda w: card_of(w.word)["tags"],
    ),
    Task(
        "a number written as text",
        lambda w: {"n": w.n},
        [lambda s: t(c("length", text=str(s.n))), lambda s: t(output="†results.0")],
        lambda w: len(str(w.n)),
    ),
    Task(
        "text written as a number",
        WORD,
        [
            lambda s: t(c("card", name="†input.word")),
            lambda s: t(output=int(str(s.result(0, "label")))),
        ],
        lambda w: len(w.word),
    ),
    Task(
        "a number written with a fraction",
        TIMES,
        [
            lambda s: t(c("repeat", text=s.word, times=float(str(s.n)))),
            lambda s: t(output="†results.0"),
        ],
        lambda w: w.word * w.n,
    ),
    Task(
        "each of a list",
        MANY,
        [lambda s: t(c("length", _each=s.words, text="†item")), lambda s: t(output="†results.0")],
        lambda w: [len(w.word), len(w.zone), len(w.clock)],
    ),
    Task(
        "each title of a shelf, copied as a list",
        WORD,
        [
            lambda s: t(c("books", shelf=s.word)),
            lambda s: t(
                c("length", _each=[s.result(0, n, "title") for n in range(5)], text="†item")
            ),
            lambda s: t(output="†results.1"),
        ],
        lambda w: [len(str(one["title"])) for one in shelf_of(w.word)],
    ),
    Task(
        "a template filled with copies",
        TIMES,
        [
            lambda s: t(c("template", text="{word} x {n}", values={"word": s.word, "n": s.n})),
            lambda s: t(output=s.result(0)),
        ],
        lambda w: f"{w.word} x {w.n}",
    ),
    Task(
        "a failed call tried again",
        WORD,
        [
            lambda s: t(c("picky", name=" "), c("owner_of", name=s.word)),
            lambda s: t(c("picky", name=s.result(1))),
            lambda s: t(output=s.result(2)),
        ],
        lambda w: f"{w.word}@example.org".upper(),
    ),
    Task(
        "what is not saved",
        REPO,
        [
            lambda s: t(c("git_diff_unstaged", repo_path=s.repo)),
            lambda s: t(output={"changes": s.result(0)}),
        ],
        lambda w: {
            "changes": "Unstaged changes:\n" + git(w.repo, "diff", "--unified=3").rstrip("\n")
        },
    ),
    Task(
        "two words of one input",
        lambda w: {"a": w.word, "b": w.zone},
        [
            lambda s: t(c("length", text=s.a), c("length", text=s.b)),
            lambda s: t(output={"a": s.result(0), "b": s.result(1)}),
        ],
        lambda w: {"a": len(w.word), "b": len(w.zone)},
    ),
]

TRAPS: list[Task] = [
    Task(
        "repeat twice",
        TIMES,
        [lambda s: t(c("repeat", text=s.word, times=2)), lambda s: t(output=s.result(0))],
        lambda w: w.word * 2,
        "times: 2 beside an input n: 2",
    ),
    Task(
        "a timeout",
        TIMES,
        [
            lambda s: t(c("repeat", text=s.word, times=s.n, timeout=2)),
            lambda s: t(output=s.result(0)),
        ],
        lambda w: w.word * w.n,
        "timeout: 2 beside n: 2",
    ),
    Task(
        "as often as the word is long",
        lambda w: {"word": w.word},
        [
            lambda s: t(c("length", text="†input.word")),
            lambda s: t(c("repeat", text=s.word, times=5)),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: w.word * 5,
        "times: 5 beside a word of 5 letters",
    ),
    Task(
        "the number of commits asked for",
        LOG,
        [
            lambda s: t(c("git_log", repo_path=s.repo, max_count=s.n)),
            lambda s: t(c("subjects", log="†results.0"), c("count", items="†results.1")),
            lambda s: t(output=s.result(2)),
        ],
        lambda w: min(w.n, len(w.commits)),
        "the count is what was asked for, in both runs",
    ),
    Task(
        "the thickest book",
        WORD,
        [
            lambda s: t(c("books", shelf=s.word)),
            lambda s: t(c("price", id=best(s, "pages")["id"])),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: top(w.word, "pages", "price"),
        "copied from its place in a list",
    ),
    Task(
        "the cheapest book",
        WORD,
        [
            lambda s: t(c("books", shelf=s.word)),
            lambda s: t(output=best(s, "price", least=True)["title"]),
        ],
        lambda w: min(shelf_of(w.word), key=lambda one: float(str(one["price"])))["title"],
        "copied from its place in a list",
    ),
    Task(
        "the thickest book, by reference to its place",
        WORD,
        [
            lambda s: t(c("books", shelf="†input.word")),
            lambda s: t(c("price", id=f"†results.0.{place_of(s)}.id"), output="†results.1"),
        ],
        lambda w: top(w.word, "pages", "price"),
        "a reference to a place in a list",
    ),
    Task(
        "the newest commit",
        LOG,
        [
            lambda s: t(
                c("git_log", repo_path=s.repo, max_count=s.n), c("history", log="†results.0")
            ),
            lambda s: t(output=newest(s)),
        ],
        lambda w: sha(w),
        "a commit by its place in a list",
    ),
    Task(
        "the last of a list of the input",
        MANY,
        [lambda s: t(c("length", text=last(s))), lambda s: t(output=s.result(0))],
        lambda w: len(w.clock),
        "copied from its place in the input",
    ),
    Task(
        "changes, if there are any",
        REPO,
        [
            lambda s: t(c("git_status", repo_path=s.repo)),
            lambda s: t(
                c("git_diff_unstaged", repo_path=s.repo)
                if "not staged" in str(s.result(0))
                else c("echo", value="")
            ),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: "Unstaged changes:\n" + git(w.repo, "diff").rstrip("\n") if w.dirty else "",
        "a branch taken because of a result that nothing reads",
    ),
    Task(
        "the owner, if the level is high",
        WORD,
        [
            lambda s: t(c("card", name="†input.word")),
            lambda s: t(
                c("picky", name="†results.0.owner")
                if s.result(0, "level") == "high"
                else c("echo", value="-")
            ),
            lambda s: t(output="†results.1"),
        ],
        lambda w: f"{w.word}@example.org".upper() if len(w.word) > 3 else "-",
        "a branch taken because of another part of what is read",
    ),
    Task(
        "dirty or clean",
        REPO,
        [
            lambda s: t(c("git_status", repo_path=s.repo)),
            lambda s: t(output="dirty" if "not staged" in str(s.result(0)) else "clean"),
        ],
        lambda w: "dirty" if w.dirty else "clean",
        "a constant output that was a judgement",
    ),
    Task(
        "commits by the busiest, in a sentence",
        LOG,
        [
            lambda s: t(
                c("git_log", repo_path=s.repo, max_count=50), c("authors", log="†results.0")
            ),
            lambda s: t(output=sentence(s)),
        ],
        lambda w: f"{leading(w)[1]} commits by {leading(w)[0]}",
        "'3 commits by Ann' written into the output",
    ),
    Task(
        "commits by the busiest, by key",
        LOG,
        [
            lambda s: t(
                c("git_log", repo_path="†input.repo", max_count=50), c("authors", log="†results.0")
            ),
            lambda s: t(output=f"†results.1.{busiest(s)}"),
        ],
        lambda w: leading(w)[1],
        "a key that is a name somebody has",
    ),
    Task(
        "write, add, commit",
        lambda w: {"repo": w.repo, "text": f"of {w.word}", "file": f"{w.repo}/more.txt"},
        [
            lambda s: t(c("write_file", path="†input.file", text="†input.text")),
            lambda s: t(c("git_add", repo_path="†input.repo", files=["more.txt"])),
            lambda s: t(c("git_commit", repo_path="†input.repo", message="†input.text")),
            lambda s: t(
                c("git_log", repo_path="†input.repo", max_count=1), c("subjects", log="†results.3")
            ),
            lambda s: t(output="†results.4"),
        ],
        lambda w: [f"of {w.word}"],
        "calls that share no data, over two servers",
    ),
    Task(
        "write, then read what was written",
        lambda w: {"file": f"{w.repo}/notes.txt", "text": w.word, "repo": w.repo},
        [
            lambda s: t(c("write_file", path=s.file, text=s.text)),
            lambda s: t(c("git_diff_unstaged", repo_path=s.repo)),
            lambda s: t(output={"changed": "†results.1"}),
        ],
        lambda w: {"changed": "Unstaged changes:\n" + git(w.repo, "diff").rstrip("\n")},
        "a call that reads what another changes",
    ),
    Task(
        "a value that looks like a reference",
        WORD,
        [
            lambda s: t(c("repeat", text="††input.word", times=1)),
            lambda s: t(output=f"†{s.result(0)}"),
        ],
        lambda w: "†input.word",
        "†input.word as text",
    ),
    Task(
        "an input that looks like a reference",
        lambda w: {"text": f"†state.{w.word}"},
        [lambda s: t(c("length", text=f"†{s.text}")), lambda s: t(output=s.result(0))],
        lambda w: len(f"†state.{w.word}"),
        "†state.x as input",
    ),
    Task(
        "a judgement as a number",
        WORD,
        [lambda s: t(c("owner_of", name=s.word)), lambda s: t(output=len(str(s.word)) * 7 + 1)],
        lambda w: len(w.word) * 7 + 1,
        "worked out in the head",
    ),
    Task(
        "a word in capitals",
        WORD,
        [lambda s: t(c("echo", value=str(s.word).upper())), lambda s: t(output=s.result(0))],
        lambda w: w.word.upper(),
        "changed in the head",
    ),
    Task(
        "the zone as it was echoed",
        lambda w: {"zone": w.zone, "clock": w.clock},
        [
            lambda s: t(
                c("convert_time", source_timezone=s.zone, time=s.clock, target_timezone="UTC")
            ),
            lambda s: t(c("length", text=s.result(0, "source", "timezone"))),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: len(w.zone),
        "the input and its echo are equal in every run",
    ),
]


def place_of(s: Seen) -> int:
    found = s.result(0)
    assert isinstance(found, list)
    return found.index(best(s, "pages"))


def newest(s: Seen) -> JSON:
    found = s.result(1)
    assert isinstance(found, list)
    return max((one for one in found if isinstance(one, dict)), key=lambda one: str(one["date"]))[
        "sha"
    ]


def last(s: Seen) -> JSON:
    words = s.words
    assert isinstance(words, list)
    return words[-1]


def busiest(s: Seen) -> str:
    counts = s.result(1)
    assert isinstance(counts, dict)
    return max(counts, key=lambda name: float(str(counts[name])))


def sentence(s: Seen) -> str:
    return f"{s.result(1, busiest(s))} commits by {busiest(s)}"
