"""Export an idea as a JSON document that anybody can verify."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.bridge.context.messages import Handlers
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import TO_MINDS, Shown
from ideabridge.bridge.store.claims import imported_description, unchecked
from ideabridge.bridge.store.database import read_time
from ideabridge.bridge.store.errors import IdeaDocumentError, TamperedIdeaError
from ideabridge.bridge.store.idea import ANSWERS, Idea, IdeaMeta, Publication, StoredIdea
from ideabridge.bridge.store.publications import check_name
from ideabridge.bridge.store.shapes import Need, needs_of
from ideabridge.tools.encoding import (
    JSON,
    MAX_DEPTH,
    JSONObject,
    content_hash,
    encode,
    normalise,
    object_or_empty,
)
from ideabridge.tools.errors import IdeabridgeError, ValueMismatchError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import MAX_NAME
from ideabridge.tools.schema import Validator, check_schema

# -- Requests --------------------------------------------------------------------------------------


def request_of(idea: Idea, handlers: Handlers | None = None) -> Request:
    """Rebuild the Request that an idea answers, with the text that the mind received.

    Args:
        idea: the idea. If its results were left out, the Request lacks them too, and therefore has
            a different id.
        handlers: the handlers that were in use when the idea was made, if the user registered any.

    Raises:
        MessageError: the context has a malformed message.
    """
    schema = object_or_empty(idea.schema)
    shown = TO_MINDS if idea.shown is None else Shown.from_json(idea.shown)
    texts = (handlers or Handlers()).render(idea.context, schema, shown)
    return Request(
        context_json=idea.context, schema=schema, texts=texts, model={}, shown=idea.shown
    )


def remake(document: JSON, handlers: Handlers | None = None) -> Request:
    """Rebuild the Request of an exported idea from the document alone, with the same id and the
    same text for the mind.

    The model's settings are not in the document and are not part of any id.

    Args:
        document: a document returned by `export_idea`.
        handlers: the handlers that were in use when the idea was made, if the user registered any.

    Raises:
        IdeaDocumentError, TamperedIdeaError: see `Store.import_idea`. `IdeaDocumentError` is also
            raised if the document lacks results of the run, so that the Request cannot be rebuilt.
        MessageError: the context has a message that the handlers do not know.
    """
    read = read_document(document)
    if read.meta.left_out:
        raise IdeaDocumentError(
            f"left_out: the document lacks {len(read.meta.left_out)} values of the Request "
            f"that idea {read.meta.original[:12]} answers; export that idea with its results "
            "(`ideas export --results`)"
        )
    return request_of(read.idea, handlers)


# -- exported documents ----------------------------------------------------------------------------

FORMAT: Final = 2
"""The value of the member `ideabridge` of a document."""

Checks: TypeAlias = Literal["whole", "idea", "nothing"]
"""The parts of a document that must be unchanged: `whole` for everything, which checks the digest;
`idea` for context, schema and solution, which checks the ids; or `nothing` if the document may have
been edited, in which case its ids are recomputed.
"""

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of a document, in bytes of canonical JSON."""

_TEXT: Final[JSONObject] = {"type": "string"}
_OBJECT: Final[JSONObject] = {"type": "object"}
_WHOLE: Final[JSONObject] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TEXTS: Final[JSONObject] = {"type": "array", "items": _TEXT}


def _closed(description: str, properties: JSONObject, *required: str) -> JSONObject:
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "required": list[JSON](required),
        "additionalProperties": False,
    }


def _hash(description: str) -> JSONObject:
    return {"description": description, "type": "string", "pattern": "^[0-9a-f]{64}$"}


_COPY: Final = ("original", "left_out")
"""The metadata that a document contains next to the triple, because it names what the triple lacks.
"""

_META: Final[JSONObject] = {
    **dict.fromkeys(
        (field.name for field in dataclasses.fields(IdeaMeta) if field.name not in _COPY), _TEXT
    ),
    "step": _WHOLE,
    "usage": _OBJECT,
    "written": _OBJECT,
    "tools": _TEXTS,
    "tags": _TEXTS,
}
_PUBLICATION: Final[JSONObject] = {
    "name": {"type": "string", "pattern": f"^[a-z][a-z0-9_]{{0,{MAX_NAME - 1}}}$"},
    "version": _WHOLE,
    "description": _TEXT,
    "answer": {"enum": list[JSON](ANSWERS)},
    **dict.fromkeys(("input_schema", "output_schema", "annotations", "plan"), _OBJECT),
    "recorded": {},
}
_NEED: Final[JSONObject] = {"tool": _TEXT, "module": _TEXT}
_HASHES: Final[JSONObject] = {
    "id": _hash(
        "SHA-256 of {context, schema, shown, solution} as compact UTF-8 JSON. An idea without "
        "shown leaves this member out."
    ),
    "request": _hash("SHA-256 of {context, schema, shown}, in the same form."),
    "digest": _hash("SHA-256 of all other members, in the order of this schema, as compact JSON."),
}
_CONTENT: Final[JSONObject] = {
    "ideabridge": {"description": "The format.", "const": FORMAT},
    "id": _HASHES["id"],
    "request": _HASHES["request"],
    "context": {"description": "The messages of the Request.", "type": "array"},
    "schema": {"description": "JSON Schema of the Solution."},
    "shown": _closed(
        "How many bytes of results the mind is shown: for one, and for all in the Request.",
        {"value": _WHOLE, "request": _WHOLE},
        *("value", "request"),
    ),
    "solution": {"description": 'The Solution: {"calls": [...], "output": ...}.'},
    "original": _hash("The id of the idea with the results of its run, if they are left out here."),
    "left_out": {
        "description": "What is left out, because it comes from results of the run.",
        "type": "array",
        "items": _closed(
            "A value by its reference, or a message of the context by its number from 0.",
            {"reference": _TEXT, "message": _WHOLE, "type": _TEXT, "bytes": _WHOLE},
            *("type", "bytes"),
        ),
    },
    "meta": _closed("The metadata of the idea, which are not part of any id.", _META),
    "publication": _closed(
        "What the name of the idea referred to.", _PUBLICATION, "name", "answer"
    ),
    "needs": {
        "description": "The tools that its calls name, and the servers that these tools belong to.",
        "type": "array",
        "items": _closed("A tool. Without module, it belongs to no server.", _NEED, "tool"),
    },
}
"""The members of a document, in the order in which the digest hashes them."""

_IDEA: Final = ("ideabridge", "context", "schema", "solution")
DOCUMENT_SCHEMA: Final[JSONObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "An exported idea of ideabridge",
    **_closed(
        "One idea: the triple (context, schema, solution), with its metadata.",
        {**_CONTENT, "digest": _HASHES["digest"]},
        *("ideabridge", "id", "request", "context", "schema", "solution", "digest"),
    ),
}
"""JSON Schema (2020-12) of a document. `docs/idea.schema.json` is a copy."""

_UNHASHED: Final[JSONObject] = {
    name: schema for name, schema in _CONTENT.items() if name not in _HASHES
}
_SHAPE: Final = Validator(_closed("", _UNHASHED, *_IDEA), what="the idea")
"""Checks the shape of a document, but not its ids and digest."""


def without_recorded_output(publication: Publication) -> Publication:
    """Prepare a publication for a document without results by removing the output of its run,
    unless calls are answered with that output.
    """
    recorded = publication.recorded
    if publication.answer == "recorded" or not isinstance(recorded, dict):
        return publication
    recorded = {name: value for name, value in recorded.items() if name != "output"}
    return dataclasses.replace(publication, recorded=recorded)


def export(stored: StoredIdea, publication: Publication | None) -> JSONObject:
    """Return the document of a stored idea."""
    meta = stored.meta.to_json()
    document: JSONObject = {
        "ideabridge": FORMAT,
        "id": stored.idea.id,
        "request": stored.idea.request_id,
        "context": stored.idea.context,
        "schema": stored.idea.schema,
        "solution": stored.idea.solution,
        "meta": {name: value for name, value in meta.items() if name not in _COPY},
    }
    document |= {name: meta[name] for name in _COPY if name in meta}
    if stored.idea.shown is not None:
        document["shown"] = stored.idea.shown

    if publication is not None:
        members: JSONObject = {}
        for name in _PUBLICATION:
            value: Any = getattr(publication, name, None)
            if value is not None:
                members[name] = value

        document["publication"] = members

    plan = None if publication is None else publication.plan
    needs = needs_of(stored.idea, plan)
    if needs:
        # This member is only for people who read the document, because an import reads the calls
        # themselves.
        document["needs"] = [need.to_json() for need in needs]

    return sealed(document)


def sealed(document: JSONObject) -> JSONObject:
    """Return a document with the digest of its content."""
    content: JSONObject = {name: document[name] for name in _CONTENT if name in document}
    return {**content, "digest": content_hash(content)}


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A checked document. `publication` has the members that `export` writes, with the correct
    types.
    """

    idea: Idea
    meta: IdeaMeta
    publication: JSONObject | None

    def publication_members(self) -> dict[str, Any]:
        """Return the members of the document's publication that are needed to publish it.

        The document's statements about checks of the plan become claims, and the description ends
        with a note that the publication was imported.

        Raises:
            IdeaDocumentError: the document contains no publication.
        """
        if self.publication is None:
            raise IdeaDocumentError(
                "publication: missing in the document, so there is nothing to publish"
            )

        members: dict[str, Any] = dict.fromkeys(
            ("input_schema", "output_schema", "plan", "recorded")
        )
        members |= {"description": "", "annotations": {}, **self.publication}
        members.pop("version", None)
        members["description"] = imported_description(
            members["description"], members["answer"], members["plan"]
        )
        members["plan"] = unchecked(members["plan"])
        recorded = cast("JSON", members["recorded"])
        if isinstance(recorded, dict):
            # Leave out this description, because nobody has checked that the publication does what
            # it says.
            members["recorded"] = {
                key: value for key, value in recorded.items() if key != "written"
            }

        return members

    @property
    def needs(self) -> list[Need]:
        """The tools that the idea's calls name, and the servers that these tools belong to."""
        return needs_of(self.idea, (self.publication or {}).get("plan"))


def read_document(raw: JSON, checks: Checks = "whole") -> Document:
    """Check the shape, the ids and the digest of a document, and return it.

    Raises:
        PublicationNameError: the publication's name cannot be published.
        IdeaDocumentError: the document does not have the expected shape. The message says where.
        InvalidJSONError, LimitExceededError: the document is not JSON, or is nested too deeply.
        TamperedIdeaError: the content does not match the ids or the digest that the document
            states, or there is no digest.
    """
    document = _checked_object(raw)
    shown = cast("JSONObject | None", document.get("shown"))
    idea = Idea(
        cast("list[JSON]", document["context"]), document["schema"], document["solution"], shown
    )
    if checks != "nothing":
        _check_hash("request", document.get("request"), idea.request_id)
        _check_hash("id", document.get("id"), idea.id)

    meta = dict(cast("JSONObject", document.get("meta", {})))
    if meta.get("time"):
        meta["time"] = _moment(str(meta["time"]))

    publication = cast("JSONObject | None", document.get("publication"))
    _check_whole_numbers(meta, publication or {}, shown or {})
    _check_schemas(publication or {})
    meta |= {name: document[name] for name in _COPY if name in document}
    read = Document(idea, IdeaMeta.from_json(meta), publication)
    if checks == "whole":
        if "digest" not in document:
            raise TamperedIdeaError(
                "digest: missing, so nobody can tell whether the document has changed since "
                "its export. Export it again, or review it and import it as edited (`ideas "
                "import --edited`)"
            )

        _check_hash("digest", document["digest"], str(sealed(document)["digest"]))

    return read


def _checked_object(raw: JSON) -> JSONObject:
    """Check the size, format, name and shape of a document, and return it."""
    document = normalise(raw, what="the idea", max_depth=MAX_DEPTH + 8)
    if not isinstance(document, dict):
        raise IdeaDocumentError(f"an exported idea is an object, found {show(document)}")

    size = len(encode(document))
    if size > MAX_DOCUMENT_BYTES:
        raise IdeaDocumentError(f"the idea has {size:,} bytes; the limit is {MAX_DOCUMENT_BYTES:,}")

    version = document.get("ideabridge", FORMAT)
    if version != FORMAT or isinstance(version, bool):
        raise IdeaDocumentError(
            f"ideabridge: expected format {FORMAT}, found {show(version)}; "
            "another version of ideabridge may have written it"
        )

    publication = document.get("publication")
    if isinstance(publication, dict) and isinstance(publication.get("name"), str):
        check_name(str(publication["name"]))

    _check_shape(document)
    return document


def _check_shape(document: JSONObject) -> None:
    shape: JSONObject = {name: value for name, value in document.items() if name not in _HASHES}
    # Leave out these members to find errors faster: they can be large, and the schema does not
    # restrict their content.
    shape |= dict.fromkeys({"schema", "solution"} & shape.keys())
    if isinstance(shape.get("context"), list):
        shape["context"] = []

    if shape.get("publication") is None:
        # Null means that the document has no publication.
        shape.pop("publication", None)

    try:
        _SHAPE.check(shape)
    except ValueMismatchError as error:
        hint = ""
        if "context" in document and "ideabridge" not in document:
            hint = ". To add an idea that was written by hand, use `ideas add` or save_idea"
        raise IdeaDocumentError(f"{error}{hint}") from None


def _check_whole_numbers(meta: JSONObject, publication: JSONObject, shown: JSONObject) -> None:
    numbers = {"meta.step": meta.get("step"), "publication.version": publication.get("version")}
    numbers |= {f"shown.{name}": number for name, number in shown.items()}
    for place, number in numbers.items():
        # Check the type, because JSON Schema also counts 1.0 as an integer.
        if isinstance(number, float):
            raise IdeaDocumentError(f"{place}: found {show(number)}, expected an integer")


def _check_schemas(publication: JSONObject) -> None:
    for key in ("input_schema", "output_schema"):
        schema = publication.get(key)
        if isinstance(schema, dict):
            try:
                check_schema(schema, what=f"publication.{key}")
            except IdeabridgeError as error:
                raise IdeaDocumentError(str(error)) from None


def _check_hash(member: str, named: JSON, real: str) -> None:
    if not isinstance(named, str):
        raise IdeaDocumentError(f"{member}: expected 64 hex digits, found {show(named)}")
    if named != real:
        raise TamperedIdeaError(
            f"{member}: the document says {named[:64]!r}, but its content has {real}, so it was "
            "changed after the export"
        )


def _moment(text: str) -> str:
    """Convert a time to the store's format, because lists are ordered by it."""
    try:
        moment = read_time(text)
    except ValueError:
        raise IdeaDocumentError(
            f"meta.time: expected a time such as 2026-11-21T10:00:00Z, found {show(text)}"
        ) from None
    return moment.isoformat(timespec="milliseconds")
