"""The block that a person pastes into a host's file, in the format of that file."""

from __future__ import annotations

import json
import re
from typing import Final

from ideabridge.server.hosts.host import HostFile
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.names import readable_json

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN_YAML: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.-]*")
_YAML_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def paste_block(file: HostFile, name: str, entry: JSONObject) -> str:
    """Return an entry nested in the keys under which the file lists its servers, without a line
    break at the end.
    """
    match file.format:
        case "toml":
            return _toml([*file.keys, name], entry)
        case "yaml":
            return "\n".join(_yaml(_nested(file, name, entry), ""))
        case _:
            return readable_json(_nested(file, name, entry), 2)


def block_for_others(name: str, entry: JSONObject) -> str:
    """Return what to do with a host that is not in the table: the block that most hosts read, and
    where it belongs.
    """
    block = json.dumps({"mcpServers": {name: entry}}, ensure_ascii=False)
    return (
        "For any other client, add this to the file in which it lists its MCP servers; its "
        f"documentation names the file, and the key if it is not 'mcpServers':\n{block}"
    )


def _nested(file: HostFile, name: str, entry: JSONObject) -> JSONObject:
    part: JSON = [{"name": name, **entry}] if file.is_list else {name: entry}
    for key in reversed(file.keys):
        part = {key: part}

    assert isinstance(part, dict)
    return part


def _toml(keys: list[str], entry: JSONObject) -> str:
    """Return a table of TOML. A table inside it becomes a table of its own."""
    lines = [f"[{'.'.join(map(_toml_key, keys))}]"]
    tables: list[str] = []
    for key, value in entry.items():
        if isinstance(value, dict):
            tables.append(_toml([*keys, key], value))
        elif value is not None:
            lines.append(f"{_toml_key(key)} = {_toml_value(value)}")

    return "\n\n".join(["\n".join(lines), *tables])


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _toml_value(key)


def _toml_value(value: JSON) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_value(item) for item in value if item is not None)}]"
    if isinstance(value, dict):
        members = [
            f"{_toml_key(key)} = {_toml_value(item)}"
            for key, item in value.items()
            if item is not None
        ]
        return f"{{ {', '.join(members)} }}" if members else "{}"
    # The strings and numbers of JSON are also TOML, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _yaml(value: JSON, indent: str) -> list[str]:
    """Return the lines of a value in YAML's block style."""
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _yaml_item(f"{indent}{_yaml_text(key)}:", item, f"{indent}  ")
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list) and item:
                first, *others = _yaml(item, f"{indent}  ")
                lines += [f"{indent}- {first.strip()}", *others]
            else:
                lines.append(f"{indent}- {_yaml_text(item)}")

    return lines


def _yaml_item(start: str, value: JSON, indent: str) -> list[str]:
    if isinstance(value, dict | list) and value:
        return [start, *_yaml(value, indent)]
    return [f"{start} {_yaml_text(value)}"]


def _yaml_text(value: JSON) -> str:
    if isinstance(value, str) and _PLAIN_YAML.fullmatch(value) and value not in _YAML_WORDS:
        return value
    # JSON is also YAML.
    return json.dumps(value, ensure_ascii=False)
