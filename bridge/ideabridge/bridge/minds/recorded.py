"""Recorded: a mind that answers from stored ideas, for tests, demos and replay.

Stored ideas are found by the id of the Request, the hash of its context and schema. So a recording answers as long as
the task, the tools and all results of calls are the same; otherwise its error shows the differences.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ideabridge.bridge.context.mind import MindError
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.store.errors import IdeaDocumentError, StoreAccessError
from ideabridge.bridge.store.idea import StoredIdea
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.encoding import JSON, MAX_DEPTH, JSONObject, decode, encode

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
_LOOKED_AT: Final = 500
_PAGE: Final = 100
_LINES: Final = 60
_WIDTH: Final = 200
_COMPARED: Final = 5000
_SQLITE: Final = b"SQLite format 3\x00"


class RecordingMissError(MindError):
    """No stored idea answers a Request. The message contains the nearest idea and the differences."""


class Recorded:
    """Answers Requests from the ideas of a store; if several answer one, from the newest.

    Args:
        store: an open store; it stays open.
        title: its title, for people.
    """

    name = "recorded"

    def __init__(self, store: Store, title: str = "a recording") -> None:
        self.title = title
        self._store = store

    async def answer(self, request: Request) -> AsyncIterator[bytes]:
        """The stored Solution of a Request.

        Raises:
            RecordingMissError: no idea answers it; the run ends as failed.
        """
        found = self._store.ideas.of_request(request.id)
        if not found:
            raise RecordingMissError(self._miss(request))
        yield encode(found[0].idea.solution)

    def _miss(self, request: Request) -> str:
        nearest = max(self._ideas(), key=lambda one: _nearness(one, request), default=None)
        head = f"nothing recorded answers request {request.id[:12]}"
        if nearest is None:
            return f"{head}: the recording holds no ideas"
        meta = nearest.meta
        made = f" (step {meta.step} of {meta.run})" if meta.run else ""
        lines = [f"{head}; the nearest is idea {nearest.id[:12]}{made}, which differs:"]
        for part, stored, wanted in (
            ("context", nearest.idea.context, request.context),
            ("schema", nearest.idea.schema, request.schema),
        ):
            lines += _difference(part, stored, wanted)
        return "\n".join(lines)

    def _ideas(self) -> Iterator[StoredIdea]:
        """The newest ideas, at most `_LOOKED_AT`."""
        after: str | None = None
        for _ in range(_LOOKED_AT // _PAGE):
            page = self._store.ideas.page(_PAGE, after)
            for record in page.items:
                yield self._store.ideas.get(record.id, caller=SEES_ALL)
            if (after := page.next) is None:
                return


def _nearness(stored: StoredIdea, request: Request) -> float:
    """From 0 to 3: the shares of equal messages, anywhere and at the beginning, and 1 for an equal schema."""
    ours, theirs = ([encode(message) for message in context] for context in (request.context, stored.idea.context))
    shared = (Counter(ours) & Counter(theirs)).total()
    begun = next((n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), len(ours))
    most = max(len(ours), len(theirs), 1)
    return shared / most + begun / most + (encode(stored.idea.schema) == encode(request.schema))


def _difference(part: str, stored: JSON, wanted: JSON) -> list[str]:
    """The differences of two values as a unified diff; [] if they are equal."""
    if encode(stored) == encode(wanted):
        return []
    texts = [json.dumps(value, indent=2, ensure_ascii=False).split("\n") for value in (stored, wanted)]
    if max(map(len, texts)) > _COMPARED:
        return [f"{part}: {len(texts[0]):,} lines were recorded, {len(texts[1]):,} are asked; too many to compare"]
    diff = difflib.unified_diff(texts[0], texts[1], f"recorded {part}", f"asked {part}", n=2, lineterm="")
    lines = [line if len(line) <= _WIDTH else f"{line[:_WIDTH]}..." for line in diff]
    if not lines:
        return [f"{part}: the same but for the order of keys or the form of numbers"]
    more = [f"... {len(lines) - _LINES} more lines"] if len(lines) > _LINES else []
    return [*lines[:_LINES], *more]


# -- files -------------------------------------------------------------------------------------------------------


@contextmanager
def recording(path: Path) -> Generator[Recorded]:
    """The recording in a file: a store, or JSON of an exported idea or a list of them (`recording_of`).

    Raises:
        StoreAccessError: the file does not exist or cannot be read.
        StoreError: it is a store that cannot be opened.
        IdeaDocumentError, TamperedIdeaError, InvalidJSONError: it is neither.
    """
    try:
        with path.open("rb") as file:
            is_store = file.read(len(_SQLITE)) == _SQLITE
        data = b"" if is_store else path.read_bytes()
    except OSError as error:
        raise StoreAccessError(f"{path}: cannot be read: {error.strerror or error}") from None
    with Store.open(path if is_store else ":memory:") as store:
        if not is_store:
            raw = decode(data, what=path.name, max_bytes=MAX_FILE_BYTES, max_depth=MAX_DEPTH + 16)
            for place, document in enumerate(raw if isinstance(raw, list) else [raw]):
                try:
                    # Only the idea is read; its ids verify it.
                    store.import_idea(document, checks="idea")
                except IdeaDocumentError as error:
                    raise IdeaDocumentError(f"{path.name}: {place}: {error}") from None
        yield Recorded(store, f"the recording {path.name}")


def recording_of(store: Store, run_id: str, export: Callable[[str], JSONObject]) -> list[JSONObject]:
    """The ideas of a run and of its rooms as exported documents, in order, for `recording`. `export` returns the
    document of an idea, or refuses one with secrets.
    """
    ids = [record.id for record in store.ideas.of_run(run_id)]
    after: str | None = None
    while True:
        records = store.runs.newest(SEES_ALL, limit=_PAGE, after=after)
        for record in records:
            if record.id.startswith(f"{run_id}."):
                ids += [one.id for one in store.ideas.of_run(record.id)]
        # Rooms are younger than the run they belong to.
        if len(records) < _PAGE or any(record.id == run_id for record in records):
            break
        after = records[-1].id
    return [export(one) for one in dict.fromkeys(ids)]
