"""A mind that answers from stored ideas, for tests, demos and replay.

The mind looks up a stored idea by the id of the Request, which is the hash of the Request's context
and schema. A recording therefore answers as long as the task, the tools and the results of all
calls are the same. Otherwise, the error shows the differences.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ideabridge.bridge.context.mind import MindError
from ideabridge.bridge.context.preview import shorten, shorten_literal
from ideabridge.bridge.context.references import Path as KeyPath
from ideabridge.bridge.context.references import format_reference, parse_reference
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import MOST_BYTES, TO_HOSTS, TO_MINDS, Shown
from ideabridge.bridge.minds.adapt import with_calls
from ideabridge.bridge.store.errors import IdeaDocumentError, StoreAccessError
from ideabridge.bridge.store.idea import StoredIdea
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import SEES_ALL
from ideabridge.tools.composed import CallSchema, SolutionSchema
from ideabridge.tools.encoding import (
    JSON,
    MAX_DEPTH,
    JSONObject,
    content_hash,
    decode,
    encode,
    object_or_empty,
)
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.typed import read_as

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
_COMPARABLE: Final = 20_000
"""How many of the newest ideas are searched when no idea has the id of the Request."""

_LOOKED_AT: Final = 500
_PAGE: Final = 100
_MOST_LINES: Final = 60
_MOST_WIDTH: Final = 200
_COMPARED: Final = 5000
_SQLITE: Final = b"SQLite format 3\x00"


class RecordingMissError(MindError):
    """Raised when no stored idea answers a Request. The message shows the nearest idea and the
    differences.
    """


class Recorded:
    """Answers Requests with the ideas in a store. If several ideas answer a Request, the newest is
    used.

    Args:
        store: an open store, which is not closed.
        title: the title of the recording for people.
    """

    name = "recorded"

    def __init__(self, store: Store, title: str = "a recording") -> None:
        self.title = title
        self._store = store
        self._by_offer: dict[str, str] | None = None
        """The id of the newest idea for each `_offer_key`, among the ideas that existed when this
        index was first used.
        """

    @property
    def shown_limits(self) -> Mapping[str, int]:
        """The limits on the results shown to the recorded mind.

        That mind had to read the rest with the reading tool.
        """
        newest = next(self._ideas(1), None)
        if newest is None:
            return {}
        if newest.idea.shown is None:
            # The recording was made before minds could read values, so show everything. Otherwise,
            # the Requests would offer the reading tool.
            return {"value": MOST_BYTES, "request": MOST_BYTES}

        limits = Shown.from_json(newest.idea.shown)
        return {"value": limits.value, "request": limits.request}

    async def answer(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the stored Solution for a Request.

        Raises:
            RecordingMissError: no idea answers the Request. The run ends as failed.
        """
        for id_ in _ids(request):
            ideas = self._store.ideas.of_request(id_)
            if ideas:
                yield _written(ideas[0])
                return

        offered_otherwise = await self._offered_otherwise(request)
        if offered_otherwise is None:
            raise RecordingMissError(self._miss(request))
        yield _written(offered_otherwise)

    async def _offered_otherwise(self, request: Request) -> StoredIdea | None:
        """Return the newest idea whose Request differs from `request` only in the wording of the
        offer, or None if there is none.
        """
        if self._by_offer is None:
            # Build the index only once, because ideas that are saved later have ids in the current
            # form.
            self._by_offer = await compute_in_thread(self._index_by_offer)

        for context in (request.context_json, earlier_form(request.context_json)):
            idea = self._by_offer.get(_offer_key(context, request.schema))
            if idea is not None:
                return self._store.ideas.get(idea, caller=SEES_ALL)

        return None

    def _index_by_offer(self) -> dict[str, str]:
        index: dict[str, str] = {}
        for stored in self._ideas(_COMPARABLE):
            index.setdefault(_offer_key(stored.idea.context, stored.idea.schema), stored.id)
        return index

    def _miss(self, request: Request) -> str:
        nearest = max(
            self._ideas(_LOOKED_AT), key=lambda idea: _nearness(idea, request), default=None
        )
        head = f"no recorded solution answers request {request.id[:12]}"
        if nearest is None:
            return f"{head}: the recording contains no ideas"

        meta = nearest.meta
        step = f" (step {meta.step} of {meta.run})" if meta.run else ""
        lines = [f"{head}; the nearest is idea {nearest.id[:12]}{step}, which differs:"]
        for part, stored, requested in (
            ("context", nearest.idea.context, request.context_json),
            ("schema", nearest.idea.schema, request.schema),
        ):
            lines += _difference(part, stored, requested)

        return "\n".join(lines)

    def _ideas(self, most: int) -> Iterator[StoredIdea]:
        """Yield the newest ideas, up to `most` of them."""
        after: str | None = None
        while most > 0:
            page = self._store.ideas.page(min(most, _PAGE), after)
            for record in page.items:
                yield self._store.ideas.get(record.id, caller=SEES_ALL)
            most -= _PAGE
            if (after := page.next) is None:
                return


def _written(stored: StoredIdea) -> bytes:
    """Return the Solution as the mind wrote it, including malformed parts, so that they have the
    same consequences as before.
    """
    return encode(stored.idea.solution if stored.meta.written is None else stored.meta.written)


def _ids(request: Request) -> Iterator[str]:
    """Yield the ids that a recorded Request might have: its own id, and those from before ideas
    stored `shown`.
    """
    yield request.id
    yield content_hash({"context": request.context_json, "schema": request.schema})
    yield content_hash({"context": earlier_form(request.context_json), "schema": request.schema})
    # Some parts of a recording might have been made with the limits for a different kind of mind.
    for limits in (TO_MINDS, TO_HOSTS):
        yield dataclasses.replace(request, shown=limits.to_json()).id


def _offer_key(context: Sequence[JSON], schema: JSON) -> str:
    """Return a key that does not depend on the wording of the offer in a Request."""
    return content_hash({"context": [*context], "schema": _offer_of(schema)})


def _offer_of(schema: JSON) -> JSONObject:
    """Return the content of a Solution's schema without the parts whose wording differs between
    versions of ideabridge.

    These parts are the schema of programs, and the statement that a result written by a mind is
    text unless the definition of the tool describes it.
    """
    plain = with_calls(object_or_empty(schema))
    solution = SolutionSchema.read(plain)
    members = {
        name: part for name, part in solution.properties.items() if name not in ("calls", "program")
    }
    return {**plain, "properties": members, "calls": [*map(_any_result, solution.calls)]}


def _any_result(call: CallSchema) -> JSONObject:
    """Return the schema of a call without the statement that a result written by a mind is text."""
    output = object_or_empty(call.members.get("_output"))
    if output.get("type") != "string":
        return call.schema

    untyped: JSONObject = {name: value for name, value in output.items() if name != "type"}
    return {**call.schema, "properties": {**call.members, "_output": untyped}}


_EARLIER_STATE: Final = 2048
_EARLIER_RESULT: Final = 400
_EARLIER_CALLS: Final = 50


def earlier_form(context: Sequence[JSON]) -> list[JSON]:
    """Return the context of a later step in the form in which ideas were stored before they
    contained values.

    In that form, large parts of states are references, only the last calls appear, each with a
    preview of its result, and corrections are shortened.
    """
    calls = [
        message
        for message in context
        if isinstance(message, dict) and message.get("type") == "call"
    ]
    unlisted = {id(message) for message in calls[: len(calls) - _EARLIER_CALLS]}
    messages: list[JSON] = []
    for raw in context:
        if id(raw) in unlisted or not isinstance(raw, dict):
            if not isinstance(raw, dict):
                messages.append(raw)
            continue
        match raw.get("type"):
            case "state":
                messages.append(
                    {**raw, "state": shorten(raw["state"], ("state",), small=_EARLIER_STATE)}
                )
            case "correction" if (
                isinstance(raw["correction"], dict) and "left_out" in raw["correction"]
            ):
                # The recorded mind was not shown this correction, so leave it out.
                continue
            case "correction":
                messages.append({**raw, "correction": shorten_literal(raw["correction"])})
            case "call":
                call = raw.get("call")
                messages.append(
                    {**raw, "call": _earlier_call(call)} if isinstance(call, dict) else raw
                )
            case _:
                messages.append(raw)

    return messages


@dataclass(frozen=True, slots=True)
class _StoredCall:
    """The parts of a message about a call that locate the call's result."""

    value: str | None = None
    instance: str | None = None


def _earlier_call(call: JSONObject) -> JSONObject:
    earlier: JSONObject = {}
    stored = read_as(_StoredCall, call)
    for name, value in call.items():
        if name in ("also", "reads"):
            continue
        if name == "value" and stored.value is not None:
            earlier[name] = format_reference(_earlier_path(stored.value), stored.instance)
        elif name == "result":
            path = _earlier_path(str(call.get("value")))
            earlier["preview"] = shorten(
                value, path, instance=stored.instance, small=_EARLIER_RESULT
            )
        else:
            earlier[name] = value

    return earlier


def _earlier_path(text: str) -> KeyPath:
    """Return the path of a reference. In rooms, earlier versions used `results` for the results of
    the parent run.
    """
    path = next(parse_reference(text).operands()).full
    return path[1:] if path[:2] == ("data", "results") else path


def _nearness(stored: StoredIdea, request: Request) -> float:
    """Return a number from 0 to 3: the share of equal messages anywhere, plus the share of equal
    messages at the beginning, plus 1 if the schemas are equal.
    """
    asked_messages, stored_messages = (
        [encode(message) for message in context]
        for context in (request.context_json, stored.idea.context)
    )
    shared = (Counter(asked_messages) & Counter(stored_messages)).total()
    begun = next(
        (
            n
            for n, pair in enumerate(zip(asked_messages, stored_messages, strict=False))
            if pair[0] != pair[1]
        ),
        len(asked_messages),
    )
    most = max(len(asked_messages), len(stored_messages), 1)
    return shared / most + begun / most + (encode(stored.idea.schema) == encode(request.schema))


def _difference(part: str, stored: JSON, requested: JSON) -> list[str]:
    """Return the differences between two values as a unified diff, or [] if they are equal."""
    if encode(stored) == encode(requested):
        return []

    texts = [
        json.dumps(value, indent=2, ensure_ascii=False).split("\n") for value in (stored, requested)
    ]
    if max(map(len, texts)) > _COMPARED:
        return [
            (
                f"{part}: {len(texts[0]):,} lines in the recording and {len(texts[1]):,} in the "
                "Request are too many to compare"
            )
        ]

    diff = difflib.unified_diff(
        texts[0], texts[1], f"recorded {part}", f"asked {part}", n=2, lineterm=""
    )
    lines = [line if len(line) <= _MOST_WIDTH else f"{line[:_MOST_WIDTH]}..." for line in diff]
    if not lines:
        return [f"{part}: they differ only in the order of keys or the notation of numbers"]

    if len(lines) > _MOST_LINES:
        more = [f"... {len(lines) - _MOST_LINES} more lines"]
    else:
        more = []

    return [*lines[:_MOST_LINES], *more]


# -- files -----------------------------------------------------------------------------------------


@contextmanager
def recording(path: Path) -> Generator[Recorded]:
    """Open a recording. The file is a store, or the JSON of an exported idea or of a list of
    exported ideas (`recording_of`).

    Raises:
        StoreAccessError: the file does not exist or cannot be read.
        StoreError: the file is a store that cannot be opened.
        IdeaDocumentError, TamperedIdeaError, InvalidJSONError: the file is neither a store nor the
            JSON of ideas.
    """
    try:
        with path.open("rb") as file:
            is_store = file.read(len(_SQLITE)) == _SQLITE
        data = b"" if is_store else path.read_bytes()
    except OSError as error:
        raise StoreAccessError(f"{path} cannot be read: {error.strerror or error}") from None
    with Store.open(path if is_store else ":memory:") as store:
        if not is_store:
            raw = decode(data, what=path.name, max_bytes=MAX_FILE_BYTES, max_depth=MAX_DEPTH + 16)
            for place, document in enumerate(raw if isinstance(raw, list) else [raw]):
                try:
                    # Only the idea is read, and its ids are enough to verify it.
                    store.import_idea(document, checks="idea")
                except IdeaDocumentError as error:
                    raise IdeaDocumentError(f"{path.name}: {place}: {error}") from None
        yield Recorded(store, f"the recording {path.name}")


def recording_of(
    store: Store, run_id: str, export: Callable[[str], JSONObject]
) -> list[JSONObject]:
    """Return the ideas of a run and its rooms as exported documents, in order, for `recording`.

    `export` returns an idea's document, or raises an error if the idea contains a secret.
    """
    ids = [record.id for record in store.ideas.of_run(run_id)]
    after: str | None = None
    while True:
        records = store.runs.newest(SEES_ALL, limit=_PAGE, after=after)
        for record in records:
            if record.id.startswith(f"{run_id}."):
                ids += [idea.id for idea in store.ideas.of_run(record.id)]

        # Rooms are newer than the run that they belong to, so once the run itself has been found,
        # so have all of its rooms.
        if len(records) < _PAGE or any(record.id == run_id for record in records):
            break
        after = records[-1].id

    return [export(idea_id) for idea_id in dict.fromkeys(ids)]
