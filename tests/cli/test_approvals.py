"""`ideabridge approvals list` and `decide`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from ideabridge.bridge.standing_rules import rules_path
from ideabridge.server.main import main
from tests import preloaded
from tests.server.serving import call, over_stdio
from tests.trusting import write_trusted

from .conftest import Run
from .terminal import Terminal

PAY = Path(__file__).parents[1] / "modules" / "servers" / "pay.py"

TOOLS = '''
from pathlib import Path

import anyio

from ideabridge.tools import UnknownEffectError, tool


@tool(read_only=False)
def pay(to: str) -> str:
    """Pay somebody; the bank may have taken it."""
    raise UnknownEffectError("the bank hung up")


@tool(read_only=False)
def note(text: str, where: str = "noted.txt") -> str:
    """Write something down."""
    Path(where).write_text(text, encoding="utf-8")
    return text


@tool(read_only=True)
async def forever() -> str:
    """Never end."""
    await anyio.sleep_forever()
    return ""
'''


def noting(*texts: str) -> str:
    return json.dumps(
        {"calls": [{"_tool": "note", "text": text, "where": f"{text}.txt"} for text in texts]}
    )


@pytest.fixture
def here(project: Path) -> Path:
    """A project with tools that need approval."""
    (project / "tools.py").write_text(TOOLS, encoding="utf-8")
    write_trusted(project, '{"tools": ["tools.py"], "store": "store.sqlite"}')
    for text in ("one", "two"):
        (project / f"{text}.json").write_text(noting(text), encoding="utf-8")
    return project


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    return told(capsys, "approvals", "list", *words)["approvals"]


def test_what_waits_is_listed_and_decided(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (told(capsys, "run", f"{text}.json", code=4)["run"] for text in ("one", "two"))
    two, one = listed(capsys)
    assert (two["run"], one["run"]) == (second, first)
    assert one["call"] == {"_tool": "note", "text": "one", "where": "one.txt"}
    assert (one["kind"], one["choices"], one["why"]) == (
        "call",
        ["approve", "deny", "edit"],
        "tool 'note' declares that it changes things",
    )
    assert one["asked"]
    assert one["seconds_left"] is None
    assert listed(capsys, "last") == [two | {"asked": two["asked"]}]
    assert main(["approvals", "list"]) == 0
    printed = capsys.readouterr()
    assert f"run {first}: note" in printed.out
    assert f"{one['approval']} (approve, deny, edit), asked " in printed.out
    assert '      | text       "one"\n' in printed.out
    assert "ideabridge approvals decide DECISION RUN|APPROVAL..." in printed.err
    # Address the first by the beginning of the run's id, and the second by the id of the approval.
    assert main(["approvals", "decide", "deny", second[:10], "--reason", "not today"]) == 1
    assert f"{second}: done, 1 error" in capsys.readouterr().err
    assert not (here / "two.txt").exists()
    assert main(["approvals", "decide", "approve", one["approval"]]) == 0
    printed = capsys.readouterr()
    assert f"approved: {one['approval']} of {first}" in printed.err
    assert json.loads(printed.out) == {"results": {"0": "one"}}
    assert (here / "one.txt").exists()
    assert main(["approvals", "list"]) == 0
    assert capsys.readouterr().err == "nothing is waiting for a decision\n"
    assert main(["approvals", "list", first]) == 0
    assert f"run {first} is not waiting for a decision (done)" in capsys.readouterr().err


def test_a_run_says_how_what_it_asks_may_be_answered(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pay = {"_tool": "pay", "to": "Ada"}
    (here / "pay.json").write_text(json.dumps({"calls": [pay]}), encoding="utf-8")
    assert main(["run", "pay.json", "--allow-all"]) == 4
    printed = capsys.readouterr().err
    run = printed.rpartition("ideabridge resume ")[2].split()[0]
    assert f"ideabridge approvals decide retry {run} --allow-all (or skip, value)" in printed
    assert main(["approvals", "decide", "skip", run, "--allow-all"]) == 1


def test_a_decision_without_the_tools_of_the_run_says_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trusted(here, '{"store": "store.sqlite"}')
    run = told(capsys, "run", "one.json", "--tools", "tools.py", code=4)["run"]
    assert main(["approvals", "decide", "approve", run]) == 1
    why = "its tool 'note' is missing here; was a tool file left out?"
    works = f"deny (or skip) what it asks, or end it: ideabridge runs cancel {run}"
    assert (
        capsys.readouterr().err
        == f"ideabridge: run {run} cannot continue here: {why} You can still {works}\n"
    )
    assert main(["approvals", "decide", "approve", run, "--tools", "tools.py"]) == 0
    capsys.readouterr()
    other = told(capsys, "run", "one.json", "--tools", "tools.py", code=4)["run"]
    assert main(["approvals", "decide", "deny", other, "--reason", "no tools here"]) == 1
    assert f"{other}: done, 1 error" in capsys.readouterr().err


def test_a_decision_that_a_rule_has_made_since_leaves_the_other_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration: dict[str, Any] = {"store": "store.sqlite", "tools": ["tools.py"]}
    rules = [{"tool": "pay", "then": "deny"}, {"tool": "note", "then": "ask"}]
    (here / "pay.json").write_text(
        json.dumps(
            {
                "calls": [
                    {"_tool": "note", "text": "c", "where": "c.txt"},
                    {"_tool": "pay", "to": "Ada"},
                ]
            }
        ),
        encoding="utf-8",
    )
    run = told(capsys, "run", "pay.json", code=4)["run"]
    write_trusted(here, {**configuration, "approval": {"rules": rules}})
    assert main(["approvals", "decide", "approve", run]) == 1
    printed = capsys.readouterr()
    # The run contains the call that was approved, and is followed to its end.
    assert (
        "denied by policy: approval.rules[0] says deny for tool 'pay'); the run has no pending"
        in printed.err
    )
    assert f"{run}: done, 1 error" in printed.err
    assert (here / "c.txt").exists()


def test_several_are_decided_at_once_and_what_is_left_is_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "plan.json").write_text(noting("a", "b"), encoding="utf-8")
    runs = [told(capsys, "run", "plan.json", code=4)["run"] for _ in range(2)]
    again, other, *_ = listed(capsys)
    assert (again["call"]["text"], other["call"]["text"]) == ("a", "b")
    # Two runs of the same plan ask the same question.
    assert main(["approvals", "decide", "approve", again["approval"]]) == 2
    said = capsys.readouterr().err
    assert all(f"{run}:{again['approval']}" in said for run in runs)
    answer = told(
        capsys, "approvals", "decide", "approve", f"{runs[0]}:{again['approval']}", runs[1], code=4
    )
    assert [(one["run"], one["status"]) for one in answer["runs"]] == [
        (runs[0], "needs_approval"),
        (runs[1], "done"),
    ]
    assert answer["runs"][0]["decided"] == [again["approval"]]
    [left] = listed(capsys)
    assert (left["run"], left["call"]["text"]) == (runs[0], "b")
    assert (
        told(capsys, "approvals", "decide", "deny", left["approval"], code=1)["runs"][0]["status"]
        == "done"
    )
    assert listed(capsys) == []
    assert main(["approvals", "decide", "deny", f"{runs[0]}:{left['approval']}"]) == 2
    assert "no such approval pending; it has no pending approvals" in capsys.readouterr().err


def test_a_call_is_edited_and_mistakes_are_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "one.json", code=4)["run"]
    edited = '{"_tool": "note", "text": "other", "where": "other.txt"}'
    for words, message in (
        (["approve"], "name the runs or approvals to decide on"),
        (["approve", "nothing_here"], "'nothing_here' is neither a pending approval nor a run"),
        (["approve", f"{run}:nothing"], "has no such approval pending; the pending ones are a0-"),
        (["retry", run], "accepts approve, deny, edit; found retry"),
        (["edit", run], "edit needs --call"),
        (["edit", run, "--call", "nonsense"], "--call: expected JSON or @FILE"),
        (["deny", run, "--call", edited], "--call requires edit, not deny"),
        (["value", run], "value needs --value"),
        ([], "the command must name the decision"),
    ):
        assert main(["approvals", "decide", *words]) == 2, words
        assert message in capsys.readouterr().err

    # The command says what is wrong with the first edit, and the call keeps waiting.
    assert main(["approvals", "decide", "edit", run, "--call", '{"_tool": "note", "txt": 1}']) == 1
    assert "the edited call cannot run" in capsys.readouterr().err
    assert main(["approvals", "decide", "edit", run, "--call", edited]) == 0
    assert (here / "other.txt").exists()
    assert main(["approvals", "decide", "approve", run]) == 2
    assert f"run {run} is not waiting for a decision (done)" in capsys.readouterr().err


def test_a_plan_as_a_whole_is_decided_and_its_calls_wait_then(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = told(capsys, "run", "--lazy", "one.json", code=4)["run"]
    [plan] = listed(capsys, run)
    assert (plan["kind"], plan["plan"]["calls"][0]["_tool"]) == ("plan", "note")
    assert main(["approvals", "decide", "approve", "last"]) == 4
    said = capsys.readouterr().err
    assert "approval needed (a0-" in said
    assert f"ideabridge resume {run} " in said
    [call_] = listed(capsys)
    assert call_["kind"] == "call"


def test_a_person_is_asked_about_everything(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "run", "one.json", code=4)
    told(capsys, "run", "two.json", code=4)
    terminal = Terminal(here, ["approvals", "decide"])
    terminal.read_until("e(dit): ")
    terminal.interrupt()
    assert terminal.end()[0] == 130
    assert len(listed(capsys)) == 2
    terminal = Terminal(here, ["approvals", "decide"])
    terminal.read_until("e(dit): ")
    assert '| text       "two"' in terminal.seen
    terminal.type("n")
    terminal.read_until("e(dit): ")
    assert '| text       "one"' in terminal.seen
    terminal.type("y")
    code, _ = terminal.end()
    assert code == 1
    assert (here / "one.txt").exists()
    assert not (here / "two.txt").exists()


@pytest.mark.anyio
async def test_a_run_of_a_server_that_is_up_is_decided(here: Path, ideabridge: Run) -> None:
    async with over_stdio(here / "ideabridge.json", "2026-07-28") as client:
        plan = json.loads(noting("one"))
        waiting = await call(client, "run_plan", **plan)
        assert waiting["status"] == "needs_approval"
        busy = await call(
            client, "run_plan", calls=[{"_tool": "forever"}, *plan["calls"]], wait_s=0.5
        )
        done = await anyio.to_thread.run_sync(ideabridge, "approvals", "list", "--json")
        of = {one["run"]: one for one in json.loads(done.stdout)["approvals"]}
        assert {run: one["at_work"] for run, one in of.items()} == {
            waiting["run"]: False,
            busy["run"]: True,
        }
        done = await anyio.to_thread.run_sync(ideabridge, "approvals", "decide", "approve", *of)
        # One run is decided. For the other, the command says why not and what can be done.
        assert done.returncode == 1
        assert (
            f"run {busy['run']} is executed by another process; decide in the host that runs it"
            in done.stderr
        )
        assert (await call(client, "check_run", run=waiting["run"]))["status"] == "done"
        assert (here / "one.txt").exists()


# -- grants ----------------------------------------------------------------------------------------

PAYING = """
import bank
for to in ("a", "b"):
    await bank.pay(to=to)
await bank.refund(of="a")
for to in ("c", "d"):
    await bank.pay(to=to)
"""


def test_an_answer_typed_before_a_question_decides_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "run", "one.json", code=4)
    told(capsys, "run", "two.json", code=4)
    terminal = Terminal(here, ["approvals", "decide"])
    terminal.read_until("e(dit): ")
    terminal.type("y\ny")
    terminal.read_until("e(dit): ")
    terminal.type("n")
    terminal.end()
    assert (here / "two.txt").exists()
    assert not (here / "one.txt").exists()


def bank(here: Path) -> Path:
    """A project with a server that pays, and a program that does; returns the file of its
    ledger.
    """
    folder = here / "bank"
    folder.mkdir()
    server = preloaded.module(PAY, str(folder))
    write_trusted(here, {"mcpServers": {"bank": server}, "store": "store.sqlite"})
    (here / "pay.py").write_text(PAYING, encoding="utf-8")
    return folder / "ledger"


def test_a_grant_at_the_terminal_survives_a_kill(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = bank(here)
    terminal = Terminal(here, ["run", "pay.py"])
    terminal.read_until("e(dit): ")
    terminal.type('r 2 {"to": "a"}')
    # A grant that would restrict nothing is refused, and the person is asked again.
    terminal.read_until("e(dit): ")
    assert "'to' restricts nothing" in terminal.seen.replace("\r\n", "")
    terminal.type('r 2 {"properties": {"to": {"enum": ["a", "b", "c", "d"]}}}')
    terminal.read_until("e(dit): ")
    assert "call of refund of server bank" in terminal.seen
    assert ledger.read_text().split("\n")[:-1] == ["pay a", "pay b"]
    terminal.kill()
    [asked] = listed(capsys)
    assert asked["call"]["_tool"] == "refund"
    [grant] = asked["grants"]
    assert (grant["call"], grant["tool"], grant["used"], grant["max"]) == (0, "pay", 1, 2)
    assert main(["approvals", "list"]) == 0
    assert (
        "granted: bank.pay for the rest of this run (call 0, by the person at the terminal): 1 of 2"
        in (capsys.readouterr().out)
    )
    terminal = Terminal(here, ["resume", asked["run"]])
    terminal.read_until("e(dit): ")
    assert "call of refund of server bank" in terminal.seen
    terminal.type("y")
    terminal.read_until("e(dit): ")
    assert '| to         "d"' in terminal.seen
    terminal.type("n")
    terminal.end()
    assert ledger.read_text().split("\n")[:-1] == ["pay a", "pay b", "refund a", "pay c"]
    assert main(["runs", "show", asked["run"]]) == 0
    shown = capsys.readouterr().out
    assert shown.count("approve (grant of call 0) by the person at the terminal") == 2
    assert (
        'approve for the rest of the run by the person at the terminal, {"max":2,"parameters":'
        in shown
    )


def test_a_command_grants(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = bank(here)
    run = told(capsys, "run", "pay.py", code=4)["run"]
    answer = told(capsys, "approvals", "decide", "approve", run, "--for-run", "--max", "2", code=4)
    assert answer["runs"][0]["grants"][0]["used"] == 1
    [refund] = listed(capsys)
    told(capsys, "approvals", "decide", "approve", refund["approval"], code=4)
    [asked] = listed(capsys)
    assert asked["call"]["to"] == "d"
    assert ledger.read_text().split("\n")[:-1] == ["pay a", "pay b", "refund a", "pay c"]


def test_mistakes_with_grants_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.json").write_text(noting("a", "b"), encoding="utf-8")
    run = told(capsys, "run", "plan.json", code=4)["run"]
    first, second = listed(capsys)
    for words, message in (
        (
            ["approve", run, "--for-run"],
            f"--for-run applies to one approval; these are {first['approval']}",
        ),
        (["deny", first["approval"], "--for-run"], "--for-run requires approve, not deny"),
        (["approve", first["approval"], "--max", "2"], "--max requires --for-run"),
        (["approve", first["approval"], "--parameters", "{}"], "--parameters requires --for-run"),
        (
            ["approve", first["approval"], "--for-run", "--parameters", "7"],
            "--parameters: expected JSON or @FILE",
        ),
    ):
        assert main(["approvals", "decide", *words]) == 2, words
        assert message in capsys.readouterr().err

    decide = ["approvals", "decide", "approve", first["approval"], "--for-run"]
    assert main([*decide, "--max", "0"]) == 1
    assert "grant.max: expected the number of further calls" in capsys.readouterr().err
    assert listed(capsys) == [first, second]
    # The other call is already waiting, and is approved as well.
    assert main([*decide, "--parameters", '{"required": ["text"]}']) == 0
    assert (here / "b.txt").exists()


# -- always ----------------------------------------------------------------------------------------


def test_a_person_at_the_terminal_allows_a_tool_always(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["approvals", "rules"]) == 0
    assert capsys.readouterr().err == "there are no standing rules, so no tool is allowed always\n"
    terminal = Terminal(here, ["run", "one.json"])
    terminal.read_until("run it? y(es), n(o) [reason], a(lways), r(un) [N], e(dit): ")
    terminal.type("a")
    assert terminal.end()[0] == 0
    assert "allowed always; to withdraw it: ideabridge approvals rules" in terminal.seen
    run = told(capsys, "run", "two.json")["run"]
    assert (here / "two.txt").exists()

    [rule] = told(capsys, "approvals", "rules")["rules"]
    assert (rule["tool"], rule["workspace"], rule["state"]) == ("note", str(here), "holds")
    assert main(["approvals", "rules"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{rule['id']} note {here} {rule['at'][:10]} the person at the terminal holds" in printed
    assert main(["runs", "show", run]) == 0
    cited = f"the standing rule {rule['id']} of {rule['at'][:10]}"
    assert f"note approve ({cited}) by the person at the terminal" in capsys.readouterr().out

    for wrong in ("", "x", rule["id"] + "0"):
        assert main(["approvals", "rules", "--remove", wrong]) == 2
        assert "expected the id of one rule, or its beginning" in capsys.readouterr().err
    assert main(["approvals", "rules", "--remove", rule["id"][:4]]) == 0
    assert capsys.readouterr().err == f"withdrawn: {rule['id']} (note)\n"
    told(capsys, "run", "two.json", code=4)


@pytest.mark.parametrize("columns", [80, 120])
def test_always_on_the_command_line_asks_for_confirmation(
    here: Path, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    told(capsys, "run", "one.json", code=4)
    [waiting] = listed(capsys)
    decide = ["approvals", "decide", "approve", waiting["approval"], "--always"]
    for answer, code in (("n", 130), ("y", 0)):
        terminal = Terminal(here, decide, columns=columns)
        terminal.read_until("from now on? [y/N]:")
        lines = terminal.screen()
        assert '      | text       "one"' in lines
        assert max(map(len, lines)) <= columns
        terminal.type(answer)
        assert terminal.end()[0] == code
        assert len(told(capsys, "approvals", "rules")["rules"]) == (answer == "y")
    assert (here / "one.txt").exists()


def test_mistakes_with_always_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = told(capsys, "run", "one.json", code=4)["run"]
    for words, message in (
        (["deny", run, "--always"], "--always requires approve, not deny"),
        (
            ["approve", run, "--always", "--for-run"],
            "give --always or --for-run, not both",
        ),
        (["approve", run, "--always"], "requires a terminal"),
    ):
        assert main(["approvals", "decide", *words]) == 2, words
        assert message in capsys.readouterr().err


def test_a_broken_file_of_rules_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rules_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{")
    assert main(["approvals", "rules"]) == 2
    assert "none of its rules apply" in capsys.readouterr().err
    findings = told(capsys, "doctor", code=1)["findings"]
    [wrong] = [one for one in findings if one["topic"] == "approvals"]
    assert "none of its rules apply" in wrong["text"]
    terminal = Terminal(here, ["run", "one.json"])
    terminal.read_until("e(dit): ")
    terminal.type("a")
    terminal.read_until("Approve only this call")
    terminal.read_until("e(dit): ")
    terminal.type("y")
    assert terminal.end()[0] == 0
    assert path.read_text() == "{"
