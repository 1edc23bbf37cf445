"""Portable ideas: one idea as a JSON document that anybody can check."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, cast

from ideabridge.bridge.store.errors import IdeaDocumentError, SecretInIdeaError, TamperedIdeaError
from ideabridge.bridge.store.idea import ANSWERS, Idea, IdeaMeta, Publication, StoredIdea
from ideabridge.bridge.store.shapes import Need, needs_of
from ideabridge.tools.encoding import JSON, MAX_DEPTH, JSONObject, content_hash, encode, normalise
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.schema import check_schema

# -- leaks -----------------------------------------------------------------------------------------------------------
#
# Leaks: secrets in what is about to leave the store. They are found by their shape, wherever they stand.
#
# The shapes are those that the makers of the tokens chose so that they can be found; what has no shape is found only
# where it is configured here.

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
_EACH: Final = {what: re.compile(f"(?<![A-Za-z0-9_])(?:{shape})") for what, shape in _SHAPES.items()}


def shapes_in(text: str) -> list[str]:
    """What kinds of secrets a text holds, by their shapes."""
    if _ANY.search(text) is None:
        return []
    return [what for what, pattern in _EACH.items() if pattern.search(text)]


def check_leaks(document: JSONObject, known: Known | None = None) -> None:
    """Refuse a document that holds a secret.

    Args:
        document: what is about to leave.
        known: finds the configured ones.

    Raises:
        SecretInIdeaError: names every place and what stands there, never the secret.
    """
    found: dict[str, None] = {}
    for path, text in _texts(document, ""):
        what = [*shapes_in(text), *(f"the secret {name}" for name in (known(text) if known is not None else ()))]
        if what:
            # The key itself may be what must not be told.
            found[f"{path}: {', '.join(what)}"] = None
    if not found:
        return
    places = list(found)
    shown = "\n".join([*places[:_NAMED], *([f"and {len(places) - _NAMED} more"] if len(places) > _NAMED else [])])
    raise SecretInIdeaError(
        "it holds secrets, so it is not given away. An idea is never changed: make it again with the secret in the"
        f" configuration of its module, or as an input that is given at each call.\n{shown}"
    )


def _texts(value: JSON, path: str) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, JSON]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, str):
            yield where, item
        elif isinstance(item, list):
            stack.extend((f"{where}.{index}", inner) for index, inner in reversed(list(enumerate(item))))
        elif isinstance(item, dict):
            for number, (key, inner) in enumerate(reversed(list(item.items()))):
                clean = len(key) <= 64 and key.isprintable() and not shapes_in(key)
                yield f"{where or 'the document'}, a key", key
                shown = key if clean else f"({len(item) - 1 - number})"
                stack.append((f"{where}.{shown}" if where else shown, inner))


# -- claims ----------------------------------------------------------------------------------------------------------
#
# Claims: what an imported publication says of how it answers and how it was checked. Nothing of it was seen here.

_IMPORTED: Final = "Imported: its author's description was not checked here."
_WAYS: Final = {
    "recorded": "It gives the answer recorded for its one input; nothing runs.",
    "plan": "It replays a saved plan with your input.",
    "solve": "It asks a model to solve it anew with your input.",
}
UNCHECKED: Final = "not here"
"""How far an imported plan was checked: the member `checked` of its `lifting`."""


def imported_description(description: str, answer: str, plan: JSON) -> str:
    """The description of an imported publication: the text of the document, then that it was not checked here, and how
    a call is answered.

    Args:
        description: the document's text.
        answer: how it is answered: `recorded`, `plan`, `solve`, or `auto`, which is the plan where there is one.
        plan: its plan; null: none.
    """
    way = answer if answer != "auto" else "plan" if isinstance(plan, dict) and plan.get("calls") else "solve"
    told = f"{_IMPORTED} {_WAYS[way]}"
    text = description.strip()
    if text.endswith(told):
        # The document was exported from a store that had imported it.
        return text
    end = "" if not text or text.endswith((".", "!", "?")) else "."
    return f"{text}{end} {told}".strip()


def unchecked(plan: JSON) -> JSON:
    """An imported plan: what it says of its lifting stays as the document's claim."""
    if not isinstance(plan, dict) or "lifting" not in plan:
        return plan
    lifting = plan["lifting"]
    if isinstance(lifting, dict) and lifting.get("checked") == UNCHECKED:
        # It was imported before it was exported.
        lifting = lifting.get("claimed")
    claimed: JSONObject = {"checked": UNCHECKED, "claimed": lifting}
    return {**plan, "lifting": claimed}


# -- portable --------------------------------------------------------------------------------------------------------

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
        """The arguments of `Publications.publish`. What the document says about checks of its plan is kept as a claim,
        and the description ends with a sentence that says that it was imported.

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
