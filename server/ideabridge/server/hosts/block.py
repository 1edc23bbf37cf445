"""Format the text that users paste into a host's file when they edit it by hand."""

from __future__ import annotations

import json

from ideabridge.server.hosts.editing.host_text import HostText, read_host_text, text_of_bytes
from ideabridge.server.hosts.host import SERVER_NAME, HostFile
from ideabridge.tools.encoding import JSONObject


def paste_block(file: HostFile, name: str, entry: JSONObject) -> str:
    """Return the entry nested in the keys that the file uses for servers, without a trailing line
    break.
    """
    empty = text_of_bytes(file.path, file.format, None)
    return empty.with_entry(file.keys, name, entry, listed=file.is_list).text.rstrip("\n")


def texts_with_entry(file: HostFile, entry: JSONObject) -> tuple[HostText, HostText]:
    """Return the text of a host's file before and after adding ideabridge's entry.

    Raises:
        HostFileError: the file cannot be read, or cannot be edited without changing other parts of
            it.
    """
    before = read_host_text(file.path, file.format)
    after = before
    if not before.exists:
        for key, value in file.new_content.items():
            after = after.with_entry((), key, value)

    return before, after.with_entry(file.keys, SERVER_NAME, entry, listed=file.is_list)


def block_for_others(name: str, entry: JSONObject) -> str:
    """Return instructions for a host that is not in the table: the block that most hosts accept,
    and where to put it.
    """
    block = json.dumps({"mcpServers": {name: entry}}, ensure_ascii=False)
    return (
        "For any other client, add this to the file in which it lists its MCP servers; its "
        f"documentation names the file, and the key if it is not 'mcpServers':\n{block}"
    )
