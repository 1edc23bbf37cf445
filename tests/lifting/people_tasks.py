"""Tasks in which not all goes as the mind wrote it: people who edit and deny, steps a mind answers,
calls that fail.
"""

from __future__ import annotations

from pathlib import Path

from ideabridge.tools.encoding import JSON, JSONObject
from tests.lifting.runs import SHORTEN, Person, Seen, Verdict
from tests.lifting.runs import turn as t
from tests.lifting.tasks import WORD, Given, Task, c
from tests.lifting.world import BUSY, World, card_of

NOTE: Given = lambda w: {"file": f"{w.repo}/more.txt", "text": w.word}  # noqa: E731


def edits(**changed: JSON) -> Person:
    """A person who changes these parameters of whatever asks."""

    def change(call: JSONObject) -> JSONObject:
        return {**{key: value for key, value in call.items() if key != "_outputPath"}, **changed}

    return lambda _: Verdict("edit", change)


def doubled(call: JSONObject) -> JSONObject:
    return {**call, "text": str(call["text"]) * 2}


def denies_drafts(call: JSONObject) -> Verdict:
    """A person who lets nothing be written in drafts."""
    return Verdict("deny" if "draft" in str(call["path"]) else "approve")


def busy(s: Seen) -> JSONObject:
    """The first attempt, at a clerk who is busy."""
    BUSY.append(str(s.word))
    return t(c("clerk", name=s.word))


def written(count: int) -> str:
    return f"{count} characters written"


def noted(w: World) -> str:
    """What is written in the file at last."""
    return (w.path / "more.txt").read_text(encoding="utf-8")


PEOPLE: list[Task] = [
    Task(
        "a call as a person changed it",
        NOTE,
        [lambda s: t(c("write_file", path=s.file, text=s.text)), lambda s: t(output=s.result(0))],
        lambda w: written(8),
        "a text that a person wrote: not one that the mind chose",
        edits(text="reviewed"),
    ),
    Task(
        "a call a person put right with the input",
        lambda w: {"file": f"{w.repo}/more.txt", "text": w.word, "sign": f"by {w.zone}"},
        [lambda s: t(c("write_file", path=s.file, text="to do")), lambda s: t(output=s.result(0))],
        lambda w: written(len(f"by {w.zone}")),
        trap="what a person wrote in its place is part of the input",
        person=lambda call: Verdict("edit", lambda call: {**call, "text": f"by {zone_at(call)}"}),
    ),
    Task(
        "a call a person changed by rule of thumb",
        NOTE,
        [lambda s: t(c("write_file", path=s.file, text=s.text)), lambda s: t(output=s.result(0))],
        lambda w: written(len(w.word) * 2),
        "a person doubles each text: nothing that was recorded says so",
        lambda _: Verdict("edit", doubled),
    ),
    Task(
        "denied, and written elsewhere",
        lambda w: {"draft": f"{w.repo}/draft.txt", "file": f"{w.repo}/more.txt", "text": w.word},
        [
            lambda s: t(c("write_file", path=s.draft, text=s.text)),
            lambda s: t(c("write_file", path=s.file, text=s.text)),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: written(len(w.word)),
        person=denies_drafts,
    ),
    Task(
        "denied, and given up",
        lambda w: {"draft": f"{w.repo}/draft.txt", "text": w.word},
        [
            lambda s: t(c("write_file", path=s.draft, text=s.text)),
            lambda s: t(output="not written"),
        ],
        lambda w: "not written",
        "nothing is left of it but a constant",
        denies_drafts,
    ),
    Task(
        "a step that a mind answers",
        WORD,
        [
            lambda s: t(c("owner_of", name=s.word), c("shorten", text="†results.0")),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: w.word[0],
        context=[SHORTEN],
    ),
    Task(
        "a step that a mind answers, like a part of what it reads",
        WORD,
        [
            lambda s: t(c("card", name=s.word), c("shorten", text="†results.0.owner")),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: str(card_of(w.word)["owner"])[0],
        "the letter stands in the card, too",
        context=[SHORTEN],
    ),
    Task(
        "a step that the mind answered in its own solution",
        WORD,
        [
            lambda s: t(c("shorten", text=s.word, _output=str(s.word)[0])),
            lambda s: t(output="†results.0"),
        ],
        lambda w: w.word[0],
        "an answer that was written for one input",
        context=[SHORTEN],
    ),
    Task(
        "the same call again, and then it works",
        WORD,
        [busy, lambda s: t(c("clerk", name=s.word)), lambda s: t(output=s.result(1))],
        lambda w: f"{w.word} (stamped)",
    ),
    Task(
        "a call with effects that failed, and another in its place",
        lambda w: {
            "lost": f"{w.repo}/nowhere/more.txt",
            "file": f"{w.repo}/more.txt",
            "text": w.word,
        },
        [
            lambda s: t(c("write_file", path=s.lost, text=s.text)),
            lambda s: t(c("write_file", path=s.file, text=s.text)),
            lambda s: t(output=s.result(1)),
        ],
        lambda w: written(len(noted(w))),
        "what failed may have done half of its work",
    ),
]


def zone_at(call: JSONObject) -> str:
    """The zone of the world a call writes in: the person knows it from the task's input."""
    return ZONES[Path(str(call["path"])).parent.name]


ZONES: dict[str, str] = {
    "repo-anvil": "Europe/Berlin",
    "repo-bellows": "Asia/Tokyo",
    "repo-forge": "Europe/Paris",
}
