"""The block that a person pastes into a host's file, in the format of that file."""

from __future__ import annotations

import json

from ideabridge.server.hosts.editing.host_text import text_of_bytes
from ideabridge.server.hosts.host import HostFile
from ideabridge.tools.encoding import JSONObject


def paste_block(file: HostFile, name: str, entry: JSONObject) -> str:
    """Return an entry nested in the keys under which the file lists its servers, without a line
    break at the end.
    """
    empty = text_of_bytes(file.path, file.format, None)
    return empty.with_entry(file.keys, name, entry, listed=file.is_list).text.rstrip("\n")


def block_for_others(name: str, entry: JSONObject) -> str:
    """Return what to do with a host that is not in the table: the block that most hosts read, and
    where it belongs.
    """
    block = json.dumps({"mcpServers": {name: entry}}, ensure_ascii=False)
    return (
        "For any other client, add this to the file in which it lists its MCP servers; its "
        f"documentation names the file, and the key if it is not 'mcpServers':\n{block}"
    )
