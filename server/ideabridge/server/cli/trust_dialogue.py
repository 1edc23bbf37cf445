"""Show a project file to the person at the terminal, and ask whether to trust it."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ideabridge.bridge.trust_snapshot import shown_line
from ideabridge.server.cli.console import (
    err,
    interruptible,
    out,
    print_json,
    say,
    show_line,
    wrapped,
)
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import counted, joined, printable, readable_json

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.trust import ProjectTrust
    from ideabridge.bridge.trust_snapshot import Snapshot

_NAMED: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?=\}|:-)")
_INDENT: Final = 10
_SHOWN_FILES: Final = 20
_STORED: Final = "stored for this server, as it is"
_ALL_HEAD: Final = "Altogether, it would do this:"
_MOST_COMPARED_LINES: Final = 2000
"""Maximum number of lines in a file that is compared. Repeated lines take a long time to
compare.
"""

_MOST_CHANGED_LINES: Final = 200
"""Maximum number of changed lines shown from one file."""


def ask(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    named: frozenset[str] | None = None,
) -> bool:
    """Ask the person at the terminal whether to trust a project file and which files are only data.

    If the answer is yes, it is stored. If the file was trusted before, only the changes since then
    are shown.

    Args:
        standing: the current trust in the file.
        parsed: the configuration that the file contains.
        user: the user's configuration.
        named: the paths of the files that the person has named as data, or None for those that the
            person confirmed earlier.
    """
    from ideabridge.bridge.file_content import decode_file_content
    from ideabridge.bridge.masking import shown_configuration
    from ideabridge.bridge.trust import MAX_FILE_BYTES, keep_trusted

    confirmed = standing.data if named is None else named
    difference = _difference(standing, parsed, user)
    if difference is None:
        question = "Trust it? y(es), n(o), s(how the file): "
        _print(standing, parsed, user, confirmed, say, err().width)
    else:
        question = "Trust it with this change? y(es), n(o), a(ll it does), s(how the file): "
        _print_lines(_changed_head(standing), difference, say, err().width)

    while True:
        match _typed(question):
            case "y" | "yes":
                unconfirmed = _undecided(standing, confirmed)
                data = {path for path in unconfirmed if _is_only_data(standing, path)}
                keep_trusted(standing.found, confirmed | data)
                return True
            case "a" | "all":
                _print(standing, parsed, user, confirmed, say, err().width, _ALL_HEAD)
            case "s" | "show":
                file = standing.found.file
                document = decode_file_content(
                    standing.found.data,
                    what=file.name,
                    max_bytes=MAX_FILE_BYTES,
                    workspace=file.parent,
                )
                say(readable_json(shown_configuration(document.content), 2))
            case "" | "n" | "no":
                return False
            case _:
                say(
                    "y trusts exactly this content, n does not use it, s shows the file itself "
                    "without its secrets"
                )


def _unconfirmed(standing: ProjectTrust, confirmed: frozenset[str]) -> list[str]:
    """Return the paths of the files that can be data, except the confirmed ones."""
    return [path for path in standing.found.data_files if path not in confirmed]


def _undecided(standing: ProjectTrust, confirmed: frozenset[str]) -> list[str]:
    """Return the paths of the files that can be data and that the person has not decided about.
    Confirmed files and files whose current content is already trusted count as decided.
    """
    covered = standing.found.covered(confirmed)
    decided: dict[str, str] = {}
    if standing.before is not None:
        decided.update(standing.before.digests)
    return [
        path
        for path in _unconfirmed(standing, confirmed)
        if path not in covered or covered[path] != decided.get(path)
    ]


def _is_only_data(standing: ProjectTrust, path: str) -> bool:
    """Ask whether a file is only data. Unless the answer is yes, trust also covers the file's
    content.
    """
    places = ", ".join(standing.found.data_files[path].named_by)
    text = f"{path}: {places} names it. If it is data, it stays trusted when it changes."
    _put(text, say, err().width, first="data?".ljust(_INDENT), further=" " * _INDENT)
    return _typed("Is it only data, and never code? y(es), n(o): ") in ("y", "yes")


def _typed(question: str) -> str:
    """Ask a question, and return the typed line in lower case, or "" at the end of input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    with interruptible():
        line = sys.stdin.readline()

    if not line:
        sys.stderr.write("\n")

    return line.strip().lower()


def show_standing(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    confirmed: frozenset[str],
    *,
    as_json: bool,
) -> None:
    """Print the effects of a project file, with the hash of what a person would trust if the files
    in `confirmed` are data.
    """
    from ideabridge.bridge.trust import trust_command

    if as_json:
        print_json(standing_json(standing, parsed, user, confirmed))
        return

    width = out().width if sys.stdout.isatty() else None
    head = ""
    difference = _difference(standing, parsed, user)
    if difference is not None:
        _print_lines(_changed_head(standing), difference, show_line, width)
        head = _ALL_HEAD

    _print(standing, parsed, user, confirmed, show_line, width, head)
    unconfirmed = _unconfirmed(standing, confirmed)
    if unconfirmed:
        words: list[str] = []
        for path in (*sorted(confirmed), *unconfirmed):
            words += ["--data", path]

        command = trust_command(standing.found.file, "--show", *words)
        show_line(f"          If each is only data of its server: {command}")

    show_line(f"hash      {standing.found.hash(confirmed)}")


def _print(
    standing: ProjectTrust,
    parsed: Configuration,
    user: Configuration,
    confirmed: frozenset[str],
    write: Callable[[str], None],
    width: int | None,
    head: str = "",
) -> None:
    """Print the effects of a project file, wrapped to `width` columns.

    If `width` is None, each effect takes one line. `head` replaces the first line.
    """
    files = list(standing.found.covered(confirmed))
    covered = joined(files, _SHOWN_FILES)
    lines = [
        *((topic, path) for path, topic in standing.changed),
        *_effects(standing, parsed, user),
        ("covers", f"{covered}. What these load is not covered."),
        *_data_lines(standing, confirmed, standing.found.data_files),
    ]
    _print_lines(head or _state(standing, confirmed), lines, write, width)


def _print_lines(
    head: str, lines: list[tuple[str, str]], write: Callable[[str], None], width: int | None
) -> None:
    """Print a sentence about a project file, followed by lines of topic and text."""
    _put(head, write, width, first="", further="")
    for topic, text in lines:
        _put(text, write, width, first=topic.ljust(_INDENT), further=" " * _INDENT)


def _difference(
    standing: ProjectTrust, parsed: Configuration, user: Configuration
) -> list[tuple[str, str]] | None:
    """Return lines, as (topic, text), about what has changed since a file was trusted. Return None
    if nobody has trusted the file, or if the trusted content is not stored.
    """
    pair = None if standing.is_trusted else standing.snapshots()
    if pair is None:
        return None

    before, now = pair
    lines = _changed_servers(before, now, parsed, user)
    for key in dict.fromkeys([*before.settings, *now.settings]):
        lines += _changed_setting(key, before.settings.get(key), now.settings.get(key))

    for path, topic in standing.changed:
        if path != standing.found.file.name:
            lines.append((topic, path))
            lines += _line_changes(before.texts.get(path), now.texts.get(path))

    if not lines:
        lines.append(("changed", "only the order or spacing of the file, or ignored parts of it"))

    data = standing.data
    return [
        *lines,
        *(line for line in _effects(standing, parsed, user) if _concerns_person(line)),
        *_data_lines(standing, data, _undecided(standing, data)),
    ]


def _concerns_person(line: tuple[str, str]) -> bool:
    """Return whether the dialogue must show an effect even if it has not changed."""
    topic, text = line
    if topic == "variable":
        return "not allowed" in text
    if topic == "secret":
        return not text.endswith(_STORED)
    return topic in ("narrowed", "refused", "warning")


def _changed_servers(
    before: Snapshot, now: Snapshot, parsed: Configuration, user: Configuration
) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, entry in now.servers.items():
        earlier = before.servers.get(name)
        if earlier is None:
            lines.append(("added", f"server {name}"))
            lines += [("", shown_line(line)) for line in entry]
            if name in user.modules and name in parsed.modules:
                lines.append(("replace", f"your own server {name}"))
        elif earlier != entry:
            lines.append(("changed", f"server {name}"))
            lines += _line_changes(earlier, entry)

    for name, entry in before.servers.items():
        if name not in now.servers:
            lines.append(("removed", f"server {name}"))
            lines += [("", f"- {shown_line(line)}") for line in entry]

    return lines


def _changed_setting(key: str, before: str | None, now: str | None) -> list[tuple[str, str]]:
    if before == now:
        return []
    if now is None:
        return [("removed", key)]
    lines = [("changed" if before is not None else "added", key)]
    if before is not None:
        lines.append(("", f"- {shown_line(before)}"))
    return [*lines, ("", f"+ {shown_line(now)}")]


def _line_changes(before: list[str] | None, now: list[str] | None) -> list[tuple[str, str]]:
    """Return the removed lines, marked `-`, and the added lines, marked `+`."""
    if before is None or now is None:
        return []
    if max(len(before), len(now)) > _MOST_COMPARED_LINES:
        return [
            ("", f"{counted(len(before), 'line')} before, {len(now)} now: too many to compare here")
        ]

    import difflib

    changes = list(difflib.unified_diff(before, now, lineterm="", n=1))[2:]
    lines = [
        ("", f"{change[0]} {shown_line(change[1:])}".rstrip())
        for change in changes
        if change[0] != "@"
    ]
    if any(_hides(change) for change in changes if change[0] in "+-"):
        lines.append(("", "(••• hides a secret. Lines that look the same differ in the secret.)"))
    if len(lines) > _MOST_CHANGED_LINES:
        more = len(lines) - _MOST_CHANGED_LINES
        lines = [
            *lines[:_MOST_CHANGED_LINES],
            ("", f"... and {counted(more, 'more line')}; see the file"),
        ]

    return lines


def _hides(line: str) -> bool:
    return shown_line(line) != line


def _changed_head(standing: ProjectTrust) -> str:
    return f"{standing.found.file} has changed since it was trusted:"


def _state(standing: ProjectTrust, confirmed: frozenset[str]) -> str:
    """Return a first line that says whether a project file is trusted."""
    file = standing.found.file
    if standing.is_trusted and confirmed != standing.data:
        return f"{file} is trusted, but not with these data files. It would do this:"
    if standing.is_trusted and standing.before is not None:
        trusted_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(standing.before.at))
        return f"{file} has been trusted since {trusted_at}. It does this:"
    if standing.changed:
        return f"{file} has changed since it was trusted. It would do this:"
    return f"{file} is not trusted. It would do this:"


def _put(
    text: str, write: Callable[[str], None], width: int | None, *, first: str, further: str
) -> None:
    """Print text that can contain words from the file. Continuation lines are indented, so that
    they cannot be mistaken for lines from ideabridge.
    """
    plain = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    if width is None:
        write(first + plain)
        return

    for line in wrapped(plain, width, first=first, further=further):
        write(line)


def _data_lines(
    standing: ProjectTrust, confirmed: frozenset[str], paths: Iterable[str]
) -> list[tuple[str, str]]:
    """Return a line for each file that can be data: `data` or `data?`, and the file with the
    locations that name it.
    """
    lines: list[tuple[str, str]] = []
    for path in paths:
        data_file = standing.found.data_files[path]
        absent = "" if data_file.path.exists() else " (does not exist yet)"
        text = f"{path}{absent}: {', '.join(data_file.named_by)} names it."
        if path in confirmed:
            lines.append(("data", f"{text} Trust does not cover its content."))
        else:
            lines.append(("data?", f"{text} Trust ends when it changes."))

    return lines


def _effects(
    standing: ProjectTrust, parsed: Configuration, user: Configuration
) -> list[tuple[str, str]]:
    """Return each effect of a project file in full, as (verb, object)."""
    from ideabridge.bridge.configuration import ConfigurationError, lay_over
    from ideabridge.bridge.masking import shown_json
    from ideabridge.bridge.trust import trust_command

    lines: list[tuple[str, str]] = []
    for name, module in parsed.modules.items():
        if name in parsed.unusable:
            lines += [("unusable", line) for line in parsed.unusable[name]]
        else:
            lines += _module_lines(name, module)
        if name in user.modules:
            lines.append(("replace", f"your own server {name}"))

    lines += [("load", f"{path} as Python, in the process of ideabridge") for path in parsed.tools]
    (layer,) = parsed.layers
    raw = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key in layer.keys:
        if key not in ("$schema", "mcpServers", "tools"):
            value = shown_json(parsed.store if key == "store" else raw.get(key))
            text = value if isinstance(value, str) else readable_json(value)
            lines.append(("set", f"{key}: {text}"))

    lines += [("note", line) for line in parsed.notes]
    if parsed.store is not None and Path(parsed.store).exists():
        text = f"{parsed.store} already exists: its runs and published ideas are used as they are"
        lines.append(("warning", text))

    for name, places in variables_named(parsed).items():
        if name in standing.variables:
            state = "allowed"
        else:
            command = trust_command(standing.found.file, "--env", name)
            state = f"not allowed; to allow it: {command}"
        lines.append(("variable", f"{name} (in {', '.join(places)}): {state}"))

    lines += _secret_lines(standing, parsed)
    try:
        top = lay_over(user, parsed, standing).layers[-1]
    except ConfigurationError as error:
        return [*lines, ("refused", str(error))]

    return [
        *lines,
        *(("narrowed", line) for line in top.narrowed),
        *(("refused", line) for line in top.refused),
    ]


def _secret_lines(standing: ProjectTrust, parsed: Configuration) -> list[tuple[str, str]]:
    """Return a line for each secret that a server names: `secret`, and what is stored for the
    server.
    """
    from ideabridge.bridge.modules.settings import entry_digest, secrets_named
    from ideabridge.bridge.stored_secrets import StoredSecretError, find_secret, secret_owner

    owner = secret_owner(standing.found.file)
    lines: list[tuple[str, str]] = []
    for server, entry in parsed.modules.items():
        for name, places in secrets_named(entry).items():
            try:
                secret = find_secret(owner, name)
            except StoredSecretError as error:
                lines.append(("secret", f"{name}: {error}"))
                continue

            if secret is None:
                state = f"not stored; to store it for this file: {owner.set_command(name)}"
            elif secret.servers.get(server) == entry_digest(entry):
                state = _STORED
            else:
                state = (
                    "stored, but not for this server as it is now; to allow it: "
                    f"{owner.allow_command(name)}"
                )

            where = ", ".join(f"mcpServers.{server}.{place}" for place in places)
            lines.append(("secret", f"{name} (in {where}): {state}"))

    return lines


def _module_lines(name: str, module: ModuleConfiguration) -> list[tuple[str, str]]:
    from ideabridge.bridge.masking import shown_definition

    entry = cast(
        "dict[str, Any]", shown_definition(module.model_dump(mode="json", exclude_defaults=True))
    )
    state = " (disabled)" if module.disabled else ""
    if module.command is not None:
        command = shlex.join([entry["command"], *entry.get("args", ())])
        if module.cwd is not None:
            command += f", in {entry['cwd']}"
        lines = [("start", f"{name}{state}: {command}")]
    else:
        lines = [("call", f"{name}{state}: {entry['url']}")]

    details = [f"with the variable {key}={value}" for key, value in entry.get("env", {}).items()]
    details += [
        f"with the header {key}: {value}" for key, value in entry.get("headers", {}).items()
    ]
    details += [f"with auth.{key}: {value}" for key, value in entry.get("auth", {}).items()]
    if module.views:
        details.append(
            "with its views: clients run the scripts of its pages, which can call its tools"
        )

    return lines + [("", detail) for detail in details]


def variables_named(parsed: Configuration) -> dict[str, list[str]]:
    """Return the environment variables in a project file that might contain a secret, each with the
    locations where it is used.
    """
    from ideabridge.bridge.modules.settings import filled_texts
    from ideabridge.bridge.trust import HARMLESS

    places: dict[str, list[str]] = {}
    for module, entry in parsed.modules.items():
        for place, text in filled_texts(entry).items():
            for match in _NAMED.finditer(text):
                if not match.group().startswith("$$") and match.group(1) not in HARMLESS:
                    places.setdefault(match.group(1), []).append(f"mcpServers.{module}.{place}")

    model = parsed.model
    if model is not None and not isinstance(model, str) and model.key_env is not None:
        places.setdefault(model.key_env, []).append("model.key_env")

    return places


def standing_json(
    standing: ProjectTrust, parsed: Configuration, user: Configuration, confirmed: frozenset[str]
) -> JSONObject:
    """Return the effects of a project file as JSON, with the hash of what a person would trust if
    the files in `confirmed` are data.
    """
    project_file = standing.found
    state = "untrusted"
    if standing.is_trusted and confirmed == standing.data:
        state = "trusted"
    elif standing.changed:
        state = "changed"

    effects: list[JSON] = [
        {"what": topic, "text": text} for topic, text in _effects(standing, parsed, user)
    ]
    changed: list[JSON] = [{"file": path, "what": topic} for path, topic in standing.changed]
    data_files: list[JSON] = [
        {"file": path, "named_by": list[JSON](data_file.named_by), "confirmed": path in confirmed}
        for path, data_file in project_file.data_files.items()
    ]
    difference: list[JSON] = [
        {"what": topic, "text": text} for topic, text in _difference(standing, parsed, user) or ()
    ]
    return {
        "file": str(project_file.file),
        "state": state,
        "hash": project_file.hash(confirmed),
        "files": dict(project_file.covered(confirmed)),
        "data_files": data_files,
        "changed": changed,
        "difference": difference,
        "variables": list[JSON](sorted(standing.variables.names)),
        "effects": effects,
    }
