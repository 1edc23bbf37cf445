"""Portable ideas: one idea as a JSON document that anybody can check."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.bridge.context.messages import Handlers
from ideabridge.bridge.context.request import Request
from ideabridge.bridge.context.shown import TO_MINDS, Shown
from ideabridge.bridge.store.database import read_time
from ideabridge.bridge.store.errors import IdeaDocumentError, SecretInIdeaError, TamperedIdeaError
from ideabridge.bridge.store.idea import ANSWERS, Idea, IdeaMeta, Publication, StoredIdea
from ideabridge.bridge.store.publications import check_name
from ideabridge.bridge.store.shapes import Need, needs_of
from ideabridge.tools.encoding import JSON, MAX_DEPTH, JSONObject, content_hash, encode, normalise
from ideabridge.tools.errors import IdeabridgeError, ValueMismatchError
from ideabridge.tools.keywords import show
from ideabridge.tools.names import MAX_NAME
from ideabridge.tools.schema import Validator, check_schema

# -- leaks -----------------------------------------------------------------------------------------
#
# Leaks: secrets in documents that leave the store. They are found by their form, in any place.
#
# The shapes are those that the makers of the tokens chose so that they can be found; what has no
# shape is found only where it is configured here.

Known: TypeAlias = Callable[[str], Sequence[str]]
"""The names of the configured secrets that occur in a text."""

_NAMED: Final = 10

_SHAPES: Final = {
    "a GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,}",
    "a GitLab token": r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}",
    "a Slack webhook": r"https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,}",
    "an AWS access key": r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}",
    "a Google API key": r"AIza[A-Za-z0-9_-]{35}",
    "a Google OAuth token": r"ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",
    "a token of an ideabridge user": r"ibt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}",
    "an Anthropic key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "an OpenAI key": r"sk-(?=[A-Za-z0-9_-]*[0-9])(?=[a-z0-9_-]*[A-Z])[A-Za-z0-9_-]{20,}",
    "a Stripe key": r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{24,}",
    "an npm token": r"npm_[A-Za-z0-9]{36}",
    "a PyPI token": r"pypi-[A-Za-z0-9_-]{50,}",
    "a Hugging Face token": r"hf_[A-Za-z0-9]{30,}",
    "a SendGrid key": r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
    "a DigitalOcean token": r"do[opr]_v1_[a-f0-9]{64}",
    "a Telegram bot token": r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    "a JSON Web Token": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "credentials in an address": r"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>\[\]]{1,100}:[^\s/:@\"'<>\[\]]{3,200}@[A-Za-z0-9.-]+",
    "a bearer token": r"[Bb]earer\s+(?=\S*[0-9])[A-Za-z0-9._~+/-]{20,}=*",
}
_ANY: Final = re.compile("|".join(f"(?<![A-Za-z0-9_])(?:{shape})" for shape in _SHAPES.values()))
_EACH: Final = {
    what: re.compile(f"(?<![A-Za-z0-9_])(?:{shape})") for what, shape in _SHAPES.items()
}


def shapes_in(text: str) -> list[str]:
    """Return the kinds of secrets that a text contains, recognised by their form."""
    if _ANY.search(text) is None:
        return []
    return [what for what, pattern in _EACH.items() if pattern.search(text)]


def check_leaks(document: JSONObject, known: Known | None = None) -> None:
    """Refuse a document that contains a secret.

    Args:
        document: the document to export.
        known: finds the configured secrets.

    Raises:
        SecretInIdeaError: the message lists every place and the kind of its secret, but
            not the secret.
    """
    found: dict[str, None] = {}
    for path, text in _texts(document, ""):
        what = [
            *shapes_in(text),
            *(f"the secret {name}" for name in (known(text) if known is not None else ())),
        ]
        if what:
            # The key itself may be what must not be told.
            found[f"{path}: {', '.join(what)}"] = None

    if not found:
        return

    places = list(found)
    shown = "\n".join(
        [*places[:_NAMED], *([f"and {len(places) - _NAMED} more"] if len(places) > _NAMED else [])]
    )
    raise SecretInIdeaError(
        "it holds secrets, so it is not given away. An idea is never changed: make it "
        "again with the secret in the"
        f" configuration of its server, or as an input that is given at each call.\n{shown}"
    )


def _texts(value: JSON, path: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, JSON]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, str):
            yield where, item
        elif isinstance(item, list):
            stack.extend(
                (f"{where}.{index}", inner) for index, inner in reversed(list(enumerate(item)))
            )
        elif isinstance(item, dict):
            for number, (key, inner) in enumerate(reversed(list(item.items()))):
                clean = len(key) <= 64 and key.isprintable() and not shapes_in(key)
                yield f"{where or 'the document'}, a key", key
                shown = key if clean else f"({len(item) - 1 - number})"
                stack.append((f"{where}.{shown}" if where else shown, inner))


# -- claims ----------------------------------------------------------------------------------------
#
# Claims: what an imported publication says of how it answers and how it was checked. Nothing of
# it was seen here.

_IMPORTED: Final = "Imported: its author's description was not checked here."
_WAYS: Final = {
    "recorded": "It gives the answer recorded for its one input; nothing runs.",
    "plan": "It replays a saved plan with your input.",
    "program": "It runs a saved program with your input.",
    "solve": "It asks a model to solve it anew with your input.",
}
UNCHECKED: Final = "not here"
"""The extent to which an imported plan was checked: the member `checked` of its `lifting`."""


def imported_description(description: str, answer: str, plan: JSON) -> str:
    """Return the description of an imported publication: the document's text, a note that it is
    unchecked here, and how a call is answered.

    Args:
        description: the document's text.
        answer: the way of answering; `auto` uses the plan if there is one.
        plan: its plan, or null.
    """
    if answer != "auto":
        way = answer
    elif isinstance(plan, dict) and plan.get("calls"):
        way = "plan"
    else:
        way = "solve"

    told = f"{_IMPORTED} {_WAYS[way]}"
    text = description.strip()
    if text.endswith(told):
        # The document was exported from a store that had imported it.
        return text

    end = "" if not text or text.endswith((".", "!", "?")) else "."
    return f"{text}{end} {told}".strip()


def unchecked(plan: JSON) -> JSON:
    """Return an imported plan. Its statements about its lifting are kept as claims
    of the document.
    """
    if not isinstance(plan, dict) or "lifting" not in plan:
        return plan

    lifting = plan["lifting"]
    if isinstance(lifting, dict) and lifting.get("checked") == UNCHECKED:
        # It was imported before it was exported.
        lifting = lifting.get("claimed")

    claimed: JSONObject = {"checked": UNCHECKED, "claimed": lifting}
    return {**plan, "lifting": claimed}


def without_runs(publication: Publication) -> Publication:
    """The publication for somebody who may not see the runs from which its plan was made:
    without their ids.
    """
    plan = publication.plan
    lifting = None if plan is None else plan.get("lifting")
    if plan is None or not isinstance(lifting, dict):
        return publication
    kept: JSONObject = {key: lifting[key] for key in ("checked", "claimed") if key in lifting}
    return dataclasses.replace(publication, plan={**plan, "lifting": kept})


# -- Requests --------------------------------------------------------------------------------------


def request_of(idea: Idea, handlers: Handlers | None = None) -> Request:
    """The Request that an idea answers, with the texts that its mind got.

    Args:
        idea: the idea. One whose results were left out gives the Request without them, which
            has another id.
        handlers: the handlers with which it was made, if there were any of one's own.

    Raises:
        MessageError: the context has a malformed message.
    """
    schema = idea.schema if isinstance(idea.schema, dict) else {}
    shown = TO_MINDS if idea.shown is None else Shown.from_json(idea.shown)
    texts = (handlers or Handlers()).render(idea.context, schema, shown)
    return Request(
        context_json=idea.context, schema=schema, texts=texts, model={}, shown=idea.shown
    )


def remake(document: JSON, handlers: Handlers | None = None) -> Request:
    """Make the Request of an exported idea again, from the document alone: equal in its id,
    and in the texts that its mind got. Its settings of the model, which are in no id, are not
    in the document.

    Args:
        document: a result of `export_idea`.
        handlers: the handlers with which it was made, if there were any of one's own.

    Raises:
        IdeaDocumentError, TamperedIdeaError: see `Store.import_idea`; or results of the run are
            left out of the document, so that it is not the Request that was made.
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


# -- portable --------------------------------------------------------------------------------------

FORMAT: Final = 2
"""The value of the member `ideabridge` of a document."""

Checks: TypeAlias = Literal["whole", "idea", "nothing"]
"""What of a document must be unchanged. whole: everything, by its digest. idea: context, schema and
solution, by their ids. nothing: it was edited; its ids are computed anew.
"""

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a document, as canonical JSON."""

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
"""The metadata that stand beside the triple in a document, because they say what it lacks."""

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
        "SHA-256 of {context, schema, shown, solution} as compact UTF-8 JSON, "
        "without shown where none is."
    ),
    "request": _hash("SHA-256 of {context, schema, shown}, likewise."),
    "digest": _hash("SHA-256 of all other members, in the order of this schema, as compact JSON."),
}
_CONTENT: Final[JSONObject] = {
    "ideabridge": {"description": "The format.", "const": FORMAT},
    "id": _HASHES["id"],
    "request": _HASHES["request"],
    "context": {"description": "The messages of the Request.", "type": "array"},
    "schema": {"description": "JSON Schema of the Solution."},
    "shown": _closed(
        "How many bytes of results the mind was shown: of one, and of all in the Request.",
        {"value": _WHOLE, "request": _WHOLE},
        *("value", "request"),
    ),
    "solution": {"description": 'The Solution: {"calls": [...], "output": ...}.'},
    "original": _hash(
        "The id of the idea with the results of its run, where they are left out here."
    ),
    "left_out": {
        "description": "What is left out, because it comes from results of the run.",
        "type": "array",
        "items": _closed(
            "A value by its reference, or a message of the context by its number from 0.",
            {"reference": _TEXT, "message": _WHOLE, "type": _TEXT, "bytes": _WHOLE},
            *("type", "bytes"),
        ),
    },
    "meta": _closed("What is known beside the triple; in no id.", _META),
    "publication": _closed(
        "What the name stood for, where one was.", _PUBLICATION, "name", "answer"
    ),
    "needs": {
        "description": "The tools its calls name, and the servers they belong to.",
        "type": "array",
        "items": _closed("A tool; without module, of no server.", _NEED, "tool"),
    },
}
"""The members of a document, in the order in which the digest hashes them."""

_IDEA: Final = ("ideabridge", "context", "schema", "solution")
DOCUMENT_SCHEMA: Final[JSONObject] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "An exported idea of ideabridge",
    **_closed(
        "One idea: the triple (context, schema, solution), with what is known beside it.",
        {**_CONTENT, "digest": _HASHES["digest"]},
        *("ideabridge", "id", "request", "context", "schema", "solution", "digest"),
    ),
}
"""JSON Schema (2020-12) of a document. `docs/idea.schema.json` is a copy."""

_UNHASHED: Final[JSONObject] = {
    name: schema for name, schema in _CONTENT.items() if name not in _HASHES
}
_SHAPE: Final = Validator(_closed("", _UNHASHED, *_IDEA), what="the idea")
"""Checks a document without its ids and digest."""


def without_recorded_output(publication: Publication) -> Publication:
    """The publication for a document without results: the output of its run stays only where calls
    are answered with it.
    """
    recorded = publication.recorded
    if publication.answer == "recorded" or not isinstance(recorded, dict):
        return publication
    recorded = {name: value for name, value in recorded.items() if name != "output"}
    return dataclasses.replace(publication, recorded=recorded)


def export(stored: StoredIdea, publication: Publication | None) -> JSONObject:
    """The document of a stored idea."""
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
        told: JSONObject = {}
        for name in _PUBLICATION:
            value: Any = getattr(publication, name, None)
            if value is not None:
                told[name] = value
        document["publication"] = told

    needs = needs_of(
        stored.idea.schema,
        stored.idea.solution,
        publication.plan if publication is not None else None,
    )
    if needs:
        # For who reads it: an import looks at the calls themselves.
        document["needs"] = [need.to_json() for need in needs]

    return sealed(document)


def sealed(document: JSONObject) -> JSONObject:
    """The document with the digest of its content."""
    content: JSONObject = {name: document[name] for name in _CONTENT if name in document}
    return {**content, "digest": content_hash(content)}


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A checked document. `publication` has the members that `export` writes, with their types."""

    idea: Idea
    meta: IdeaMeta
    publication: JSONObject | None

    def publication_members(self) -> dict[str, Any]:
        """The arguments of `Publications.publish`. What the document says about checks of its plan
        is kept as a claim, and the description ends with a sentence that says that it was imported.

        Raises:
            IdeaDocumentError: the document contains no publication.
        """
        if self.publication is None:
            raise IdeaDocumentError(
                "publication: the document holds none, so there is nothing to publish"
            )

        told: dict[str, Any] = dict.fromkeys(("input_schema", "output_schema", "plan", "recorded"))
        told |= {"description": "", "annotations": {}, **self.publication}
        told.pop("version", None)
        told["description"] = imported_description(
            told["description"], told["answer"], told["plan"]
        )
        told["plan"] = unchecked(told["plan"])
        recorded = cast("JSON", told["recorded"])
        if isinstance(recorded, dict):
            # Nobody checked that the publication is what this text says.
            told["recorded"] = {key: value for key, value in recorded.items() if key != "written"}

        return told

    @property
    def needs(self) -> list[Need]:
        """Return the tools that its calls name, and the servers that the tools belong to."""
        plan = (self.publication or {}).get("plan")
        return needs_of(
            self.idea.schema, self.idea.solution, plan if isinstance(plan, dict) else None
        )


def read_document(raw: JSON, checks: Checks = "whole") -> Document:
    """Check the shape, the ids and the digest of a document.

    Raises:
        PublicationNameError: its name cannot be published.
        IdeaDocumentError: the shape is wrong; the message has the place.
        InvalidJSONError, LimitExceededError: it is not JSON, or too deep.
        TamperedIdeaError: the content does not have the ids or the digest it names, or
            it has no digest.
    """
    document = normalise(raw, what="the idea", max_depth=MAX_DEPTH + 8)
    if not isinstance(document, dict):
        raise IdeaDocumentError(f"an exported idea is an object, found {show(document)}")

    size = len(encode(document))
    if size > MAX_DOCUMENT_BYTES:
        raise IdeaDocumentError(
            f"the idea has {size:,} bytes; at most {MAX_DOCUMENT_BYTES:,} are taken"
        )

    written = document.get("ideabridge", FORMAT)
    if written != FORMAT or isinstance(written, bool):
        raise IdeaDocumentError(
            f"ideabridge: expected format {FORMAT}, found {show(written)}; "
            "another version of ideabridge may have written it"
        )

    published = document.get("publication")
    if isinstance(published, dict) and isinstance(published.get("name"), str):
        check_name(str(published["name"]))

    shape: JSONObject = {name: value for name, value in document.items() if name not in _HASHES}
    # The schema says nothing of what these hold, which may be large: an error is found
    # faster without it.
    shape |= dict.fromkeys({"schema", "solution"} & shape.keys())
    if isinstance(shape.get("context"), list):
        shape["context"] = []

    if published is None:
        # Null means that there is no publication.
        shape.pop("publication", None)

    try:
        _SHAPE.check(shape)
    except ValueMismatchError as error:
        by_hand = "context" in document and "ideabridge" not in document
        if by_hand:
            hint = ". An idea that was written by hand is taken by `ideas add`, and by save_idea"
        else:
            hint = ""
        raise IdeaDocumentError(f"{error}{hint}") from None

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
    whole_numbers = {
        "meta.step": meta.get("step"),
        "publication.version": (publication or {}).get("version"),
        **{f"shown.{name}": number for name, number in (shown or {}).items()},
    }
    for where, number in whole_numbers.items():
        # For JSON Schema 1.0 is an integer, too.
        if isinstance(number, float):
            raise IdeaDocumentError(f"{where}: found {show(number)}, expected an integer")

    for key in ("input_schema", "output_schema"):
        schema = (publication or {}).get(key)
        if isinstance(schema, dict):
            try:
                check_schema(schema, what=f"publication.{key}")
            except IdeabridgeError as error:
                raise IdeaDocumentError(str(error)) from None

    meta |= {name: document[name] for name in _COPY if name in document}
    found = Document(idea, IdeaMeta.from_json(meta), publication)
    if checks == "whole":
        if "digest" not in document:
            raise TamperedIdeaError(
                "digest: missing, so nobody can tell whether the document is as it was exported. "
                "Export it again, or look at it and take it as edited (`ideas import --edited`)"
            )

        _check_hash("digest", document["digest"], str(sealed(document)["digest"]))

    return found


def _check_hash(member: str, named: JSON, real: str) -> None:
    if not isinstance(named, str):
        raise IdeaDocumentError(f"{member}: expected 64 hex digits, found {show(named)}")
    if named != real:
        raise TamperedIdeaError(
            f"{member}: the document says {named[:64]!r}, but its content has {real}: it "
            "was changed after export"
        )


def _moment(text: str) -> str:
    """Return a time in the form of the store, by which lists are ordered."""
    try:
        moment = read_time(text)
    except ValueError:
        raise IdeaDocumentError(
            f"meta.time: expected a time as 2026-11-21T10:00:00Z, found {show(text)}"
        ) from None
    return moment.isoformat(timespec="milliseconds")
