"""Long texts: what changes little is stored once but for what is new, and everything comes
back as it was.
"""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.store import ropes
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, JSONObject, encode, encode_text
from tests.ideas.test_growth import in_use, journal
from tests.ideas.test_pruning import check_whole, newest, old_run
from tests.postgres import run_sql

PIECES = st.sampled_from(
    ["a", "ab,1", "\\", '"', "é", "†", "𝄞", "\x00", "\u2028", "~[1]", "word ", "1,2,3,", "\n"]
)


def long_text(pieces: list[str], times: int) -> str:
    """A text of some thousand characters that repeats itself."""
    return "".join(pieces) * times


TEXTS = st.builds(
    long_text,
    st.lists(PIECES | st.text(max_size=30), min_size=1, max_size=30),
    st.integers(1, 1500),
)


@given(TEXTS)
def test_pieces_are_the_text_and_within_their_bounds(text: str) -> None:
    raw = text.encode()[:200_000].decode(errors="ignore").encode()
    pieces = ropes.cut(raw)
    assert b"".join(pieces) == raw
    for piece in pieces:
        assert piece.decode()
        assert len(piece) <= ropes.LONGEST_PIECE

    assert all(len(piece) >= ropes.SHORTEST - 3 for piece in pieces[:-1])


@settings(deadline=None, max_examples=30)
@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS)
def test_long_values_come_back_byte_for_byte_wherever_they_stand(
    texts: list[str], word: str
) -> None:
    context: list[JSON] = [{"type": "state", "state": {"text": text}} for text in texts]
    context.append(word)
    idea = Idea(
        context, {"description": word}, {"calls": [{"_tool": "say", "text": word}], "output": word}
    )
    events: list[JSONObject] = [
        {"event": "run_started", "context": context, "tools": [{"description": word}]},
        {"event": "solution_proposed", "calls": [{"_tool": "say", "text": word}], "output": word},
        {"event": "call_finished", "call": 0, "value": word},
    ]
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "ideas.db") as store:
        journal(store, "run", *events)
        store.ideas.save(idea, IdeaMeta(run="run"))
        stored = store.ideas.get(idea.id, caller=SEES_ALL).idea
        assert encode([*stored.context, stored.schema, stored.solution]) == encode(
            [*context, idea.schema, idea.solution]
        )
        assert stored.id == idea.id
        assert [event for _, event in store.runs.events("run")] == events
        # The same is true for programs that read the file.
        told = run_sql(store.path, "SELECT event FROM journal ORDER BY sequence")
        assert [json.loads(text) for (text,) in told] == events
        messages = run_sql(store.path, "SELECT message FROM idea_messages ORDER BY place")
        assert [text for (text,) in messages] == [encode_text(message) for message in context]
        assert run_sql(store.path, "SELECT schema, solution FROM idea_list") == [
            (encode_text(idea.schema), encode_text(idea.solution))
        ]


def state_of(size: int, change: int = 0) -> Idea:
    """An idea whose state is a text without a place to cut, or with many."""
    source = random.Random(4)
    words = [f"word{source.randrange(10**6)}" for _ in range(size // 10)]
    words.insert(len(words) // 2, f"changed {change}")
    state: JSON = {"type": "state", "state": {"even": "a" * size, "words": list[JSON](words)}}
    return Idea([state], {}, {"step": change})


def test_a_long_text_is_stored_once_by_every_database(store: Store) -> None:
    first = state_of(100_000)
    second = state_of(100_000, change=1)
    long: JSON = {"calls": [], "output": first.context[0]}
    store.ideas.save(first, IdeaMeta())
    before = run_sql(store.path, "SELECT count(*), sum(length(body)) FROM contents")[0]
    store.ideas.save(Idea([*first.context, {"new": 1}], {}, {"step": 2}), IdeaMeta())
    count, size = run_sql(store.path, "SELECT count(*), sum(length(body)) FROM contents")[0]
    assert (count - before[0], size - before[1]) == (1, len('{"new":1}'))
    store.ideas.save(second, IdeaMeta())
    after = run_sql(store.path, "SELECT count(*), sum(length(body)) FROM contents")[0]
    # Only the changed pieces and the list are new.
    assert after[1] - size < 3 * ropes.LONGEST_PIECE
    assert after[0] - count < 6
    store.ideas.save(Idea([], {}, long), IdeaMeta())
    for idea in (first, second):
        assert store.ideas.get(idea.id, caller=SEES_ALL).idea == idea


def test_a_text_that_was_stored_whole_before_is_found_and_read(store: Store) -> None:
    first = state_of(20_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ideabridge.bridge.store.contents.LONG_BYTES", 2**30)
        patch.setattr("ideabridge.bridge.store.ropes.LONG_BYTES", 2**30)
        store.ideas.save(first, IdeaMeta())

    rows = run_sql(store.path, "SELECT count(*) FROM contents")
    again = Idea(first.context, first.schema, {"step": "again"})
    store.ideas.save(again, IdeaMeta())
    assert run_sql(store.path, "SELECT count(*) FROM contents") == rows
    assert store.ideas.get(again.id, caller=SEES_ALL).idea == again


def test_pruning_keeps_the_pieces_in_use_and_removes_all_others(store: Store) -> None:
    kept = state_of(60_000)
    gone = state_of(60_000, change=1)
    other = Idea([{"type": "state", "state": "alone " + "".join(map(str, range(9000)))}], {}, None)
    old_run(store, "one", gone)
    old_run(store, "two", other)
    journal(store, "young", {"event": "run_started", "context": [other.context[0]], "tools": []})
    store.ideas.save(kept, IdeaMeta())
    alone = Idea([{"type": "state", "state": "".join(map(str, range(9000, 30000)))}], {}, None)
    old_run(store, "three", alone)
    newest(store)
    store.prune(store.prunable(before="2021-01-01"))
    assert store.ideas.get(kept.id, caller=SEES_ALL).idea == kept
    assert next(store.runs.events("young"))[1]["context"] == other.context
    # What is left is what a new store with the same content has.
    left = {row[0] for row in run_sql(store.path, "SELECT body FROM whole_contents")}
    pieces = {
        piece.decode()
        for text in map(encode, (kept.context[0], other.context[0]))
        for piece in ropes.cut(text)
    }
    assert pieces <= left
    lost = {piece.decode() for piece in ropes.cut(encode(alone.context[0]))}
    # The newest row always stays.
    assert len(lost & left) <= 1
    check_whole(store.path)


def members(step: int) -> JSON:
    """A state to which each step adds a member of 1 KB."""
    return {f"k{number}": text_of(number) for number in range(step)}


def pushed(step: int) -> JSON:
    """A list to which each step pushes 5 items, before other members."""
    items: list[JSON] = [
        {"id": number, "text": text_of(number)[:190]} for number in range(5 * step)
    ]
    return {"items": items, "done": False, "after": text_of(1)}


def grown(step: int) -> JSON:
    """A text that grows, before another member."""
    return {"text": "\n".join(text_of(number) for number in range(step)), "after": text_of(1)}


@cache
def text_of(number: int) -> str:
    """1 KB of text."""
    source = random.Random(number)
    return " ".join(f"{source.randrange(36**4):x}" for _ in range(200))[:1000]


@pytest.mark.parametrize("shape", [members, pushed, grown])
def test_a_state_that_grows_adds_what_is_new(shape: Callable[[int], JSON], tmp_path: Path) -> None:
    path = str(tmp_path / "ideas.db")
    sizes: list[int] = []
    steps = 60
    with Store.open(path) as store:
        # The state has 300 KB at the beginning.
        for step in range(steps + 1):
            idea = Idea(
                [{"type": "state", "state": shape(300 + step)}], {}, {"calls": [], "output": None}
            )
            store.ideas.save(idea, IdeaMeta(run="run", step=step + 1))
            if step in (0, steps):
                sizes.append(in_use(path))

    new = len(encode_text(shape(300 + steps))) - len(encode_text(shape(300)))
    assert (sizes[1] - sizes[0]) / new < 3
