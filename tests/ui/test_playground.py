"""The playground takes contexts: it checks them, and solves them with or without a task."""

from __future__ import annotations

import re
from collections.abc import Generator

import httpx
import pytest

from tests.seeds.examples import INSTANCES, MESSAGES
from tests.ui.serving import client, send


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    with client(site) as found:
        yield found


def playground(http: httpx.Client, text: str, action: str, **more: str) -> httpx.Response:
    return send(http, "/ui/playground", kind="context", text=text, action=action, **more)


def test_a_context_is_checked_with_its_types_and_instances(http: httpx.Client) -> None:
    shown = playground(http, INSTANCES, "check").text
    assert "2 messages" in shown
    assert shown.count("<code>state</code> from user, instance") == 2
    assert "without one, an assistant does, by turns" in shown
    assert (
        "1 message"
        in playground(http, "# by hand\n- role: system\n  content: Be brief.\n", "check").text
    )
    wrong = (
        ('[{"type": "state"}]', "needs a member"),
        ('{"messages": []}', "found no context"),
        ("[1", "the context"),
        ('[{"type": "state", "state": {}, "_instance": "a b"}]', "without white space"),
    )
    for text, told in wrong:
        for action in ("check", "run"):
            shown = playground(http, text, action).text
            assert 'role="alert"' in shown
            assert told in shown


@pytest.mark.parametrize(
    ("text", "task"), [(INSTANCES, ""), (MESSAGES, ""), (MESSAGES, "Name its river.")]
)
def test_a_context_is_solved(http: httpx.Client, text: str, task: str) -> None:
    answer = playground(http, text, "run", title=task, input='{"n": 1}', thought_process="yes")
    assert re.fullmatch(r".*/runs/run_[0-9a-f]+", str(answer.url)), answer.text
    assert answer.status_code == 200
    assert task in answer.text


def test_an_empty_context_needs_a_task(http: httpx.Client) -> None:
    assert "expected a task, or a context" in playground(http, "[]", "run").text
    assert "/runs/run_" in str(playground(http, "[]", "run", title="Name a river.").url)
