"""Constants of a plan: what a person must accept before a run's calls may answer for other inputs (DESIGN 4.11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ideabridge.bridge.context.reference import is_reference
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.encoding import JSON, JSONObject, encode_text
from ideabridge.tools.tool import META_PROPERTIES


@dataclass(frozen=True, slots=True)
class Constant:
    """A leaf of a plan that is no reference.

    Attributes:
        path: where it stands: `calls.0.max_count`, `output.title`.
        value: what stands there.
        demanded: the tool's schema allows nothing else there, so nobody need accept it.
    """

    path: str
    value: JSON
    demanded: bool = False

    @property
    def shown(self) -> str:
        """`path = value`, the value cut to a line."""
        text = encode_text(self.value)
        return f"{self.path} = {text if len(text) <= 60 else text[:57] + '...'}"


def constants_of(
    calls: Iterable[JSON], output: JSON, catalogue: Catalogue, instances: Mapping[str, JSONObject] | None = None
) -> list[Constant]:
    """Every leaf of the parameters, of the output and of the initial states of instances that is no reference.

    An empty array or object is a leaf. `_each` over literal items and a latent `_output` count as parameters;
    the other meta-properties are the plan's structure.
    """
    found: list[Constant] = []
    for place, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        schemas = _parameter_schemas(call, catalogue)
        for key, value in call.items():
            if key in META_PROPERTIES and key not in ("_each", "_output"):
                continue
            _collect(value, f"calls.{place}.{key}", schemas.get(key), found)
    if output is not None:
        _collect(output, "output", None, found)
    for name, state in (instances or {}).items():
        for key, value in state.items():
            _collect(value, f"instances.{name}.{key}", None, found, literal=True)
    return found


def _parameter_schemas(call: JSONObject, catalogue: Catalogue) -> JSONObject:
    # A tool that is gone demands nothing; the plan's own check names it.
    tool = catalogue.look_up(call)
    return catalogue.parameters_of(tool) if tool is not None else {}


def _collect(value: JSON, path: str, schema: JSON, found: list[Constant], *, literal: bool = False) -> None:
    # What stands in a state is read as it is: a dagger there makes no reference.
    if isinstance(value, str) and is_reference(value) and not literal:
        return
    properties = schema.get("properties") if isinstance(schema, dict) else None
    items = schema.get("items") if isinstance(schema, dict) else None
    if isinstance(value, dict) and value:
        for key, item in value.items():
            part = properties.get(key) if isinstance(properties, dict) else None
            _collect(item, f"{path}.{key}", part, found, literal=literal)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            _collect(item, f"{path}.{index}", items, found, literal=literal)
    else:
        found.append(Constant(path, value, _demanded(value, schema)))


def _demanded(value: JSON, schema: JSON) -> bool:
    if not isinstance(schema, dict):
        return False
    if "const" in schema:
        return schema["const"] == value
    return schema.get("enum") == [value]


def unaccepted(constants: Iterable[Constant], accept: JSON) -> list[Constant]:
    """The constants nobody has accepted.

    Args:
        constants: as `constants_of` gives them.
        accept: True for all, or an array of paths; a path accepts everything below it.
    """
    if accept is True:
        return []
    paths = [path for path in accept if isinstance(path, str)] if isinstance(accept, list) else []
    return [
        one
        for one in constants
        if not one.demanded and not any(one.path == path or one.path.startswith(f"{path}.") for path in paths)
    ]
