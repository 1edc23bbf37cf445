"""Project file: what the ideabridge.json of a project would do, and the question whether to trust it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ideabridge.server.cli.console import clean, err, out, print_json, say, show, wrapped
from ideabridge.tools.encoding import JSON, JSONObject

if TYPE_CHECKING:
    from ideabridge.bridge.configuration import Configuration
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.trust import Standing

_NAMED: Final = re.compile(r"\$?\$\{([A-Za-z_][A-Za-z0-9_]*)")
_INDENT: Final = 10
_SHOWN_FILES: Final = 20


def ask(standing: Standing, parsed: Configuration, user: Configuration) -> bool:
    """Ask the person at the terminal whether to trust a project file, and keep a yes."""
    from ideabridge.bridge.trust import keep_trusted

    _print(standing, parsed, user, say, err().width)
    while True:
        sys.stderr.write("Trust it? y(es), n(o), s(how the file): ")
        sys.stderr.flush()
        word = sys.stdin.readline()
        if not word:
            sys.stderr.write("\n")
        match word.strip().lower():
            case "y" | "yes":
                keep_trusted(standing.found)
                return True
            case "s" | "show":
                say(standing.found.data.decode("utf-8", "replace"))
            case "" | "n" | "no":
                return False
            case _:
                say("y trusts exactly this content, n does not use it, s shows the file itself")


def show_standing(standing: Standing, parsed: Configuration, user: Configuration, *, as_json: bool) -> None:
    """Print what a project file would do, and its hash."""
    if as_json:
        print_json(standing_json(standing, parsed, user))
        return
    _print(standing, parsed, user, show, out().width if sys.stdout.isatty() else None)
    show(f"hash      {standing.found.hash}")


def _print(
    standing: Standing, parsed: Configuration, user: Configuration, put: Callable[[str], None], width: int | None
) -> None:
    """What a project file would do, within the width of the terminal; elsewhere each thing is one line."""
    found = standing.found
    if standing.is_trusted and standing.before is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(standing.before.at))
        head = f"{found.file} is trusted since {when}. It does this:"
    elif standing.changed:
        head = f"{found.file} is not what was trusted. It would do this:"
    else:
        head = f"{found.file} is not trusted. It would do this:"
    files = list(found.digests)
    more = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
    told = [
        ("", head),
        *((what, path) for path, what in standing.changed),
        *_effects(standing, parsed, user),
        ("covers", f"{', '.join(files[:_SHOWN_FILES])}{more}. What these load is not covered."),
    ]
    for number, (what, text) in enumerate(told):
        plain = clean(text).replace("\n", "\\n").replace("\t", "\\t")
        first, further = ("", "") if number == 0 else (what.ljust(_INDENT), " " * _INDENT)
        lines = [first + plain]
        if width is not None:
            lines = wrapped(plain, width, first=first, further=further)
        for line in lines:
            put(line)


def _effects(standing: Standing, parsed: Configuration, user: Configuration) -> list[tuple[str, str]]:
    """(what happens, to what) of everything that a project file asks for, in full."""
    from ideabridge.bridge.configuration import ConfigurationError, lay_over
    from ideabridge.bridge.trust import trust_command

    lines: list[tuple[str, str]] = []
    for name, module in parsed.modules.items():
        lines += _module_lines(name, module)
        if name in user.modules:
            lines.append(("replace", f"your own module {name}"))
    lines += [("load", f"{path} as Python, in the process of ideabridge") for path in parsed.tools]
    (layer,) = parsed.layers
    raw = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key in layer.keys:
        if key not in ("$schema", "mcpServers", "tools"):
            value = parsed.store if key == "store" else raw.get(key)
            lines.append(
                ("set", f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
            )
    if parsed.store is not None and Path(parsed.store).exists():
        lines.append(("warning", f"{parsed.store} exists already: its runs and published ideas are used as they are"))
    for name, places in variables_named(parsed).items():
        command = trust_command(standing.found.file, "--env", name)
        how = "allowed" if name in standing.variables else f"not allowed; to allow it: {command}"
        lines.append(("variable", f"{name} (in {', '.join(places)}): {how}"))
    try:
        top = lay_over(user, parsed, standing).layers[-1]
    except ConfigurationError as error:
        return [*lines, ("refused", str(error))]
    return [*lines, *(("narrowed", line) for line in top.narrowed), *(("refused", line) for line in top.refused)]


def _module_lines(name: str, module: ModuleConfiguration) -> list[tuple[str, str]]:
    state = " (disabled)" if module.disabled else ""
    if module.command is not None:
        where = f", in {module.cwd}" if module.cwd is not None else ""
        lines = [("start", f"{name}{state}: {shlex.join([module.command, *module.args])}{where}")]
    else:
        lines = [("call", f"{name}{state}: {module.url}")]
    lines += [("", f"with the variable {key}={value}") for key, value in module.env.items()]
    return [*lines, *(("", f"with the header {key}: {value}") for key, value in module.headers.items())]


def variables_named(parsed: Configuration) -> dict[str, list[str]]:
    """The environment variables that a project file names and that may hold a secret, with the places."""
    from ideabridge.bridge.trust import HARMLESS

    found: dict[str, list[str]] = {}
    for module, entry in parsed.modules.items():
        texts = {"command": entry.command, "cwd": entry.cwd, "url": entry.url}
        texts |= {f"args.{number}": text for number, text in enumerate(entry.args)}
        texts |= {f"env.{key}": text for key, text in entry.env.items()}
        texts |= {f"headers.{key}": text for key, text in entry.headers.items()}
        for place, text in texts.items():
            for match in _NAMED.finditer(text or ""):
                if not match.group().startswith("$$") and match.group(1) not in HARMLESS:
                    found.setdefault(match.group(1), []).append(f"mcpServers.{module}.{place}")
    model = parsed.model
    if model is not None and not isinstance(model, str) and model.key_env is not None:
        found.setdefault(model.key_env, []).append("model.key_env")
    return found


def standing_json(standing: Standing, parsed: Configuration, user: Configuration) -> JSONObject:
    """What a project file would do, for machines."""
    found = standing.found
    state = "trusted" if standing.is_trusted else "changed" if standing.changed else "untrusted"
    effects: list[JSON] = [{"what": what, "text": text} for what, text in _effects(standing, parsed, user)]
    changed: list[JSON] = [{"file": path, "what": what} for path, what in standing.changed]
    return {
        "file": str(found.file),
        "state": state,
        "hash": found.hash,
        "files": dict(found.digests),
        "changed": changed,
        "variables": list[JSON](sorted(standing.variables.names)),
        "effects": effects,
    }
