"""Choices: what a person decides about a lifted plan (DESIGN 4.11)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ideabridge.bridge.context.reference import is_reference, parse_reference
from ideabridge.bridge.errors import PublicationError
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.names import did_you_mean

_KEYS = ("accept", "take", "runs")

MIND = "mind"
"""What is taken for the `_output` that a mind wrote: ask a mind for it each time."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person decided.

    Attributes:
        accept: paths of what may stay as it is; True: everything that is named.
        take: by path, what stands there instead of a literal: a reference, `{"pick": JMESPath, "from": reference}`,
            or `mind` for a written `_output`.
        runs: other runs of the same task; None: those of the same shape are looked for.
    """

    accept: bool | tuple[str, ...] = ()
    take: JSONObject = field(default_factory=dict[str, JSON])
    runs: tuple[str, ...] | None = None

    def accepts(self, path: str) -> bool:
        """Whether it may stay: a path accepts everything below it."""
        if isinstance(self.accept, bool):
            return self.accept
        return any(path == one or path.startswith(f"{one}.") for one in self.accept)

    def to_json(self) -> JSONObject:
        """As it was given."""
        told: JSONObject = {}
        if self.accept:
            told["accept"] = self.accept if isinstance(self.accept, bool) else list[JSON](self.accept)
        if self.take:
            told["take"] = self.take
        if self.runs is not None:
            told["runs"] = list[JSON](self.runs)
        return told


def read_choices(raw: JSONObject | None) -> Choices:
    """Read `{"accept": true | [paths], "take": {path: ...}, "runs": [ids]}`.

    Raises:
        PublicationError: the shape is wrong; the message says where and what was expected.
    """
    raw = raw or {}
    for key in raw:
        if key not in _KEYS:
            raise PublicationError(f"choices: unknown key {key!r}; expected 'accept', 'take' or 'runs'")
    take = raw.get("take", {})
    if not isinstance(take, dict):
        raise PublicationError("choices.take: expected an object from paths to references")
    for path, value in take.items():
        _check_take(path, value)
    accept = raw.get("accept", [])
    if accept is not True and accept is not False and not isinstance(accept, list):
        raise PublicationError("choices.accept: expected true, or an array of paths")
    runs = raw.get("runs")
    return Choices(
        accept if isinstance(accept, bool) else tuple(_texts(accept, "accept")),
        take,
        None if runs is None else tuple(_texts(runs, "runs")),
    )


def _texts(value: JSON, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise PublicationError(f"choices.{where}: expected an array of texts")
    return [one for one in value if isinstance(one, str)]


def _check_take(path: str, value: JSON) -> None:
    if value == MIND and path.endswith("._output"):
        return
    reference: JSON = value
    if isinstance(value, dict):
        if value.keys() != {"pick", "from"} or not isinstance(value["pick"], str):
            raise PublicationError(f'choices.take.{path}: expected {{"pick": JMESPath, "from": reference}}')
        reference = value["from"]
    if not isinstance(reference, str) or not is_reference(reference):
        raise PublicationError(
            f"choices.take.{path}: expected a reference such as †input.x,"
            ' or {"pick": "max_by(@, &size).name", "from": "†results.0"}'
        )
    try:
        parse_reference(reference)
    except IdeabridgeError as error:
        raise PublicationError(f"choices.take.{path}: {error}") from None


def unknown_path(where: str, path: str, known: list[str]) -> PublicationError:
    """The error for a path at which nothing stands."""
    return PublicationError(f"choices.{where}: nothing constant stands at {path!r}.{did_you_mean(path, known)}")
