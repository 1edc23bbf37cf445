"""Portable ideas: one idea as a JSON document that anybody can check."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.bridge.ideas.claims import imported_description, unchecked
from ideabridge.bridge.ideas.errors import IdeaDocumentError, TamperedIdeaError
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
from ideabridge.bridge.ideas.needs import Need, needs_of
from ideabridge.bridge.ideas.records import ANSWERS, Publication, StoredIdea
from ideabridge.tools.encoding import JSON, MAX_DEPTH, JSONObject, content_hash, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import check_schema

FORMAT: Final = 2
"""The value of the member `ideabridge` of a document."""

Checks: TypeAlias = Literal["whole", "idea", "nothing"]
"""What of a document must be unchanged. whole: everything, by its digest. idea: context, schema and solution, by their
ids. nothing: it was edited; its ids are computed anew.
"""

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""How large a document may be, as canonical JSON."""

_IDEA: Final = ("ideabridge", "id", "request", "context", "schema", "solution")
_OPTIONAL: Final = ("meta", "publication", "needs", "digest")
MEMBERS: Final = (*_IDEA, "meta", "publication", "needs")
"""The members a digest is over, in their order there."""
_KINDS: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    "text": (str, "text"),
    "whole": (int, "a whole number below 2^31"),
    "object": (dict, "an object"),
    "words": (list, "a list of texts"),
}
META_KINDS: Final[dict[str, str]] = {
    **{field.name: "text" for field in dataclasses.fields(IdeaMeta)},
    "step": "whole",
    "usage": "object",
    "tools": "words",
    "tags": "words",
}
PUBLICATION_KINDS: Final[dict[str, str]] = {
    "name": "text",
    "version": "whole",
    "description": "text",
    "answer": "text",
    "input_schema": "object",
    "output_schema": "object",
    "annotations": "object",
    "plan": "object",
    "recorded": "any",
}


def export(stored: StoredIdea, publication: Publication | None) -> JSONObject:
    """The document of a stored idea."""
    document: JSONObject = {
        "ideabridge": FORMAT,
        "id": stored.id,
        "request": stored.request_id,
        "context": stored.idea.context,
        "schema": stored.idea.schema,
        "solution": stored.idea.solution,
        "meta": stored.meta.to_json(),
    }
    if publication is not None:
        told: JSONObject = {}
        for name in PUBLICATION_KINDS:
            value: Any = getattr(publication, name, None)
            if value is not None:
                told[name] = value
        document["publication"] = told
    needs = needs_of(stored.idea.schema, stored.idea.solution, publication.plan if publication is not None else None)
    if needs:
        # For who reads it: an import looks at the calls themselves.
        document["needs"] = [need.to_json() for need in needs]
    return sealed(document)


def sealed(document: JSONObject) -> JSONObject:
    """The document with the digest of its content."""
    content: JSONObject = {name: document[name] for name in MEMBERS if name in document}
    return {**content, "digest": content_hash(content)}


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A checked document. `publication` has the members `export` writes, each of its type."""

    idea: Idea
    meta: IdeaMeta
    publication: JSONObject | None

    def publication_members(self) -> dict[str, Any]:
        """The arguments of `Store.publish`, and `name`. How far the document says its plan was checked stays as its
        claim, and the description ends with a sentence that says that it was imported.

        Raises:
            IdeaDocumentError: the document holds no publication.
        """
        if self.publication is None:
            raise IdeaDocumentError("publication: the document holds none, so there is nothing to publish")
        told: dict[str, Any] = dict.fromkeys(("input_schema", "output_schema", "plan", "recorded"))
        told |= {"description": "", "annotations": {}, **self.publication}
        told.pop("version", None)
        told["description"] = imported_description(told["description"], told["answer"], told["plan"])
        told["plan"] = unchecked(told["plan"])
        return told

    @property
    def needs(self) -> list[Need]:
        """The tools its calls name, and the servers they belong to."""
        plan = (self.publication or {}).get("plan")
        return needs_of(self.idea.schema, self.idea.solution, plan if isinstance(plan, dict) else None)


def read_document(raw: JSON, checks: Checks = "whole") -> Document:
    """Check a document's shape, ids and digest.

    Raises:
        IdeaDocumentError: the shape is wrong; the message has the place.
        InvalidJSONError, LimitExceededError: it is not JSON, or too deep.
        TamperedIdeaError: the content does not have the ids or the digest it names, or it has no digest.
    """
    document = normalise(raw, what="the idea", max_depth=MAX_DEPTH + 8)
    if not isinstance(document, dict):
        raise IdeaDocumentError(f"an exported idea is an object, found {_found(document)}")
    size = len(encode(document))
    if size > MAX_DOCUMENT_BYTES:
        raise IdeaDocumentError(f"the idea has {size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are taken")
    needed = [key for key in _IDEA if key not in ("id", "request") or checks != "nothing"]
    missing = [key for key in needed if key not in document]
    if missing:
        raise IdeaDocumentError(f"an exported idea has {', '.join(needed)}; missing: {', '.join(missing)}")
    unknown = [key for key in document if key not in _IDEA + _OPTIONAL]
    if unknown:
        raise IdeaDocumentError(f"unknown members of an exported idea: {', '.join(unknown)[:200]}")
    if document["ideabridge"] != FORMAT or isinstance(document["ideabridge"], bool):
        raise IdeaDocumentError(
            f"ideabridge: expected format {FORMAT}, found {_found(document['ideabridge'])}; "
            "another version of ideabridge may have written it"
        )
    context = document["context"]
    if not isinstance(context, list):
        raise IdeaDocumentError(f"context: expected a list of messages, found {_found(context)}")
    idea = Idea(context, document["schema"], document["solution"])
    if checks != "nothing":
        _check_hash("request", document["request"], idea.request_id)
        _check_hash("id", document["id"], idea.id)
    meta = dict(_members(document.get("meta", {}), META_KINDS, "meta"))
    if meta.get("time"):
        meta["time"] = _moment(str(meta["time"]))
    found = Document(idea, IdeaMeta.from_json(meta), _publication(document.get("publication")))
    if checks == "whole":
        if "digest" not in document:
            raise TamperedIdeaError(
                "digest: missing, so nobody can tell whether the document is as it was exported. Export it again, or"
                " look at it and take it as edited (`ideas import --edited`)"
            )
        _check_hash("digest", document["digest"], str(sealed(document)["digest"]))
    return found


def _check_hash(member: str, named: JSON, real: str) -> None:
    if not isinstance(named, str):
        raise IdeaDocumentError(f"{member}: expected 64 hex digits, found {_found(named)}")
    if named != real:
        raise TamperedIdeaError(
            f"{member}: the document says {named[:64]!r}, but its content has {real}: it was changed after export"
        )


def _publication(raw: JSON) -> JSONObject | None:
    if raw is None:
        return None
    publication = _members(raw, PUBLICATION_KINDS, "publication")
    for key in ("name", "answer"):
        if key not in publication:
            raise IdeaDocumentError(f"publication.{key}: missing")
    if publication["answer"] not in ANSWERS:
        raise IdeaDocumentError(f"publication.answer: expected one of {', '.join(ANSWERS)}")
    for key in ("input_schema", "output_schema"):
        schema = publication.get(key)
        if isinstance(schema, dict):
            try:
                check_schema(schema, what=f"publication.{key}")
            except IdeabridgeError as error:
                raise IdeaDocumentError(str(error)) from None
    return publication


def _moment(text: str) -> str:
    """A time as the store writes it: lists are ordered by it."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise IdeaDocumentError(f"meta.time: expected a time as 2026-11-21T10:00:00Z, found {_found(text)}") from None
    return moment.isoformat(timespec="milliseconds")


def _members(raw: JSON, kinds: dict[str, str], where: str) -> JSONObject:
    if not isinstance(raw, dict):
        raise IdeaDocumentError(f"{where}: expected an object, found {_found(raw)}")
    for key, value in raw.items():
        kind = kinds.get(key)
        if kind is None:
            raise IdeaDocumentError(f"{where}.{key[:64]}: unknown; known are {', '.join(kinds)}")
        if kind == "any":
            continue
        expected, words = _KINDS[kind]
        fits = isinstance(value, expected) and not isinstance(value, bool)
        if kind == "words":
            fits = fits and all(isinstance(item, str) for item in cast("list[JSON]", value))
        if kind == "whole":
            fits = fits and 0 <= cast("int", value) < 2**31
        if not fits:
            raise IdeaDocumentError(f"{where}.{key}: expected {words}, found {_found(value)}")
    return raw


def _found(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {value}"[:60]
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, list) else "an object"
