"""Let the owner choose whether assistants may pass on people's answers. The page writes the choice
as `approval.by` to the configuration file that it changes.
"""

from __future__ import annotations

from pathlib import Path

from ideabridge.bridge.configuration import Configuration, parse_configuration, user_file
from ideabridge.server.hosts.editing.host_text import read_host_text
from ideabridge.server.ui.access import Visitor
from ideabridge.server.ui.server_forms import file_to_change
from ideabridge.tools.encoding import JSONObject, object_or_empty
from ideabridge.tools.errors import ArgumentError

_KEY = "approval"
_BY = "by"
_PERSON = "person"


def may_choose_deciders(configuration: Configuration, visitor: Visitor) -> bool:
    """Return whether a visitor can choose on the page who decides.

    Rules from several files apply together, so the page adds no rules of its own if a file that it
    cannot change already has some. If no call needs approval, there is nothing to decide.
    """
    file = file_to_change(configuration)
    if file is None or not visitor.is_owner or configuration.approval == "allow_all":
        return False
    return all(layer.file == file or _KEY not in layer.keys for layer in configuration.layers)


def write_deciders(path: Path, *, only_people: bool) -> None:
    """Write to a configuration file who decides, and leave all other bytes unchanged. This function
    blocks.

    Raises:
        ArgumentError: the file allows every call without asking.
        ConfigurationError: the rules in the file cannot be used.
        HostFileError: the file cannot be written.
    """
    text = read_host_text(path, "json")
    written = text.content.get(_KEY)
    if written == "allow_all":
        raise ArgumentError(
            f"{path} allows every call without asking (allow_all), so there is nothing to decide"
        )

    rules: JSONObject = {**object_or_empty(written)}
    if not only_people:
        rules.pop(_BY, None)
        text = text.without_entry((_KEY,), _BY, parents=1)
    elif isinstance(written, str):
        rules[_BY] = _PERSON
        text = text.with_entry((), _KEY, rules)
    else:
        rules[_BY] = _PERSON
        text = text.with_entry((_KEY,), _BY, _PERSON)

    parse_configuration({_KEY: rules}, project=path.parent)
    text.edit(private=path == user_file())
