"""The store read, and written beside, by programs that know nothing of ours: the command line
of sqlite-utils.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from ideabridge.bridge.store.idea import Idea, IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON
from tests import preloaded
from tests.ideas.test_processes import check
from tests.ideas.test_pruning import end, newest, old_run
from tests.ideas.values import idea_of, publish, said

PROGRAM: Final = Path(sys.executable).parent / "sqlite-utils"


def utils(*words: str) -> list[dict[str, JSON]]:
    """What sqlite-utils prints."""
    done = subprocess.run(
        preloaded.python(PROGRAM, *words), capture_output=True, check=True, text=True
    )
    if done.stdout.startswith("["):
        rows: list[dict[str, JSON]] = json.loads(done.stdout)
    else:
        rows = []
    return rows


def test_lists_messages_and_words_are_read_by_sql_alone(file_store: Store) -> None:
    long: list[JSON] = [said(f"part {number}") for number in range(500)]
    file_store.runs.create("run", kind="solve", caller="me", title="t", fingerprint="")
    first = file_store.ideas.save(
        Idea(long, {}, {"calls": [{"_tool": "add"}]}), IdeaMeta(run="run", step=1, title="Sums")
    )
    file_store.ideas.save(idea_of("other words"), IdeaMeta(title="Other", tags=("kept",)))
    publish(file_store, "sums", first, description="adds")
    end(file_store, "run")
    assert len(file_store.ideas.search("sums", caller=SEES_ALL)) == 1
    counts = {
        str(row["table"]): row["count"] for row in utils("tables", file_store.path, "--counts")
    }
    assert (counts["ideas"], counts["runs"], counts["events"]) == (2, 1, 3)
    listed = utils(
        "rows", file_store.path, "idea_list", "--order", "number", "-c", "id", "-c", "title"
    )
    assert listed[0] == {"id": first, "title": "Sums"}
    where = ["--where", "idea_number = 1", "--order", "place"]
    messages = utils("rows", file_store.path, "idea_messages", *where)
    assert [json.loads(str(row["message"])) for row in messages] == long
    assert [
        row["event"] for row in utils("rows", file_store.path, "journal", "--where", "sequence = 2")
    ] == ['{"n":1,"run":"run"}']
    assert [row["status"] for row in utils("rows", file_store.path, "run_list")] == ["done"]
    assert utils("rows", file_store.path, "call_list") == [
        {"idea": first, "tool": "add", "module": ""}
    ]
    assert [row["tag"] for row in utils("rows", file_store.path, "tag_list")] == ["kept"]
    assert [row["live"] for row in utils("rows", file_store.path, "publication_list")] == [1]
    words = (
        "SELECT idea_list.title FROM idea_words JOIN idea_list "
        "ON idea_list.number = idea_words.rowid "
        "WHERE idea_words MATCH 'word' ORDER BY rank"
    )
    assert utils("query", file_store.path, words) == [{"title": "Other"}]


def test_what_others_add_to_the_store_keeps_up_and_hinders_nothing(file_store: Store) -> None:
    file_store.ideas.save(idea_of("before"), IdeaMeta(title="before"))
    # These are search tables with triggers on ours, and a view and an index of the user's own.
    utils("enable-fts", file_store.path, "contents", "body", "--create-triggers")
    utils("enable-fts", file_store.path, "runs", "title", "--create-triggers")
    utils(
        "create-view", file_store.path, "mine", "SELECT title FROM idea_list WHERE outcome = 'done'"
    )
    words = (
        "SELECT idea_list.title FROM idea_words JOIN idea_list "
        "ON idea_list.number = idea_words.rowid"
    )
    utils("create-view", file_store.path, "worded", words)
    utils("create-index", file_store.path, "runs", "title")
    ideas = [
        Idea([said(f"message {n} {part}") for part in range(70)], {"n": n}, {"n": n})
        for n in range(20)
    ]
    for number, idea in enumerate(ideas):
        old_run(file_store, f"run{number}", idea)

    newest(file_store)
    for idea in ideas:
        assert file_store.ideas.get(idea.id, caller=SEES_ALL).idea == idea

    found = utils("search", file_store.path, "contents", "before", "-c", "body")
    assert [json.loads(str(row["body"])) for row in found] == [said("before")]
    assert len(utils("search", file_store.path, "runs", "run7")) == 1
    file_store.prune(file_store.prunable(before="2021-01-01"))
    assert utils("search", file_store.path, "runs", "run7") == []
    assert utils("search", file_store.path, "contents", "message") == []
    assert [hit.meta.title for hit in file_store.ideas.search("before", caller=SEES_ALL)] == [
        "before"
    ]
    assert utils("rows", file_store.path, "mine") == []
    assert {"title": "before"} in utils("rows", file_store.path, "worded")
    with Store.open(file_store.path) as again:
        again.ideas.save(ideas[3], IdeaMeta())
        assert again.ideas.get(ideas[3].id, caller=SEES_ALL).idea == ideas[3]

    check(Path(file_store.path))


def test_the_views_are_filled_when_a_store_nobody_has_searched_is_closed(tmp_path: Path) -> None:
    path = str(tmp_path / "fresh.db")
    with Store.open(path) as store:
        number = store.ideas.save(
            Idea([said("word")], {}, {"calls": [{"_tool": "add"}]}), IdeaMeta(title="Sums")
        )
    assert utils("rows", path, "call_list") == [{"idea": number, "tool": "add", "module": ""}]
    assert utils("query", path, "SELECT rowid FROM idea_words WHERE idea_words MATCH 'word'") == [
        {"rowid": 1}
    ]


def test_closing_does_not_wait_for_a_store_that_another_process_locks(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "locked.db")
    store.ideas.save(idea_of("first"), IdeaMeta(title="first"))
    with Store.open(store.path) as other, other.transaction():
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 2

    # The other process has indexed what was left.
    assert utils(
        "query", store.path, "SELECT rowid FROM idea_words WHERE idea_words MATCH 'first'"
    ) == [{"rowid": 1}]
