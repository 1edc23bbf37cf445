"""`${secret:NAME}`: where the values are, who may read them, and what fails alone without them."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ideabridge.bridge import Bridge
from ideabridge.bridge.configuration import load_configuration, load_workspace, user_file
from ideabridge.bridge.errors import SecretGivenError
from ideabridge.bridge.keyring import Keyring, KeyringError
from ideabridge.bridge.masking import hidden_in, shown_definition
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.settings import ModuleConfiguration, entry_digest, secrets_named
from ideabridge.bridge.stored_secrets import (
    SecretOwner,
    StoredSecretError,
    allow_secret,
    find_secret,
    remove_secret,
    secret_owner,
    secret_value,
    secrets_path,
    set_secret,
    stored_secrets,
)
from tests import keyrings
from tests.trusting import write_own, write_trusted

from .conftest import raw

pytestmark = pytest.mark.anyio

VALUE = "Zq8vK1mN-4pR7tX2y/9"
OWN = SecretOwner()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder, which is the current one, in a home of nobody's."""
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def reads(name: str, owner: SecretOwner = OWN, server: str = "any", digest: str = "") -> str:
    return secret_value(owner, name, server, digest)


# -- where the values are --------------------------------------------------------------------------


def test_a_value_is_in_the_keyring_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = keyrings.installed(monkeypatch)
    assert set_secret(OWN, "github", VALUE, {}) == "the keyring"
    assert list(keyring.held.values()) == [VALUE]
    assert VALUE not in secrets_path().read_text()
    assert reads("github") == VALUE
    assert remove_secret(OWN, "github")
    assert keyring.held == {}
    assert not remove_secret(OWN, "github")


def test_without_a_keyring_a_value_is_in_a_file_of_the_user() -> None:
    place = set_secret(OWN, "github", VALUE, {})
    assert place == (
        f"{secrets_path()}, which only you can read (the package keyring has no backend on this "
        "system)"
    )
    assert secrets_path().stat().st_mode & 0o777 == 0o600
    assert reads("github") == VALUE
    assert [secret.name for secret in stored_secrets()] == ["github"]
    assert VALUE not in repr(stored_secrets())


def test_a_keyring_that_refuses_a_value_leaves_it_to_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyring = keyrings.installed(monkeypatch)
    set_secret(OWN, "github", "before", {})
    keyring.failure = RuntimeError("it is locked. Unlock it")
    assert "(the keyring refuses it: it is locked)" in set_secret(OWN, "github", VALUE, {})
    assert reads("github") == VALUE
    keyring.failure = None
    set_secret(OWN, "github", "after", {})
    assert VALUE not in secrets_path().read_text()
    assert reads("github") == "after"


def test_a_keyring_that_cannot_be_read_fails_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keyring = keyrings.installed(monkeypatch)
    set_secret(OWN, "github", VALUE, {})
    keyring.failure = RuntimeError("Failed to unlock the collection!")
    with pytest.raises(StoredSecretError, match="cannot be read: Failed to unlock the collection"):
        reads("github")
    with pytest.raises(StoredSecretError, match="cannot delete the secret github"):
        remove_secret(OWN, "github")
    assert find_secret(OWN, "github") is not None
    keyring.failure = None
    keyring.held.clear()
    with pytest.raises(StoredSecretError, match="no longer in the keyring; run: ideabridge secr"):
        reads("github")
    keyrings.without_backend(monkeypatch)
    with pytest.raises(StoredSecretError, match="in the keyring, which is not available"):
        reads("github")


def test_a_keyring_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    asked: list[str] = []

    class Locked(keyrings.FakeKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            asked.append(username)
            release.wait()
            return None

    keyrings.use(monkeypatch, Locked())
    monkeypatch.setattr("ideabridge.bridge.keyring.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("ideabridge.bridge.keyring.PAUSE_SECONDS", 0.2)
    try:
        with pytest.raises(KeyringError, match=r"did not answer within .* it may be"):
            Keyring().read("github")
        with pytest.raises(KeyringError, match="did not answer a moment ago"):
            Keyring().read("other")
        assert asked == ["github"]
    finally:
        release.set()


def readable(path: Path) -> None:
    path.chmod(0o644)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_another_form(path: Path) -> None:
    path.write_text('{"version": 1, "secrets": [{"name": 3}]}')


def nested(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (readable, "other users may read or write it"),
        (a_pipe, "is not a regular file"),
        (a_folder, "is not a regular file"),
        (of_another_form, "was not written by ideabridge"),
        (nested, "was not written by ideabridge"),
    ],
)
def test_a_file_that_is_not_private_or_not_ours_is_refused_and_stays(
    spoil: Callable[[Path], None], expected: str
) -> None:
    set_secret(OWN, "github", VALUE, {})
    spoil(secrets_path())
    for attempt in (
        lambda: reads("github"),
        lambda: set_secret(OWN, "other", VALUE, {}),
        lambda: remove_secret(OWN, "github"),
    ):
        with pytest.raises(StoredSecretError, match=expected):
            attempt()
    assert secrets_path().exists()


def test_a_linked_file_stays_a_link(tmp_path: Path) -> None:
    set_secret(OWN, "first", VALUE, {})
    target = tmp_path / "elsewhere.json"
    secrets_path().rename(target)
    secrets_path().symlink_to(target)
    set_secret(OWN, "second", VALUE, {})
    assert secrets_path().is_symlink()
    assert [secret.name for secret in stored_secrets()] == ["first", "second"]


def test_writers_at_the_same_time_lose_nothing() -> None:
    names = [f"name-{number}" for number in range(12)]
    threads = [threading.Thread(target=set_secret, args=(OWN, name, VALUE, {})) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(secret.name for secret in stored_secrets()) == sorted(names)


@pytest.mark.parametrize("name", ["", "a b", "-x", "a}", "ü", "x" * 101, "a:-b"])
def test_a_name_has_plain_characters(name: str) -> None:
    with pytest.raises(StoredSecretError, match="is not a valid name for a secret"):
        set_secret(OWN, name, VALUE, {})


@pytest.mark.parametrize("value", ["", "a\0b", "x" * 32_769])
def test_a_value_that_nothing_can_hold_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(StoredSecretError) as caught:
        set_secret(OWN, "name", value, {})
    assert len(str(caught.value)) < 100


# -- who may read them -----------------------------------------------------------------------------


def test_each_file_has_secrets_of_its_own(folder: Path) -> None:
    project = secret_owner(folder / "ideabridge.json")
    set_secret(OWN, "github", VALUE, {})
    with pytest.raises(StoredSecretError, match="is not stored; run: ideabridge secrets set git"):
        reads("github", project)
    set_secret(project, "github", "of the project", {"tickets": "digest"})
    assert reads("github", project, "tickets", "digest") == "of the project"
    assert reads("github") == VALUE
    remove_secret(project, "github")
    assert reads("github") == VALUE


def test_only_the_servers_that_were_allowed_read_a_secret_of_another_file(folder: Path) -> None:
    project = secret_owner(folder / "ideabridge.json")
    set_secret(project, "github", VALUE, {"tickets": "digest"})
    for server, digest in (("tickets", "other"), ("other", "digest")):
        with pytest.raises(StoredSecretError, match="before its entry changed; to review the ent"):
            reads("github", project, server, digest)
    allow_secret(project, "github", {"tickets": "other"})
    assert reads("github", project, "tickets", "other") == VALUE
    with pytest.raises(StoredSecretError):
        reads("github", project, "tickets", "digest")
    with pytest.raises(StoredSecretError, match="is not stored"):
        allow_secret(project, "missing", {})


def test_the_users_file_is_their_own_by_every_path(tmp_path: Path, folder: Path) -> None:
    own = write_own({})
    link = folder / "ideabridge.json"
    link.symlink_to(own)
    assert secret_owner(None) == secret_owner(user_file()) == secret_owner(link) == OWN
    linked = tmp_path / "linked"
    linked.symlink_to(folder)
    other = folder / "team.json"
    assert secret_owner(linked / "team.json") == secret_owner(other) == SecretOwner(str(other))


def entry(**changes: Any) -> ModuleConfiguration:
    return ModuleConfiguration.model_validate(
        {"command": "run", "args": (), "env": {"TOKEN": "${secret:a}"}, **changes}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"command": "other"},
        {"args": ("--url", "https://elsewhere.example")},
        {"env": {"TOKEN": "${secret:a}", "API_URL": "https://elsewhere.example"}},
        {"env": {"OTHER": "${secret:a}"}},
        {"cwd": "/elsewhere"},
    ],
)
def test_whatever_may_send_a_secret_elsewhere_changes_the_digest(changes: dict[str, Any]) -> None:
    assert entry_digest(entry(**changes)) != entry_digest(entry())


def test_what_sends_nothing_elsewhere_does_not_change_the_digest() -> None:
    assert entry_digest(entry(timeout=3.0, deny=("x",), disabled=True)) == entry_digest(entry())


# -- in an entry -----------------------------------------------------------------------------------


def test_secrets_are_named_in_every_place_that_is_filled_in() -> None:
    local = entry(
        command="${secret:a}",
        args=("x", "--y=${secret:b}${secret:a}"),
        cwd="/${secret:c}",
        env={"A": "$${secret:not}", "B": "${secret}", "C": "${secret:-x}"},
    )
    assert secrets_named(local) == {"a": ["command", "args.1"], "b": ["args.1"], "c": ["cwd"]}
    remote = ModuleConfiguration.model_validate_json(
        json.dumps(
            {
                "url": "https://${secret:u}@e.example",
                "headers": {"X": "${secret:h}"},
                "auth": {
                    "issuer": "https://e.example",
                    "client_id": "${secret:i}",
                    "client_secret": "${secret:s}",
                },
            }
        )
    )
    assert secrets_named(remote) == {
        "u": ["url"],
        "h": ["headers.X"],
        "i": ["auth.client_id"],
        "s": ["auth.client_secret"],
    }


def test_the_name_of_a_secret_is_shown() -> None:
    shown: dict[str, Any] = {
        "command": "run",
        "env": {"TOKEN": "${secret:a-b}", "URL": "https://u:${secret:x}@e"},
    }
    shown["url"] = "https://${secret:user}@e.example/?api_key=${secret:key}"
    shown["args"] = ["--token", "${secret:t}", "-H", "X-Api-Key: ${secret:h}", "a=${secret:1}"]
    assert shown_definition(dict(shown)) == shown
    assert hidden_in(dict(shown)) == []


def all_bytes(folder: Path) -> bytes:
    """Return what the files of a store hold."""
    return b"".join(file.read_bytes() for file in folder.glob("store.sqlite*"))


def received(folder: Path) -> str:
    return (folder / "received").read_text()


def writing(path: Path) -> dict[str, Any]:
    """Return a server that writes its header to a file before it starts."""
    entry = raw(env={"HEADER": "Bearer ${secret:github}", "INTO": str(path)})
    start = shlex.join([entry["command"], *entry["args"]])
    words = ["-c", f'printf "%s %s" "$HEADER" "$1" > "$INTO"; exec {start}', "sh"]
    return {**entry, "command": "sh", "args": [*words, "--token=${secret:github}"]}


async def test_a_server_gets_its_secrets_and_one_without_fails_alone(
    folder: Path, tmp_path: Path
) -> None:
    path = folder / "team.json"
    names = {"env": {"TOKEN": "${secret:absent}", "OTHER": "${NOT_SET_ANYWHERE}"}}
    well = writing(tmp_path / "received")
    path.write_text(json.dumps({"mcpServers": {"lone": raw(**names), "well": well}}))
    configuration = load_configuration(path)
    servers = {"well": entry_digest(configuration.modules["well"])}
    set_secret(secret_owner(path), "github", VALUE, servers)
    async with Modules(configuration) as modules:
        assert await modules["well"].call("echo", {"text": "x"})
        assert received(tmp_path) == f"Bearer {VALUE} --token={VALUE}"
        assert await modules.settled(60, ["lone"])
        error = str(modules["lone"].status().error)
    assert "mcpServers.lone.env.OTHER, env.TOKEN: the variable NOT_SET_ANYWHERE is not" in error
    assert "the secret absent is not stored; run: ideabridge secrets set absent --config" in error


async def test_a_malformed_name_fails_with_what_was_expected() -> None:
    write_own({"mcpServers": {"a": raw(env={"TOKEN": "${secret:a b}"})}})
    async with Modules(load_configuration(user_file())) as modules:
        assert await modules.settled(60, ["a"])
        assert "a secret's name has letters, digits" in str(modules["a"].status().error)


async def test_values_are_masked_like_other_configured_secrets(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyrings.installed(monkeypatch)
    set_secret(OWN, "github", VALUE, {})
    write_own({"mcpServers": {"raw": raw(env={"PLAIN_NAME": "${secret:github}"})}})
    configuration = load_workspace(folder / "ideabridge.json", project=folder)
    configuration = configuration.model_copy(update={"approval": "allow_all"})
    async with Bridge(configuration, store=tmp_path / "store.sqlite") as bridge:
        calls = [{"_tool": "environment", "_module": "raw", "_outputPath": "e"}]
        run = await bridge.run_plan(calls=calls, output="†state.e")
        assert await run.wait() == "done"
        assert "[secret:github]" in json.dumps(run.value("†state.e"))
        assert bridge.secrets.mask(f"the token {VALUE}") == "the token [secret:github]"
        with pytest.raises(
            SecretGivenError, match=r"calls\.0\.items\.0 contains the secret github"
        ):
            await bridge.run_plan(calls=[{"_tool": "count", "items": [VALUE]}])

    assert VALUE.encode() not in all_bytes(tmp_path)


async def test_secrets_of_disabled_servers_are_masked_too(folder: Path) -> None:
    set_secret(OWN, "github", VALUE, {})
    write_own({"mcpServers": {"a": raw(env={"A": "${secret:github}"}, disabled=True)}})
    configuration = load_workspace(folder / "ideabridge.json", project=folder)
    async with Bridge(configuration, store=folder / "store.sqlite") as bridge:
        assert bridge.secrets.mask(VALUE) == "[secret:github]"


async def test_a_project_cannot_read_the_secrets_of_the_users_servers(folder: Path) -> None:
    set_secret(OWN, "github", VALUE, {})
    path = write_trusted(folder, {"mcpServers": {"t": raw(env={"TOKEN": "${secret:github}"})}})
    async with Modules(load_workspace(path, project=folder)) as modules:
        assert await modules.settled(60, ["t"])
        error = str(modules["t"].status().error)
    assert "the secret github is not stored; run: ideabridge secrets set github --c" in error
