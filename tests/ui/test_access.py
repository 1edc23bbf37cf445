"""Who may open the page, and what a request must have. Requests are sent as another web page
could send them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from ideabridge.bridge.store.configuration_log import LoggedChange
from ideabridge.bridge.store.idea import IdeaMeta
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL, Role
from ideabridge.server.ui.ideas import VERSIONS
from tests import preloaded
from tests.cli.conftest import EXECUTABLE
from tests.cli.terminal import Terminal
from tests.ideas.values import idea_of, publish
from tests.ui.serving import (
    client,
    link_to,
    seal,
    secret,
    send,
    served,
    stranger,
    without_breaks,
)

ROLES: dict[str, Role] = {"ann": "member", "eva": "admin"}

PLAN = '{"calls": [{"_tool": "refund", "order": 1, "amount": 10}], "output": "†results.0"}'

DONE = '{"calls": [{"_tool": "list_orders"}], "output": "†results.0"}'


@pytest.fixture
def http(site: str) -> Generator[httpx.Client]:
    with client(site) as found:
        yield found


def run(http: httpx.Client, text: str = PLAN) -> str:
    """Run a plan in the playground; returns the id of the run."""
    answer = send(http, "/ui/playground", kind="plan", text=text, action="run")
    found = re.fullmatch(r".*/runs/(run_[0-9a-f]+)", str(answer.url))
    assert answer.status_code == 200, answer.text
    assert found is not None
    return found[1]


def run_to_the_end(http: httpx.Client) -> str:
    """Run a plan that asks nobody, and wait for its end; returns the id of the run."""
    run_id = run(http, DONE)
    while not re.search(
        r'<p class="facts">\s*<span class="status s-done">', http.get(f"/ui/runs/{run_id}").text
    ):
        pass
    return run_id


def test_every_answer_forbids_foreign_scripts_and_frames(http: httpx.Client) -> None:
    for path in ("/ui/", "/ui/runs", "/ui/static/ui.js", "/ui/nothing"):
        headers = http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"

    # Browsers keep the files that pages name, because their address changes with their content.
    for path in re.findall(r'"(/ui/static/ui[^"]+)"', http.get("/ui/runs").text):
        assert re.fullmatch(r"/ui/static/ui\.(css|js)\?[0-9a-f]{12}", path)
        assert "immutable" in http.get(path).headers["cache-control"]

    assert http.get("/ui/static/nothing?1").headers["cache-control"] == "no-store"
    base = str(http.base_url)
    cookie = httpx.get(link_to(base)).headers["set-cookie"]
    # Browsers send cookies to every port of a host, so two servers have cookies with different
    # names.
    assert cookie.startswith(f"ideabridge_ui_{http.base_url.port}=")
    assert {"Path=/ui", "HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    encrypted = httpx.get(link_to(base), headers={"X-Forwarded-Proto": "https"}).headers[
        "set-cookie"
    ]
    assert encrypted.startswith(f"__Host-ideabridge_ui_{http.base_url.port}=")
    assert {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"} <= set(encrypted.split("; "))


def test_a_name_that_points_here_is_refused(http: httpx.Client) -> None:
    for name in ("evil.example", "evil.example:8788", "127.0.0.1.evil.example", ""):
        assert http.get("/ui/runs", headers={"Host": name}).status_code in (400, 421)
    assert http.get("/ui/runs", headers={"Host": "localhost:1"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_another_site_changes_nothing(
    http: httpx.Client, headers: dict[str, str]
) -> None:
    form = {"secret": secret(http), "kind": "plan", "text": PLAN, "action": "run"}
    assert http.post("/ui/playground", data=form, headers=headers).status_code == 403
    assert "No runs yet" in http.get("/ui/runs").text


def test_a_form_without_the_secret_of_its_session_changes_nothing(http: httpx.Client) -> None:
    run_id = run(http)
    with client(str(http.base_url)) as other:
        theirs = secret(other)

    for wrong in ("", "guess", theirs):
        answer = http.post(f"/ui/runs/{run_id}/cancel", data={"secret": wrong})
        assert answer.status_code == 403
        assert "out of date" in answer.text

    assert "needs approval" in http.get(f"/ui/runs/{run_id}").text
    # A link must not change anything.
    assert http.get(f"/ui/runs/{run_id}/cancel").status_code == 405
    assert send(http, f"/ui/runs/{run_id}/cancel").status_code == 200
    assert "cancelled" in http.get(f"/ui/runs/{run_id}").text


def test_large_and_malformed_forms_are_refused(http: httpx.Client) -> None:
    key = secret(http)
    assert (
        http.post("/ui/playground", data={"secret": key, "text": "x" * 5_000_000}).status_code
        == 413
    )
    many = "&".join(f"a{number}=1" for number in range(2000))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert http.post("/ui/playground", content=many, headers=headers).status_code == 400
    assert http.put("/ui/playground").status_code == 405


def test_what_is_refused_is_said_on_the_page_of_the_form(http: httpx.Client) -> None:
    run_id = run(http)
    answer = send(
        http,
        "/ui/approvals/decide",
        "/ui/approvals",
        which=f"{run_id}:a9-nothing",
        decision="approve",
    )
    assert "is not waiting for a decision" in answer.text
    assert str(answer.url).endswith("/ui/approvals")
    answer = send(
        http, "/ui/approvals/decide", "/ui/approvals", which="run_0000:a0-x", decision="approve"
    )
    assert answer.status_code == 404
    assert "unknown run" in answer.text
    answer = send(http, "/ui/playground", kind="plan", text='{"calls": 3}', action="check")
    assert 'role="alert"' in answer.text


def test_a_message_is_for_the_next_page_and_not_for_a_script(http: httpx.Client) -> None:
    run_id = run(http)
    approval = re.search(rf'value="({run_id}:[^"]+)"', http.get("/ui/approvals").text)
    assert approval is not None
    fields = {"secret": secret(http), "which": approval[1], "decision": "deny"}
    assert http.post("/ui/approvals", data=fields, follow_redirects=False).status_code == 303
    # The page that is still open is reloaded before the browser follows the redirect.
    assert (
        "1 call denied" not in http.get("/ui/approvals", headers={"Ideabridge-Refresh": "1"}).text
    )
    assert "1 call denied" in http.get("/ui/approvals").text
    assert "1 call denied" not in http.get("/ui/approvals").text


def test_a_call_that_waits_no_longer_stops_the_others(http: httpx.Client) -> None:
    first = run(http)
    second = run(http)
    text = http.get("/ui/approvals").text
    keys = [re.search(rf'value="({run_id}:[^"]+)"', text) for run_id in (first, second)]
    [one, other] = [found[1] for found in keys if found is not None]
    send(http, "/ui/approvals/decide", "/ui/approvals", which=one, decision="deny")
    fields = {
        "secret": secret(http),
        "which": [one, other],
        "decision": "approve",
        f"call.{one}": '{"kept": 1}',
    }
    answer = http.post("/ui/approvals", data=fields)
    assert answer.status_code == 400
    assert "Nothing was decided." in answer.text
    assert "A call that is no longer pending" in answer.text
    assert "&#34;kept&#34;: 1" in answer.text
    assert other in http.get("/ui/approvals").text
    none = http.post("/ui/approvals", data={"secret": secret(http), "decision": "approve"})
    assert "select at least one call first" in none.text


def test_users_sign_in_and_see_their_own_runs_alone(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens: dict[str, str] = {}
        for name, role in (("ann", "member"), ("bob", "member"), ("eva", "admin")):
            store.users.add(name, "admin" if role == "admin" else "member")
            tokens[name] = store.users.add_token(name)[1]
        store.configuration_log.note(
            LoggedChange(
                time.time(), "/home/eva/shop", "p", "withheld", ("<b>is not JSON",), "eva", 1.0
            )
        )
    with served(tmp_path) as url, stranger(url) as ann, stranger(url) as bob, stranger(url) as eva:
        assert ann.get("/ui/runs").url.path == "/ui/sign-in"
        assert ann.get("/ui/live").url.path == "/ui/sign-in"
        assert ann.post("/ui/sign-in", data={"token": "wrong"}).status_code == 403
        for name, http in (("ann", ann), ("bob", bob), ("eva", eva)):
            assert http.post("/ui/sign-in", data={"token": tokens[name]}).url.path == "/ui/home"
        run_id = run(ann)
        assert run_id in ann.get("/ui/runs").text
        assert run_id not in bob.get("/ui/runs").text
        for path in (
            f"/ui/runs/{run_id}",
            f"/ui/runs/{run_id}/calls/0",
            f"/ui/runs/{run_id}/calls/0/result",
        ):
            assert bob.get(path).status_code == 404
        assert run_id not in bob.get("/ui/approvals").text
        approval = re.search(rf'value="{run_id}:([^"]+)"', ann.get("/ui/approvals").text)
        assert approval is not None
        decided = send(
            bob, "/ui/approvals/decide", which=f"{run_id}:{approval[1]}", decision="approve"
        )
        assert decided.status_code == 404
        assert bob.get("/ui/admin").status_code == 400
        assert "only the owner" in bob.get("/ui/admin").text
        assert (
            send(bob, "/ui/admin/users", name="mallory", action="add", role="admin").url.path
            != "/ui/admin"
        )

        changes = eva.get("/ui/admin").text
        assert "Not in force" in changes
        assert "&lt;b&gt;is not JSON" in changes
        assert "/home/eva/shop" in without_breaks(changes)
        assert "by eva" in changes

        # An admin sees the runs of everybody and decides, and is named in the journal.
        assert run_id in eva.get("/ui/runs").text
        key = f"{run_id}:{approval[1]}"
        decision = {"which": key, "decision": "approve", "seal": seal(eva, key)}
        answer = send(eva, "/ui/approvals/decide", "/ui/approvals", **decision)
        assert "by you, " in answer.text
        assert '<td class="decider">you</td>' in eva.get("/ui/approvals/past").text
        assert run_id not in bob.get("/ui/approvals/past").text

        # Revoking a token ends its session immediately.
        added = send(eva, "/ui/admin/users", "/ui/admin", name="bob", action="disable")
        assert "bob: disable" in added.text
        assert bob.get("/ui/runs").url.path == "/ui/sign-in"

        # The link that the command prints signs in the person at this machine, once.
        with stranger(url) as local, stranger(url) as late:
            link = link_to(url)
            # A chat that shows a preview of the link, or a page on another site, does not use the
            # link up.
            assert local.head(link).url.path == "/ui/sign-in"
            image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            assert local.get(link, headers=image).status_code == 403
            followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
            assert local.get(link, headers=followed).url.path == "/ui/home"
            assert run_id in local.get("/ui/runs").text
            assert late.get(link).status_code == 403


def test_a_tool_that_is_shared_shows_others_no_output_of_its_run(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens: dict[str, str] = {}
        for name in ("ann", "bob"):
            store.users.add(name, "member")
            tokens[name] = store.users.add_token(name)[1]
        idea = store.ideas.save(idea_of("Say what Ann earns."), IdeaMeta())
        publish(
            store,
            "salaries",
            idea,
            "user:ann",
            recorded={"input": {"of": "Ann"}, "output": "4711 guilders"},
        )
        store.publications.share("salaries", ("user:bob",))
    with served(tmp_path) as url, stranger(url) as ann, stranger(url) as bob:
        for name, http in (("ann", ann), ("bob", bob)):
            http.post("/ui/sign-in", data={"token": tokens[name]})
            page = http.get("/ui/ideas/salaries").text
            assert "The recorded input" in page
            assert ("4711 guilders" in page) is (name == "ann")


def test_who_manages_acts_in_nobodys_name(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name, role).name)[1]
            for name, role in ROLES.items()
        }
    with (
        served(tmp_path) as url,
        stranger(url) as ann,
        stranger(url) as eva,
        stranger(url) as local,
    ):
        for name, http in (("ann", ann), ("eva", eva)):
            assert http.post("/ui/sign-in", data={"token": tokens[name]}).url.path == "/ui/home"
        assert local.get(link_to(url)).url.path == "/ui/home"
        waits = run(ann)
        other = '{"calls": [{"_tool": "find_customer", "id": "c1"}], "output": "†results.0"}'
        for http in (eva, local):
            page = http.get(f"/ui/runs/{waits}").text
            assert "Continue in a new run" not in page
            assert "Make it a tool" not in page
            answer = send(http, f"/ui/runs/{waits}/fork", at="1", solution=other)
            assert f"run {waits} belongs to ann; only the owner can fork it" in answer.text
            answer = send(http, "/ui/ideas/publish", ref=waits, name="taken")
            assert f"run {waits} belongs to ann; only the owner can publish it" in answer.text
            answer = http.get("/ui/ideas/publish", params={"ref": waits})
            assert f"run {waits} belongs to ann; only the owner can publish it" in answer.text
        assert "Continue in a new run" in ann.get(f"/ui/runs/{waits}").text

        # The owner of the run can read who has cancelled it.
        send(eva, f"/ui/runs/{waits}/cancel")
        assert "cancelled on the page by eva" in ann.get(f"/ui/runs/{waits}").text
        own = run(ann)
        send(ann, f"/ui/runs/{own}/cancel")
        assert "cancelled on the page by" not in ann.get(f"/ui/runs/{own}").text
        with Store.open(tmp_path / "ideas.sqlite") as store:
            assert {record.id for record in store.runs.newest(SEES_ALL)} == {waits, own}


def test_who_manages_withdraws_what_others_allow_always_and_gives_nothing(tmp_path: Path) -> None:
    roles: dict[str, Role] = {**ROLES, "bob": "member"}
    with Store.open(tmp_path / "ideas.sqlite") as store:
        tokens = {
            name: store.users.add_token(store.users.add(name, role).name)[1]
            for name, role in roles.items()
        }
    with (
        served(tmp_path) as url,
        stranger(url) as ann,
        stranger(url) as bob,
        stranger(url) as eva,
    ):
        for name, http in (("ann", ann), ("bob", bob), ("eva", eva)):
            assert http.post("/ui/sign-in", data={"token": tokens[name]}).url.path == "/ui/home"

        run_id = run(ann)
        key = re.search(rf'value="({run_id}:[^"]+)"', ann.get(f"/ui/runs/{run_id}").text)
        assert key is not None
        always = {"which": key[1], "decision": "always"}
        assert "and always allow" not in eva.get("/ui/approvals").text
        answer = send(eva, "/ui/approvals/decide", **always, seal=seal(eva, key[1]))
        assert "only ann, who owns the run, can choose to always allow a tool for it" in answer.text
        answer = send(ann, "/ui/approvals/decide", **always, seal=seal(ann, key[1]))
        assert answer.status_code == 200

        rule = re.search('name="rule" value="([0-9a-f]+)"', ann.get("/ui/approvals").text)
        assert rule is not None
        assert "Every change asks you first." in bob.get("/ui/approvals").text
        # The pages of a tool speak of the visitor's own calls.
        tool = "/ui/modules/tools/tools/refund"
        assert "You always allowed it" in ann.get(tool).text
        assert "You always allowed it" not in bob.get(tool).text
        assert "You always allowed it" not in eva.get(tool).text
        answer = send(bob, "/ui/approvals/rules", rule=rule[1])
        assert "there is no standing rule" in answer.text
        assert "for ann</span>" in eva.get("/ui/approvals").text
        assert send(eva, "/ui/approvals/rules", rule=rule[1]).status_code == 200
        assert "Every change asks you first." in ann.get("/ui/approvals").text


def test_odd_numbers_are_refused_without_a_failure(tmp_path: Path) -> None:
    with served(tmp_path) as url, client(url) as http:
        run_id = run_to_the_end(http)
        assert (
            send(http, "/ui/ideas/publish", ref=run_id, name="orders").url.path
            == "/ui/ideas/orders"
        )
        tool = "/ui/ideas/orders"
        for odd in ("²", "٣", "-1", "1e3", "9" * 5000):
            assert http.get(f"/ui/runs/{run_id}/calls/{odd}").status_code == 404
            assert http.get(f"/ui/runs/{run_id}/calls/{odd}/result").status_code == 404
            assert http.get(f"/ui/runs/{run_id}/calls/0/images/{odd}").status_code == 404
            for name in ("at", "calls", "events"):
                assert http.get(f"/ui/runs/{run_id}", params={name: odd}).status_code == 200
            assert http.get(tool, params={"version": odd}).status_code == 200
            assert http.get(tool, params={"after": odd}).status_code == 200
            assert http.get(f"{tool}/diff", params={"old": odd}).status_code == 400
            refused = send(http, f"{tool}/version", tool, version=odd, action="pin")
            assert "version: expected the number of a version" in refused.text
            refused = send(http, f"/ui/runs/{run_id}/fork", f"/ui/runs/{run_id}", at=odd)
            assert "after event: expected the number of an event" in refused.text
        waits = run(http)
        found = re.search(rf'value="({waits}:[^"]+)"', http.get("/ui/approvals").text)
        assert found is not None
        refused = send(
            http,
            "/ui/approvals/decide",
            "/ui/approvals",
            which=found[1],
            decision="grant",
            max="9" * 5000,
        )
        assert "at most: expected a number of calls" in refused.text


def test_the_page_of_a_tool_compares_the_latest_versions_alone(tmp_path: Path) -> None:
    with served(tmp_path) as url, client(url) as http:
        run_id = run_to_the_end(http)
        for number in range(VERSIONS + 2):
            fields = {"ref": run_id, "name": "orders", "description": f"List the orders, {number}."}
            if number:
                fields["replaces"] = "orders"
            assert send(http, "/ui/ideas/publish", **fields).url.path == "/ui/ideas/orders"
        first = http.get("/ui/ideas/orders").text
        assert first.count(">1 difference<") == VERSIONS
        assert re.findall(r'href="\?version=([0-9]+)"', first) == [
            str(VERSIONS + 2 - one) for one in range(VERSIONS)
        ]
        assert 'href="?after=3"' in first
        rest = http.get("/ui/ideas/orders?after=3").text
        assert rest.count(">1 difference<") == 1
        assert re.findall(r'href="\?version=([0-9]+)"', rest) == ["2", "1"]


# -- the link of the owner -------------------------------------------------------------------------

SERVE = ["serve", "--http", "127.0.0.1:0", "--ui", "--log-level", "debug"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store, and a home folder of nobody's."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    Store.open(tmp_path / "ideas.sqlite").close()
    return tmp_path


def test_a_server_shows_its_owner_a_link_at_a_terminal_only(here: Path) -> None:
    with Store.open(here / "ideas.sqlite") as store:
        store.users.add("ann")

    terminal = Terminal(
        here, [*SERVE, "--store", "ideas.sqlite", "--allow-host", "team.example"], columns=200
    )
    terminal.read_until("to allow a name, use")
    shown = terminal.seen.replace("\r", "")
    link = re.search(
        r"sign in to the page as the owner, .*within 10 minutes; it works only once:\n  "
        r"(\S+/ui/sign-in\?key=\S+)\n",
        shown,
    )
    assert link is not None, shown
    # Everybody else gets an address without a secret, with the name under which they reach the
    # server.
    assert re.search(
        r"The page for people is at\n  http://team.example:\d+/ui/\nPeople sign in there with",
        shown,
    )
    with stranger(link[1]) as owner, stranger(link[1]) as late:
        path = link[1][link[1].index("/ui/") :]
        assert owner.get(path).url.path == "/ui/home"
        assert owner.get("/ui/admin").status_code == 200
        assert late.get(path).status_code == 403

    terminal.interrupt()
    code, out = terminal.end()
    assert (code, out) == (0, "")
    # The line that logs the request has no key either.
    assert terminal.seen.count(path.partition("=")[2]) == 1


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("command", ["serve", "ui"])
def test_no_link_is_written_to_where_logs_come_from(
    command: str, here: Path, *, users: bool
) -> None:
    if users:
        with Store.open(here / "ideas.sqlite") as store:
            store.users.add("ann")

    words = SERVE if command == "serve" else ["ui", "127.0.0.1:0", "--no-browser"]
    with subprocess.Popen(
        preloaded.python(EXECUTABLE, *words, "--store", "ideas.sqlite"),
        cwd=here,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        # It says which command prints a link instead, in any folder.
        while "ideabridge ui --link" not in lines[-1]:
            lines.append(process.stderr.readline())

        made = subprocess.run(
            preloaded.python(EXECUTABLE, *shlex.split(lines[-1])[1:]),
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        with stranger(made.stdout.strip()) as owner:
            assert owner.get(made.stdout.strip()).url.path == "/ui/home"
            assert "Sign out" in owner.get("/ui/runs").text

        process.terminate()
        out, log = process.communicate(timeout=30)

    said = "".join([*lines, log, out])
    assert re.search(r"  http://\S+/ui/\n", said)
    assert "key=" not in said


def test_without_users_whoever_reaches_the_page_reads_it_and_decides_nothing(
    tmp_path: Path,
) -> None:
    """A model with a tool that sends requests must not approve its own calls as the person."""
    with served(tmp_path, command="serve") as url, client(url) as owner, stranger(url) as model:
        run_id = run(owner)
        page = model.get(f"/ui/runs/{run_id}")
        assert page.status_code == 200
        approval = re.search(rf'value="({run_id}:[^"]+)"', page.text)
        assert approval is not None
        assert 'name="secret" value=""' in page.text
        assert f"ideabridge ui --link --project {tmp_path}" in page.text
        forms: list[tuple[str, dict[str, str]]] = [
            ("approvals/decide", {"which": approval[1], "decision": "approve"}),
            ("approvals", {"which": approval[1], "decision": "approve"}),
            ("approvals/decide", {"which": approval[1], "decision": "grant"}),
            ("approvals/decide", {"which": approval[1], "decision": "always"}),
            ("approvals/rules", {"rule": "4f1a9c3b5d7e"}),
            (f"runs/{run_id}/cancel", {}),
            (f"runs/{run_id}/fork", {}),
            ("playground", {"kind": "plan", "text": PLAN, "action": "run"}),
            ("playground", {"kind": "plan", "text": PLAN, "action": "check"}),
            ("ideas/publish", {"ref": run_id, "name": "mine"}),
            ("modules/tools/call", {"tool": "list_orders"}),
            ("servers/new", {"name": "evil", "kind": "command", "command": "evil"}),
            ("servers/take", {"host": "cursor", "which": "evil"}),
            ("servers/change", {"name": "evil", "action": "enable"}),
            ("servers/undo", {"edit": "any"}),
            ("connect/write", {"host": "cursor"}),
            ("connect/undo", {"host": "cursor"}),
            ("modules/tools/sign-in/begin", {}),
            ("modules/tools/sign-in/paste", {"address": "http://127.0.0.1/"}),
            ("admin/users", {"name": "ann", "action": "add"}),
            ("admin/tokens", {"name": "ann"}),
            ("admin/backup", {}),
            ("admin/limits", {"calls": "1"}),
            ("admin/sessions", {"session": "any"}),
            ("sign-out", {}),
        ]
        for path, fields in forms:
            for secret_of_it in ("", secret(owner)):
                answer = model.post(f"/ui/{path}", data={"secret": secret_of_it, **fields})
                assert answer.status_code == 403, path
                assert "ideabridge ui --link" in answer.text
        assert "needs approval" in owner.get(f"/ui/runs/{run_id}").text


def test_without_a_session_no_button_is_shown(page: Page, tmp_path: Path) -> None:
    with served(tmp_path) as url, client(url) as owner:
        run_id = run(owner)
        for path in ("runs", f"runs/{run_id}", "approvals", "playground", "admin", "modules/tools"):
            page.goto(url + path)
            expect(page.get_by_text("You read this page without a session")).to_be_visible()
            for form in page.locator("form[method=post]").all():
                expect(form).not_to_be_visible()
        page.goto(f"{url}approvals")
        expect(page.locator("article.asking")).to_contain_text('"amount": 10')


def test_a_cookie_is_for_its_own_server(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    with served(tmp_path / "one") as one, served(tmp_path / "other") as other, client(one) as http:
        # A browser sends both cookies to both ports, and each server recognises its own.
        assert http.get(link_to(other)).url.path == "/ui/home"
        assert len(http.cookies) == 2
        for url in (one, other):
            assert "Sign out" in http.get(f"{url}runs").text


def test_the_first_user_ends_the_other_sessions_without_a_token(http: httpx.Client) -> None:
    with stranger(str(http.base_url)) as other:
        assert other.get("/ui/runs").url.path == "/ui/runs"
        answer = send(http, "/ui/admin/users", "/ui/admin", name="ann", action="add", role="member")
        assert 'aria-label="The text to hand over"' in answer.text
        found = re.search(r"sign in there with the token:\n  (\S+)\n", answer.text)
        assert found is not None
        # A token that is handed over is shown only once.
        assert found[1] not in http.get("/ui/admin/users/ann").text
        assert other.get("/ui/runs").url.path == "/ui/sign-in"
        assert other.post("/ui/sign-in", data={"token": found[1]}).url.path == "/ui/home"


def test_a_link_that_was_used_says_so_before_anything_else(tmp_path: Path) -> None:
    with Store.open(tmp_path / "ideas.sqlite"), served(tmp_path) as url, stranger(url) as http:
        link = link_to(url)
        assert http.get(link).url.path == "/ui/home"
        dead = http.get(link)
        assert dead.status_code == 403
        before = dead.text.partition("<form")[0]
        assert (
            "This link was already used, or is older than 10 minutes. "
            "Ask the person who sent it for a new one."
        ) in before
        assert 'role="alert"' not in dead.text.partition("<form")[2]
        assert "<details><summary>For the person who runs the server" in dead.text

        wrong = http.post("/ui/sign-in", data={"token": "wrong"})
        assert "This token is not valid." in wrong.text.partition("<form")[2]
        assert "This link" not in wrong.text
