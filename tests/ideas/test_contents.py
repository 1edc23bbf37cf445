"""What ideas are made of is stored once, whoever stores it, and whatever is taken back, swept or
taken up meanwhile.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ideabridge.bridge.store import contents
from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from tests.ideas.test_pruning import check_whole, old_run
from tests.ideas.values import said
from tests.postgres import run_sql


def idea_of(*texts: int, output: int = 0) -> Idea:
    """An idea of messages that others share."""
    return Idea(
        [said(f"message {text}") for text in texts],
        {"title": f"schema {texts[0] % 3}"},
        {"output": output},
    )


def bodies(path: str) -> list[str]:
    """What is stored, each as often as it is."""
    return sorted(row[0] for row in run_sql(path, "SELECT body FROM contents"))


def lose(store: Store, *ideas: Idea) -> None:
    """Save ideas, and take that back."""
    with store.transaction():
        for idea in ideas:
            store.ideas.save(idea, IdeaMeta())
        raise ZeroDivisionError


def first_bits(digest: bytes) -> int:
    """A key that many hashes share."""
    return digest[0] % 3


def test_two_stores_of_one_file_store_equal_parts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LAG", 10)
    path = tmp_path / "ideas.db"
    ideas = [idea_of(number, number + 1, number + 2, output=number) for number in range(40)]
    with Store.open(path) as one, Store.open(path) as other:
        for number, idea in enumerate(ideas):
            (one, other)[number % 2].ideas.save(idea, IdeaMeta())

    with Store.open(path) as again:
        for number in range(40):
            again.ideas.save(idea_of(number, 39 - number, output=100 + number), IdeaMeta())
        assert [again.ideas.get(idea.id, caller=SEES_ALL).idea for idea in ideas] == ideas

    found = bodies(str(path))
    assert len(found) == len(set(found)) == 42 + 3


def test_parts_whose_hashes_begin_alike_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LAG", 4)
    monkeypatch.setattr(contents, "key_of", first_bits)
    ideas = [idea_of(number, number + 1, output=number) for number in range(30)]
    for _ in range(2):
        with Store.open(tmp_path / "ideas.db") as store:
            for idea in ideas:
                store.ideas.save(idea, IdeaMeta())
            assert [store.ideas.get(idea.id, caller=SEES_ALL).idea for idea in ideas] == ideas


def test_what_was_remembered_of_a_save_taken_back_is_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "LAG", 6)
    store.ideas.save(idea_of(1, 2), IdeaMeta())

    for number in range(10):
        with pytest.raises(ZeroDivisionError):
            lose(store, *(idea_of(number, 20 + number) for number in range(10)))

        idea = idea_of(number + 1, 20 + number, 40 + number)
        store.ideas.save(idea, IdeaMeta())
        assert store.ideas.get(idea.id, caller=SEES_ALL).idea == idea

    found = bodies(store.path)
    assert len(found) == len(set(found))


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save", "lose", "open", "prune"]),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=40)
@given(ACTS)
def test_whatever_two_stores_do_all_that_is_kept_is_whole(acts: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(contents, "LAG", 5)
        path = Path(folder) / "ideas.db"
        stores = [Store.open(path), Store.open(path)]
        kept: dict[str, Idea] = {}
        for turn, (act, which, number) in enumerate(acts):
            store = stores[which]
            idea = idea_of(number, number + 1, 50 + number % 2, output=turn)
            if act == "save":
                kept[store.ideas.save(idea, IdeaMeta())] = idea
            elif act == "lose":
                with pytest.raises(ZeroDivisionError):
                    lose(store, idea)
            elif act == "open":
                store.close()
                stores[which] = Store.open(path)
            else:
                # The newest run always stays.
                for run in ("first", "second"):
                    old_run(store, f"{run} {turn}", idea_of(number, 80 + number, output=turn))
                store.prune(store.prunable(before="2021-01-01"))
        for one in (*stores, Store.open(path)):
            assert all(
                one.ideas.get(key, caller=SEES_ALL).idea == idea for key, idea in kept.items()
            )
            one.close()
        check_whole(str(path))
        found = bodies(str(path))
        assert len(found) == len(set(found))
