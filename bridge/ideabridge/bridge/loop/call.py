"""Read and check a call that a mind or a plan lists. A call is a tool with its parameters filled
in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias, cast

from ideabridge.bridge.context.errors import ReferenceSyntaxError
from ideabridge.bridge.context.reader import NAMES, is_reader, meant_reference
from ideabridge.bridge.context.references import (
    MAX_LENGTH,
    Compiled,
    Expression,
    Hole,
    Path,
    Reference,
    Target,
    clipped,
    compile_value,
    format_path,
    is_reference,
    parse_target,
    quoted,
    unescape,
)
from ideabridge.bridge.context.state import Method
from ideabridge.bridge.context.written_call import WrittenCall
from ideabridge.bridge.loop.catalogue import Catalogue
from ideabridge.tools.encoding import JSON, JSONObject, object_or_empty
from ideabridge.tools.errors import IdeabridgeError, UnknownToolError
from ideabridge.tools.json_parts import parts_of
from ideabridge.tools.keywords import show
from ideabridge.tools.reading import wrong_reference_hint, wrong_target_hint
from ideabridge.tools.rename import meant_meta
from ideabridge.tools.shaping import check_query
from ideabridge.tools.tool import ANONYMOUS, META_PROPERTIES, Annotations, Tool

ErrorKind = Literal["structural", "runtime", "dependency", "denied", "output"]
"""Why a call failed. `structural`: an error in the call was found before it ran. `runtime`: the
call failed while it ran. `dependency`: a call that it depends on failed. `denied`: the policy or a
decision denied it. `output`: the output of a Solution could not be resolved or validated.
"""

UNCERTAIN = ("unknown", "ran")
"""Kinds of errors after which a call might still have taken effect: its outcome is unknown, or its
result cannot be used.
"""

UNCAUGHT = ("structural", *UNCERTAIN)
"""Kinds of errors that `p || q` does not catch: errors in the plan itself, and errors after which
the call might have done its work.
"""

Room: TypeAlias = Literal["latent", "anonymous", "idea"]

_META = frozenset(META_PROPERTIES)


@dataclass(slots=True)
class Read:
    """One reference string in a call, and the calls that its operands are bound to.

    `bound` lists, for each operand of each alternative, the calls whose writes the operand sees. An
    entry is None while the answer is streaming and no earlier call supplies the operand. A
    `lenient` read belongs to an explanation, so its value does not have to exist.
    """

    expression: Expression
    bound: list[list[tuple[int, ...] | None]] = field(
        default_factory=list["list[tuple[int, ...] | None]"]
    )
    lenient: bool = False

    def alternatives(
        self,
    ) -> Iterator[tuple[tuple[Reference, ...], list[tuple[int, ...] | None]]]:
        """Yield the operands of each alternative, together with the calls that each operand is
        bound to. Alternatives that are not bound yet are skipped.
        """
        return zip(self.expression.alternatives, self.bound, strict=False)

    def sources(self) -> Iterator[tuple[Reference, tuple[int, ...]]]:
        """Yield each operand that might be read, with the calls that write its value. There are no
        such calls if the value exists before the Solution.
        """
        for operands, bound in self.alternatives():
            for operand, writers in zip(operands, bound, strict=True):
                if operand.kind != "item":
                    yield operand, writers or ()


@dataclass(slots=True)
class Call:
    """A call that a mind or a plan lists.

    Attributes:
        index: the number of the call in the run, counted from 0.
        place: the place of the call, as in `†results.PLACE`. It equals the index unless instances
            share the places of a plan.
        first: the place of the first call in its Solution.
        raw: the call as it was written or, if the configuration changes its tool, the call to the
            real tool with the defaults filled in.
        tool: the tool of the call, or None if the tool is unknown.
        parameters, each, written_result: the compiled values (see `compile_value`) of the
            parameters, of `_each`, and of `_output`, the result that a mind wrote.
        reads: every reference string in the call, including those in `_imports`.
        writes: the full paths that the call can write to.
        after: the ids in `_after`.
        edges: the calls whose ids are in `after`, or None while one of the ids is unknown.
        problems: the structural problems, one sentence each.
        imports: the references in `_imports`, which the call's room can read.
        room: the kind of room that answers the call: `latent` (a mind, which sees the run's
            context, writes the result), `anonymous` (a clean room) or `idea`. None if code, a
            server or `_output` answers it.
        order: the earlier calls that the call directly waits for because of the listed order.
        clean: whether code in this process runs the call and sees only the parameters and
            `_imports`.
        constant: whether the parameters contain no references and are already validated.
        code: the tool that `_activity` names, if it is not the call's own tool. If the run lacks
            that tool, this is a placeholder without hints.
        changed: the changed tool that the call's author was shown, if the configuration changes the
            call's tool.
        as_written: the call as its author wrote it. None if the configuration does not change its
            tool.
    """

    index: int
    place: int
    raw: JSONObject
    name: str = ""
    tool: Tool | None = None
    activity: str | None = None
    instance: str = ""
    id: str | None = None
    after: tuple[str, ...] = ()
    parameters: Compiled = field(default_factory=dict[str, object])
    each: Compiled = None
    has_each: bool = False
    written_result: Compiled = None
    has_written_result: bool = False
    target: Target | None = None
    method: Method = "set"
    reads: list[Read] = field(default_factory=list[Read])
    writes: tuple[Path, ...] = ()
    problems: list[str] = field(default_factory=list[str])
    edges: tuple[int, ...] | None = ()
    order: list[int] = field(default_factory=list[int])
    imports: tuple[Expression, ...] = ()
    room: Room | None = None
    clean: bool = False
    constant: bool = False
    first: int = 0
    code: Tool | None = None
    changed: Tool | None = None
    as_written: JSONObject | None = None

    @property
    def hints(self) -> Annotations:
        """The hints about the code that runs."""
        tool = self.code or self.tool
        return Annotations() if tool is None else tool.annotations

    @property
    def may_add(self) -> bool:
        """Return whether the call runs code in this process, which can add messages."""
        is_own = self.tool is not None and self.tool.module is None and self.room is None
        return is_own and not self.has_written_result and not self.clean

    @property
    def label(self) -> str:
        """The call's name in errors: `call 0 (git_log)` or, in a later Solution, `call 0 of its
        solution, 7 of the run (git_log)`.
        """
        where = f" of its solution, {self.place} of the run" if self.first else ""
        instance = f", instance {clipped(self.instance)}" if self.instance else ""
        return (
            f"call {self.place - self.first}{where} ({clipped(self.name) or 'no tool'}{instance})"
        )

    @property
    def located(self) -> JSONObject:
        """The part of an error that identifies the call: `{"call", "place", "in_solution"?}`.

        `in_solution` is omitted if it equals the place.
        """
        located: JSONObject = {"call": self.as_written or self.raw, "place": self.place}
        if self.first:
            return {**located, "in_solution": self.place - self.first}
        return located


def _text_member(call: Call, key: str) -> str | None:
    value = call.raw.get(key)
    if value is None or isinstance(value, str):
        return value
    call.problems.append(f"{key}: expected text, found {show(value)}")
    return None


def _scan(call: Call, value: JSON, where: str) -> Compiled:
    """Compile one part of the call. Append its references to `reads`, and its faults to
    `problems`.
    """
    holes: list[Hole] = []
    faults: list[tuple[Path, str]] = []
    compiled = compile_value(value, holes, faults)
    for path, message in faults:
        call.problems.append(f"{where}{format_path(path)}: {message}".removeprefix("."))

    call.reads.extend(Read(hole.expression) for hole in holes)
    look_for_wrong_references(value, where, call.problems, call.raw.get("values"))
    return compiled


def look_for_wrong_references(
    value: JSON, where: str, problems: list[str], placeholders: JSON = None
) -> None:
    """Find strings that look like references in another notation.

    Args:
        value: the value that a mind or the author of a plan wrote.
        where: the path of the value, for messages.
        problems: receives a sentence for each such string.
        placeholders: an object whose keys are the names that placeholders in a `template` string
            (`{name.path}`) can use.
    """
    if isinstance(value, str):
        hint = wrong_reference_hint(value)
        if hint is not None and not _is_placeholder(value, placeholders):
            place = where.removeprefix(".")
            problems.append(
                f"{clipped(place)}: {quoted(value)} is not a reference; write {quoted(hint)}"
            )
        return

    for key, part in parts_of(value):
        look_for_wrong_references(part, f"{where}.{key}", problems, placeholders)


def _is_placeholder(text: str, placeholders: JSON) -> bool:
    name = re.match(r"\s*\{\s*(\w+)[.\[]", text)
    return name is not None and name[1] in object_or_empty(placeholders)


def _read_target(call: Call) -> None:
    text = _text_member(call, "_outputPath")
    wrong = _wrong_target(text) if text is not None else None
    if wrong is not None:
        call.problems.append(f"_outputPath: {wrong}")
    elif text is not None:
        try:
            call.target = parse_target(text)
        except ReferenceSyntaxError as error:
            call.problems.append(f"_outputPath: {error}")

    method = _text_member(call, "_outputMethod") or "set"
    if method in ("set", "merge", "push"):
        call.method = method
    else:
        call.problems.append(
            f"_outputMethod: expected 'set', 'merge' or 'push', found {quoted(method)}"
        )

    if call.method != "set" and call.target is None and not call.problems:
        call.problems.append(f"_outputMethod {quoted(call.method)} needs an _outputPath")

    call.writes = call.target.paths if call.target else (("results", str(call.place)),)


@lru_cache(maxsize=8192)
def _wrong_target(text: str) -> str | None:
    """Return what is wrong with an output path in another notation, or None if the path is
    valid.
    """
    # Text with quotes is not split, because a quoted string in brackets is a key.
    parts = [text] if '"' in text else re.split(r"\|\||&&", text[:MAX_LENGTH])
    for part in parts:
        hint = wrong_target_hint(part)
        if hint is not None:
            return f"output path {quoted(part.strip())}: write {quoted(hint)}"
    return None


def _read_after(call: Call) -> None:
    after = call.raw.get("_after", [])
    names = [after] if isinstance(after, str) else after
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        call.problems.append("_after: expected an array of ids")
        return

    call.after = tuple(cast("list[str]", names))
    if call.after:
        call.edges = None


def _is_single_reference(expression: Expression) -> bool:
    """Return whether an expression is one reference that does not depend on an item of `_each`."""
    return len(list(expression.operands())) == 1 and not expression.uses_item


def _read_imports(call: Call) -> None:
    imports = call.raw.get("_imports", [])
    if not isinstance(imports, list):
        call.problems.append("_imports: expected an array of references")
        return

    for number, item in enumerate(imports):
        if not isinstance(item, str):
            call.problems.append(f"_imports.{number}: expected a reference")
            continue

        before = len(call.reads)
        # "input" is short for †input.
        _scan(call, item if item.startswith("†") else f"†{item}", f"_imports.{number}")
        expressions = [read.expression for read in call.reads[before:]]
        if not all(map(_is_single_reference, expressions)):
            call.problems.append(
                f"_imports.{number}: expected one reference, without || and && and †item"
            )

        call.imports += tuple(expressions)


def _read_name(call: Call) -> None:
    raw = call.raw
    name = raw.get("_tool")
    if isinstance(name, str) and name:
        call.name = name
        return

    problem = f"found {show(name)}" if "_tool" in raw else "missing"
    near = next((key for key in raw if meant_meta(key) == "_tool"), None)
    hint = "" if near is None else f"; write '_tool' instead of {quoted(near)}"
    call.problems.append(f"_tool: {problem}, expected the name of a tool{hint}")


def _read_tool(call: Call, catalogue: Catalogue, *, briefly: bool) -> None:
    module = _text_member(call, "_module")
    call.activity = _text_member(call, "_activity")
    try:
        tool = call.tool = catalogue.find(call.name, module, briefly=briefly)
    except UnknownToolError as error:
        call.problems.append(str(error))
        return

    if call.changed is not None:
        # Use the name by which the call's author knows the tool in errors and summaries.
        call.name = call.changed.name
    elif call.name != tool.remote_name:
        # The call names its tool in the form `module.tool`.
        call.name = tool.name

    if call.activity not in (None, tool.name, tool.activity) and tool.module is None:
        # The hints of the call's own tool say nothing about other code.
        call.code = catalogue.get((None, str(call.activity))) or Tool(str(call.activity))

    latent = tool.key in catalogue.latent and call.activity is None
    in_clean_room = tool.clean or module == ANONYMOUS
    call.clean = in_clean_room and not latent and tool.module is None
    if call.activity is not None and tool.activity not in (None, call.activity):
        call.problems.append(
            f"_activity: tool {quoted(call.name)} fixes it to "
            f"{quoted(str(tool.activity))}; leave it out"
        )

    if (
        latent
        and not call.has_written_result
        and not in_clean_room
        and tool.output is not None
        and "const" in tool.output
    ):
        # The tool's definition leaves only one possible result, so no mind needs to be asked for
        # it.
        call.has_written_result = True
        call.written_result = tool.output["const"]

    if call.activity is not None and tool.module is not None:
        call.problems.append(
            f"_activity: tool {quoted(call.name)} belongs to server {tool.module!r}, which runs "
            "its own code"
        )

    if tool.in_room:
        call.room = "anonymous" if tool.module == ANONYMOUS else "idea"
    elif latent and in_clean_room:
        call.room = "anonymous"
    elif latent and not call.has_written_result:
        call.room = "latent"

    if call.has_written_result and not latent:
        call.problems.append(
            f"_output: tool {quoted(call.name)} has code that produces its result; leave _output "
            "out"
        )
    elif call.has_written_result and call.room is not None:
        call.problems.append(
            "_output: a clean room writes the result; leave out _output or _module"
        )


def _reader_parameters(call: Call, parameters: JSONObject) -> JSONObject:
    """Return the parameters of a call to the reading tool, which interprets `state.log` as
    `†state.log`.
    """
    meant = meant_reference(parameters.get("reference"))
    if "reference" in parameters and not (isinstance(meant, str) and is_reference(meant)):
        value = show(parameters["reference"])
        call.problems.append(f"reference: found {value}, expected a reference such as †state.log")

    if "reference" in parameters:
        return {**parameters, "reference": meant}
    return parameters


def _check_parameters(
    call: Call, parameters: JSONObject, catalogue: Catalogue, *, briefly: bool
) -> None:
    if call.tool is None or call.problems:
        return

    faults = catalogue.names(call.tool).faults(parameters, briefly=briefly)
    call.problems.extend(faults.values())
    if faults:
        parameters = {name: value for name, value in parameters.items() if name not in faults}

    if faults and not parameters:
        return
    _check_queries(call, parameters, catalogue)
    for read in call.reads:
        if read.expression.uses_item and not call.has_each:
            call.problems.append(
                f"{read.expression.text}: †item can be read only in a call with _each"
            )

    try:
        if call.constant and not call.problems:
            catalogue.exact(call.tool).check(cast("JSON", call.parameters), briefly=briefly)
        else:
            catalogue.admitted(call.tool).check(parameters, briefly=briefly)
    except IdeabridgeError as error:
        call.problems.append(str(error))


def _check_queries(call: Call, parameters: JSONObject, catalogue: Catalogue) -> None:
    if call.tool is None:
        return

    for name in catalogue.queries(call.tool):
        text = parameters.get(name)
        if isinstance(text, str) and not is_reference(text):
            try:
                check_query(unescape(text), what=name)
            except IdeabridgeError as error:
                call.problems.append(str(error))


def read_call(
    raw: JSON, index: int, place: int, catalogue: Catalogue, *, briefly: bool = False
) -> Call:
    """Read one listed call. Faults are added to its `problems` instead of being raised.

    Args:
        raw: the call as written.
        index: the number of the call in the run.
        place: the place of the call in the run or plan.
        catalogue: the tools of the run.
        briefly: whether to omit explanations and suggestions from fault reports, because the errors
            of earlier calls already contain enough of them.
    """
    if not isinstance(raw, dict):
        call = Call(index, place, {"_tool": raw})
        call.problems.append(
            f'found {show(raw)}, expected a call: an object such as {{"_tool": name, ...}}'
        )
        call.writes = (("results", str(place)),)
        return call

    changed = catalogue.changed(WrittenCall.of(raw))
    call = Call(index, place, catalogue.as_real(raw), changed=changed)
    if call.changed is not None:
        call.as_written = raw
        raw = call.raw

    _read_name(call)
    call.instance = _text_member(call, "_instance") or ""
    call.id = _text_member(call, "_id")
    call.has_each = "_each" in raw
    call.has_written_result = "_output" in raw
    parameters: JSONObject = {key: value for key, value in raw.items() if key not in _META}
    if call.name in NAMES and is_reader(catalogue.look_up(WrittenCall.of(raw))):
        parameters = _reader_parameters(call, parameters)

    call.parameters = _scan(call, parameters, "")
    call.constant = not call.reads
    if call.has_each:
        each = raw["_each"]
        if not isinstance(each, list) and not (isinstance(each, str) and each.startswith("†")):
            call.problems.append("_each: expected a reference to an array, or an array")

        before = len(call.reads)
        call.each = _scan(call, each, "_each")
        if any(read.expression.uses_item for read in call.reads[before:]):
            call.problems.append("_each: †item is an item of _each, so _each itself cannot read it")

    if call.has_written_result:
        call.written_result = _scan(call, raw["_output"], "_output")

    _read_imports(call)
    _read_after(call)
    _read_target(call)
    if call.name:
        _read_tool(call, catalogue, briefly=briefly)
    _check_parameters(call, parameters, catalogue, briefly=briefly)
    if call.problems and call.tool is not None and "_module" not in raw:
        call.problems[-1] += catalogue.beside(call.tool)

    return call


# -- instances of a plan ---------------------------------------------------------------------------


def spread(calls: Sequence[JSON], instances: Sequence[str]) -> tuple[list[JSON], list[JSON] | None]:
    """Return the calls of a plan and their places in the plan. Calls that name no instance are
    copied for each instance.

    If there are no instances, the calls are returned unchanged and the places are None.
    """
    if not instances:
        return list(calls), None

    copies: list[JSON] = []
    places: list[JSON] = []
    for place, call in enumerate(calls):
        if isinstance(call, dict) and "_instance" not in call:
            copies.extend({**call, "_instance": instance} for instance in instances)
            places.extend([place] * len(instances))
        else:
            copies.append(call)
            places.append(place)

    return copies, places


def gathered(calls: Sequence[JSON], places: Sequence[JSON] | None) -> list[JSON]:
    """Return the calls as the plan lists them: the inverse of `spread`."""
    if places is None:
        return list(calls)

    # Several calls have the same place only if the call in the plan names no instance.
    times = Counter(str(place) for place in places)
    listed: dict[str, JSON] = {}
    for call, place in zip(calls, places, strict=True):
        if times[str(place)] > 1 and isinstance(call, dict):
            call = {key: value for key, value in call.items() if key != "_instance"}
        listed.setdefault(str(place), call)

    return list(listed.values())
