"""Project files that a test has written itself and trusts, as a person would with
`ideabridge trust`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ideabridge.bridge.configuration import user_file
from ideabridge.bridge.trust import FILE_NAME, trust_file


def write_trusted(folder: Path, content: str | dict[str, Any]) -> Path:
    """Write `ideabridge.json` into a folder and trust it, with the files it names as they are
    now.
    """
    path = folder / FILE_NAME
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    trust_file(path)
    return path


def write_own(content: dict[str, Any]) -> Path:
    """Write the user's own configuration; the test has a home folder of nobody's."""
    path = user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
