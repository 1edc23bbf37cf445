"""Check values against a JSON Schema, and explain why a value does not satisfy it.

Schemas and values come from outside, so the work in every step is limited. A schema is rejected if
it is too large or too deep, or if its references multiply. If the weight of the schema times the
size of the value in bytes exceeds `HERE_WORK`, the check runs in a worker process, which is killed
at a deadline. Costly explanations are also computed in the worker process. A caller that cannot
await blocks while the worker is running, but only for as long as the budget of `Blocking` allows.
`inline_refs` replaces references with their targets for hosts that do not support references.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NoReturn, cast

import jsonschema_rs

from ideabridge.tools.encoding import JSON, MAX_BYTES, JSONObject, encode, normalise
from ideabridge.tools.errors import (
    InvalidJSONError,
    LimitExceededError,
    SchemaError,
    ValueMismatchError,
)
from ideabridge.tools.json_parts import values_in
from ideabridge.tools.keywords import (
    ANNOTATIONS,
    DEFINITIONS,
    MAX_SCHEMA_DEPTH,
    PATTERNS,
    REFERRING,
    Place,
    Problem,
    add_to_all_of,
    check_size,
    children,
    json_schema_draft,
    loosen,
    map_children,
    references_in,
    resolve,
    schemas_in,
    show,
    show_path,
)
from ideabridge.tools.worker import WorkerError, workers

MAX_INLINED: Final = 20_000
"""Maximum number of schemas in an inlined schema. Any further reference becomes a schema that
accepts anything.
"""

_RECURSION: Final = "as above (recursive)"
_NAMES: Final = frozenset({"$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})


def inline_refs(schema: JSONObject) -> JSONObject:
    """Return a schema without references that accepts every value that `schema` accepts.

    A local reference (`#/a/b`, or `#name` of an `$anchor`) is replaced with its target, and the
    keywords next to it are kept. The second occurrence of a recursive reference becomes a schema
    that accepts anything, as does a reference that is dynamic or not local. Definitions and schema
    names are omitted.

    Raises:
        LimitExceededError: the schema is nested too deeply.
    """
    has_definitions = any(
        isinstance(part, dict) and part.keys() & DEFINITIONS for part in values_in(schema)
    )
    if not has_definitions and next(references_in(schema), None) is None:
        return schema

    try:
        result = _Inliner(schema).write(schema, ())
    except RecursionError:
        raise LimitExceededError(
            "the schema is nested too deeply for its references to be inlined"
        ) from None

    assert isinstance(result, dict)
    return result


def _anchors(root: JSONObject) -> dict[str, JSONObject]:
    """Return the schemas with an anchor, keyed by reference. Duplicate anchors are omitted."""
    named = [
        (f"#{name}", schema)
        for _, schema in schemas_in(root)
        for keyword in ("$anchor", "$dynamicAnchor")
        if isinstance(name := schema.get(keyword), str)
    ]
    times = Counter(name for name, _ in named)
    return {name: schema for name, schema in named if times[name] == 1}


class _Inliner:
    """One pass of `inline_refs`.

    Attributes:
        count: the number of schemas written so far.
        cuts: the number of references replaced with a schema that accepts anything.
        embedded: the number of enclosing schemas with an `$id`. If there are any, `#` refers to the
            innermost one.
    """

    def __init__(self, root: JSONObject) -> None:
        self.root = root
        self.anchors = _anchors(root)
        self.count = 0
        self.cuts = 0
        self.embedded = 0

    def write(self, schema: JSON, targets: tuple[int, ...]) -> JSON:
        """Return a copy of `schema` without references. `targets` contains the referenced schemas
        that enclose `schema`.
        """
        if not isinstance(schema, dict):
            return schema
        self.count += 1
        is_embedded = isinstance(schema.get("$id"), str) and schema is not self.root
        self.embedded += is_embedded
        pointer = schema.get("$ref")
        target: JSONObject | bool | None = None
        if isinstance(pointer, str) and not self.embedded:
            target = self.anchors.get(pointer) or resolve(self.root, pointer)

        if target is None:
            written = self._write_parts(schema, targets)
        else:
            written = self._replace(schema, target, targets)

        self.embedded -= is_embedded
        return written

    def _write_parts(self, schema: JSONObject, targets: tuple[int, ...]) -> JSONObject:
        result: JSONObject = {}
        loose: list[str] = []
        write = partial(self.write, targets=targets)
        for keyword, value in schema.items():
            if keyword in DEFINITIONS or keyword in _NAMES:
                continue
            before = self.cuts
            if keyword in REFERRING and isinstance(value, str):
                self.cuts += 1
            elif isinstance(value, dict | list):
                result.update(map_children({keyword: value}, write))
            else:
                result[keyword] = value

            if self.cuts > before:
                loose.append(keyword)

        for keyword in loose:
            loosen(result, keyword)

        return result

    def _replace(
        self, schema: JSONObject, target: JSONObject | bool, targets: tuple[int, ...]
    ) -> JSON:
        before = self.cuts
        written: JSON = target
        if isinstance(target, dict):
            is_recursive = id(target) in targets
            if is_recursive or self.count > MAX_INLINED:
                self.cuts += 1
                written = {"description": _RECURSION} if is_recursive else {}
            else:
                written = self.write(target, (*targets, id(target)))

        is_cut = self.cuts > before
        beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
        if not beside.keys() - DEFINITIONS:
            return written

        rest = self._write_parts(beside, targets)
        if is_cut:
            loosen(rest, "$ref")

        if isinstance(written, dict) and not rest.keys() - ANNOTATIONS:
            # Annotations beside a reference describe this particular use of the definition, so they
            # take precedence over those of the definition.
            return {**written, **rest}

        add_to_all_of(rest, written)
        return rest


# -- checking values -------------------------------------------------------------------------------

MAX_EXPANSION: Final = 5_000_000
"""Maximum number of schemas once references are replaced with their targets. `$ref`s to `$ref`s can
multiply.
"""

MAX_CHAIN: Final = 500
"""Maximum number of schemas in a chain of nested and referenced schemas. Validators follow such a
chain recursively.
"""

HERE_WORK: Final = 200_000_000
"""Limit on the weight of a schema times the size of a value in bytes, for a check in this process.
Such a check takes at most 0.5 s, and usually a twentieth of that. Larger checks run in a worker.
"""

SECONDS_BLOCKED: Final = 1.0
"""Maximum time, in seconds, for a check in a worker if the caller cannot await."""

BLOCKED_IN_SUM: Final = 2.0
"""Maximum total time, in seconds, that such checks and explanations can block. A plan can require
10,000 of them.
"""

BLOCKED_SHARE: Final = 0.05
"""The number of seconds by which the budget for blocking grows per second."""

_EXPLAINED_HERE: Final = 5_000
"""Limit on the steps of a schema times the parts of a value, for an explanation in this process.
jsonschema takes about 20 us for each part and keyword.
"""

_EXPLAINED_BYTES: Final = 256 * 1024
"""Maximum size, in bytes, of a value that is explained in this process, because jsonschema writes
each wrong value into a message.
"""

_EXPLAINED_SECONDS: Final = 2.0
_EXPLAINED_BLOCKED: Final = 0.3
_LEAST_BLOCKED: Final = 0.05
_PATTERNS_SECONDS: Final = 0.25
_PLAIN_CHARACTERS: Final = 2_000
_ENDLESS: Final = 10**12
_EXPLAINED: Final = 5
_EXPLAINED_NODES: Final = 20_000
_SAMPLED_ITEMS: Final = 50
_CACHED_SCHEMAS: Final = 1024

_PASSED_ON: Final = 100
_LIGHT: Final = HERE_WORK // (2 * MAX_BYTES)
"""The weight up to which a schema is cheap to check for every value within the limits."""

_ONE_APPLIES: Final = ("properties", "prefixItems")
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})

_NUMBER: Final = 250
"""Weight of a keyword that compares numbers, and of each number in `enum` and `const`.
jsonschema-rs compares fractions and numbers beyond 64 bits digit by digit, in up to 0.3 us per
byte.
"""

_FRACTION: Final = 5_000
"""Weight of a `multipleOf` that is not an integer. jsonschema-rs divides exactly, with up to 600
digits, which takes 4 us per byte.
"""

_READ: Final = 15
"""Weight of `contentMediaType`: in older drafts the string is parsed as JSON."""

_DIFFERING: Final = 10_000
"""Weight of `uniqueItems`. Integers that are equal as floats are compared in pairs, which takes
0.25 s for 25 KB of them.
"""

_LISTS_OF_NAMES: Final = ("properties", "required", "dependentRequired", "dependencies")
_GOES_BACK: Final = re.compile(r"\(\?(?!:)|\\[1-9k]")
_WORD_ENDS: Final = re.compile(r"\\[bB]")
_REPEATED: Final = re.compile(r"\{(?:\d*,)?(\d{1,6})\}")

_DRAFTS: Final[dict[str, type[jsonschema_rs.Validator]]] = {
    "json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
}


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled schema, and the cost of checking a value against it.

    Attributes:
        valid: the jsonschema-rs validator.
        weight: the cost of a check per byte of the value, in steps of about 1 ns; see `_weigh`.
        steps: the largest number of keywords that an explanation applies to any part of a value.
        is_recursive: whether the schema refers to itself. Each level can then double the steps of
            an explanation.
    """

    valid: jsonschema_rs.Validator
    weight: int
    steps: int
    is_recursive: bool


_compiled: OrderedDict[str, _Compiled] = OrderedDict()
_lock = threading.Lock()


class Blocking:
    """The thread-safe budget for checks that block, in seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left = BLOCKED_IN_SUM
        self._then = clock()

    def left(self) -> float:
        """Return the remaining number of seconds."""
        with self._lock:
            now = self._clock()
            self._left = min(BLOCKED_IN_SUM, self._left + (now - self._then) * BLOCKED_SHARE)
            self._then = now
            return self._left

    def wait(self, job: str, argument: JSON, *, what: str, seconds: float) -> JSON:
        """Call `workers.wait` for at most the remaining seconds.

        In addition, raises LimitExceededError if no time is left.
        """
        seconds = min(seconds, self.left())
        if seconds < _LEAST_BLOCKED:
            raise LimitExceededError(
                f"{what} was not checked, because slow checks have already blocked this process "
                f"for {BLOCKED_IN_SUM:g} s; try again later, or pass such values by reference"
            )

        begun = self._clock()
        try:
            return workers.wait(job, argument, what=what, seconds=seconds)
        finally:
            with self._lock:
                self._left -= self._clock() - begun


blocking: Final = Blocking()
"""The budget of this process. The whole event loop waits during such a check."""


class Validator:
    """Checks values against a JSON Schema.

    The draft is 2020-12 unless `$schema` names an older one. Formats are annotations, not
    assertions. Nothing is fetched: a `$ref` must point into the schema itself or to a published
    meta-schema. Patterns are matched in linear time or with limited backtracking. The schema is
    compiled on first use, once for all Validators with the same content.

    Args:
        schema: the schema. It is not copied, so do not modify it afterwards.
        what: what to call the values in error messages ("parameters of git_log").
    """

    __slots__ = ("_compiled", "schema", "what")

    def __init__(self, schema: JSONObject, *, what: str) -> None:
        self.schema = schema
        self.what = what
        self._compiled: _Compiled | None = None

    def compile(self) -> None:
        """Compile the schema.

        Raises:
            SchemaError: the schema is invalid or refers to something outside it; the message says
                where.
            LimitExceededError: the schema is too large or too deeply nested.
        """
        self._compiled = _compile(self.schema, self.what)

    @property
    def _own(self) -> _Compiled:
        if self._compiled is None:
            self._compiled = _compile(self.schema, self.what)
        return self._compiled

    def is_costly(self, value: JSON) -> bool:
        """Return whether checking the value might exceed `HERE_WORK`. Raises the same errors as
        `compile`.
        """
        weight = self._own.weight
        # Check the weight first: most schemas are so light that the size of the value does not
        # matter.
        return weight > _LIGHT and weight * _size(value) > HERE_WORK

    def is_valid(self, value: JSON) -> bool:
        """Return whether the value is JSON and satisfies the schema. A costly check blocks for up
        to a second.

        Raises the same errors as `compile`, and LimitExceededError if the check takes longer.
        """
        if self.is_costly(value):
            return self._valid_apart(value)
        try:
            return self._own.valid.is_valid(value)
        except ValueError:
            return False

    def check_unless_costly(self, value: JSON, *, briefly: bool = False) -> bool:
        """Check a value as `check` does, with the same errors, and return True. If the check would
        be costly, do nothing and return False.
        """
        if self.is_costly(value):
            return False

        try:
            is_valid = self._own.valid.is_valid(value)
        except ValueError:
            is_valid = False

        if not is_valid:
            self.refuse(value, briefly=briefly)
        return True

    def check(self, value: JSON, *, briefly: bool = False) -> None:
        """Check that the value satisfies the schema.

        A costly check blocks for up to a second. If `briefly` is set, the error omits the reasons
        for a mismatch, because finding them takes far longer than checking the value.

        Raises:
            ValueMismatchError: the value does not satisfy the schema; the message lists the first
                problems as "path: found X, expected Y".
            InvalidJSONError: the value is not JSON.
            SchemaError, LimitExceededError: as for `compile`, or because the value is nested too
                deeply or the check takes longer than a second.
        """
        if not self.is_valid(value):
            self.refuse(value, briefly=briefly)

    def refuse(self, value: JSON, *, briefly: bool = False) -> NoReturn:
        """Raise the error that `check` raises for a value that does not satisfy the schema."""
        if briefly:
            raise self._mismatch([Problem(show(value), "a value that fits the schema")])
        raise self._mismatch(self._why(normalise(value, what=self.what)))

    async def check_apart(self, value: JSON) -> None:
        """Check a value as `check` does, but without blocking: a costly check runs in a worker for
        up to `worker.MOST_SECONDS`.

        Raises the same errors as `check`, and WorkerError if no worker can check the value.
        """
        if not self.is_costly(value):
            if self.is_valid(value):
                return
            value = normalise(value, what=self.what)
            if self._explains_here(value):
                raise self._mismatch(_explained(self._own, self.schema, value))
        elif await workers.run("valid", [self.schema, value], what=self._work(value)):
            return

        try:
            answer = await workers.run(
                "problems", [self.schema, value], what=self._work(value), seconds=_EXPLAINED_SECONDS
            )
        except (LimitExceededError, WorkerError):
            raise self._mismatch([_unexplained(value)]) from None

        raise self._mismatch(_read(answer))

    def _mismatch(self, problems: list[Problem]) -> ValueMismatchError:
        first = "; ".join(problem.message for problem in problems[:_EXPLAINED])
        if len(problems) > _EXPLAINED:
            more = f"; and {len(problems) - _EXPLAINED} more"
        else:
            more = ""
        return ValueMismatchError(f"{self.what}: {first}{more}")

    def problems(self, value: JSON) -> list[Problem]:
        """Return why the value does not satisfy the schema, or [] if it does. This blocks and
        raises errors like `check`.
        """
        value = normalise(value, what=self.what)
        return [] if self.is_valid(value) else self._why(value)

    def _why(self, value: JSON) -> list[Problem]:
        if self._explains_here(value):
            return _explained(self._own, self.schema, value)
        argument: list[JSON] = [self.schema, value]
        try:
            return _read(
                blocking.wait(
                    "problems", argument, what=self._work(value), seconds=_EXPLAINED_BLOCKED
                )
            )
        except (LimitExceededError, WorkerError):
            return [_unexplained(value)]

    def _valid_apart(self, value: JSON) -> bool:
        try:
            argument = normalise([self.schema, value], max_depth=2 * MAX_SCHEMA_DEPTH)
        except InvalidJSONError:
            return False
        return (
            blocking.wait("valid", argument, what=self._work(value), seconds=SECONDS_BLOCKED)
            is True
        )

    def _explains_here(self, value: JSON) -> bool:
        most = _EXPLAINED_HERE // self._own.steps
        return (
            not self._own.is_recursive
            and _nodes(value, most + 1) <= most
            and _size(value) <= _EXPLAINED_BYTES
        )

    def _work(self, value: JSON) -> str:
        return (
            f"{self.what}: checking {_size(value):,} bytes against a schema "
            f"of {_size(self.schema):,}"
        )


def _explained(compiled: _Compiled, schema: JSONObject, value: JSON) -> list[Problem]:
    """Return why a value does not satisfy a schema, without a time limit."""
    # Import this only when it is needed, because it also imports jsonschema, which takes 0.1 s.
    from ideabridge.tools.explain import explain_mismatch

    if _nodes(value, _EXPLAINED_NODES) < _EXPLAINED_NODES:
        return explain_mismatch(compiled.valid, schema, value)

    # Explain only a sample of a large value, because explaining a million items that each fail
    # would take 16 s.
    cut: list[Place] = []
    sample = _sample(value, (), cut)
    if _nodes(sample, _EXPLAINED_NODES) < _EXPLAINED_NODES and not compiled.valid.is_valid(sample):
        # Leave out problems in a shortened array and above it, because the shortening itself might
        # have caused them.
        problems = explain_mismatch(compiled.valid, schema, sample)
        whole = [p for p in problems if not any(place[: len(p.place)] == p.place for place in cut)]
        if whole:
            return whole

    return [_unexplained(value)]


def valid_here(schema: JSONObject, value: JSON) -> bool:
    """Return whether a value satisfies a schema. This function runs in a worker process."""
    return _compile_again(schema).valid.is_valid(value)


def problems_here(schema: JSONObject, value: JSON) -> JSON:
    """Return the first problems with a value, and null for each further problem. This function runs
    in a worker process.
    """
    problems = _explained(_compile_again(schema), schema, value)
    first: list[JSON] = [
        [problem.found, problem.expected, list(problem.place), problem.hint]
        for problem in problems[:_PASSED_ON]
    ]
    return [*first, *([None] * (len(problems) - len(first)))]


def _compile_again(schema: JSONObject) -> _Compiled:
    """Compile, in a worker process, a schema that the parent process has already compiled.

    The parent has also checked how long the patterns take; a worker on a busy processor might
    decide differently. The time limit of the job includes the compilation.
    """
    return _compile(schema, "the schema", has_checked_patterns=True)


def _read(answer: JSON) -> list[Problem]:
    """Return the problems in a result of `problems_here`, with an empty problem for each null."""
    problems: list[Problem] = []
    for entry in cast("list[Any]", answer):
        if entry is None:
            problems.append(Problem("", ""))
            continue

        found, expected, place, hint = entry
        problems.append(Problem(found, expected, tuple(place), hint))

    return problems


def _unexplained(value: JSON) -> Problem:
    return Problem(
        show(value), "a value that fits the schema (too large to find the exact problem)"
    )


def _size(value: JSON) -> int:
    """Return the size of the value in bytes of JSON, or 1 if it is not JSON."""
    try:
        return len(encode(value))
    except InvalidJSONError:
        return 1


def check_schema(schema: JSONObject, *, what: str) -> None:
    """Check that a schema is valid and within the limits. Raises the same errors as
    `Validator.compile`.
    """
    Validator(schema, what=what).compile()


def _nodes(value: JSON, limit: int) -> int:
    """Return the number of values in `value`, counting up to `limit`."""
    return sum(1 for _ in islice(values_in(value), limit))


def _sample(value: JSON, place: Place, cut: list[Place]) -> JSON:
    """Return a copy of `value` with shortened arrays, and add their paths to `cut`."""
    if isinstance(value, list):
        if len(value) > _SAMPLED_ITEMS:
            cut.append(place)
        return [
            _sample(item, (*place, index), cut) for index, item in enumerate(value[:_SAMPLED_ITEMS])
        ]

    if isinstance(value, dict):
        return {key: _sample(item, (*place, key), cut) for key, item in value.items()}
    return value


def _compile(schema: JSONObject, what: str, *, has_checked_patterns: bool = False) -> _Compiled:
    check_size(schema, what)
    try:
        data = encode(schema)
    except InvalidJSONError as error:
        raise SchemaError(f"{what}: the schema is {error}") from None

    key = hashlib.sha256(data).hexdigest()
    with _lock:
        validator = _compiled.get(key)
        if validator is not None:
            _compiled.move_to_end(key)
            return validator

    # Look for references and patterns in the bytes first. Most schemas contain neither, so their
    # parts need not be searched.
    weight, steps, is_recursive = _weigh(schema, what, has_references=b'ef":' in data)
    factory = _DRAFTS.get(json_schema_draft(schema), jsonschema_rs.Draft202012Validator)
    if b'"pattern' in data and not has_checked_patterns:
        _check_patterns(schema, what)

    try:
        valid = factory(schema, validate_formats=False, offline=True, pattern_options=PATTERNS)
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(f"{what}: the schema is invalid: {_why_invalid(error, schema)}") from None
    except ValueError as error:
        raise SchemaError(f"{what}: the schema cannot be read: {error}") from None
    except BaseException as error:
        # jsonschema-rs panics on some invalid schemas. The panic's class is not public and does not
        # derive from Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise SchemaError(f"{what}: the schema cannot be compiled: {error}") from None

    compiled = _Compiled(valid, weight, steps, is_recursive)
    with _lock:
        _compiled[key] = compiled
        if len(_compiled) > _CACHED_SCHEMAS:
            _compiled.popitem(last=False)

    return compiled


def _check_patterns(schema: JSONObject, what: str) -> None:
    """Reject a schema whose patterns take too long to compile.

    A pattern takes up to 30 ms, and a schema can contain thousands of them.
    """
    patterns: list[str] = []
    for _, part in schemas_in(schema):
        pattern = part.get("pattern")
        named = part.get("patternProperties")
        if isinstance(pattern, str):
            patterns.append(pattern)
        if isinstance(named, dict):
            patterns.extend(named)

    distinct = dict.fromkeys(patterns)
    if sum(map(_pattern_weight, distinct)) <= _PLAIN_CHARACTERS:
        return

    # Measure this thread's CPU time, so that the load on the machine makes no difference.
    deadline = time.thread_time() + _PATTERNS_SECONDS
    for pattern in distinct:
        with suppress(ValueError):
            # Ignore an invalid pattern here: compiling the whole schema reports it with its
            # position.
            jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=PATTERNS)
        if time.thread_time() > deadline:
            raise LimitExceededError(
                f"{what}: the patterns of the schema ({len(distinct):,}) take too long to compile"
            )


def _why_invalid(error: jsonschema_rs.ValidationError, schema: JSONObject) -> str:
    if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        from ideabridge.tools.explain import explain_schema

        return explain_schema(error, schema).message

    for place, keyword, target in _references(schema):
        if target.lstrip("#") in error.message:
            where = show_path((*place, keyword))
            return (
                f"{where}: found {show(target)}, expected a place in this "
                "schema (nothing is fetched)"
            )

    return f"a reference points to nothing: {error.message[:200]}"


def _references(schema: JSONObject) -> Iterator[tuple[Place, str, str]]:
    """Yield every reference as (path of the schema, keyword, target)."""
    for place, part in schemas_in(schema):
        for keyword in REFERRING:
            if isinstance(target := part.get(keyword), str):
                yield place, keyword, target


def _weigh(schema: JSONObject, what: str, *, has_references: bool) -> tuple[int, int, bool]:
    """Return the weight and the steps of a schema, and whether it is recursive.

    A schema that becomes too large or too deep when its local references are replaced with their
    targets is rejected.

    The steps are an upper bound on the number of keywords that apply to any one part of a value:
    only one of the property schemas applies to a part, but all other schemas do. The weight is the
    same sum, but each keyword is weighted by the time that jsonschema-rs takes for it.
    jsonschema-rs caches its results at references, so recursion does not multiply the weight. A
    chain of references can be longer than Python's stack, so this function does not use recursion.
    """
    sizes: dict[int, int] = {}
    weights: dict[int, int] = {}
    steps: dict[int, int] = {}
    depths: dict[int, int] = {}
    open_now: set[int] = set()
    is_recursive = False
    stack: list[tuple[JSONObject, list[tuple[str | int, JSONObject]] | None]] = [(schema, None)]
    while stack:
        item, parts = stack.pop()
        mark = id(item)
        if parts is None:
            # Recursion ends where the value ends, so a schema that contains itself counts only
            # once.
            is_recursive |= mark in open_now
            if mark in sizes or mark in open_now:
                continue
            open_now.add(mark)
            # Definitions count where they are referred to, not where they are defined.
            inside = (
                (place[0], child) for place, child in children(item) if place[0] not in DEFINITIONS
            )
            parts = [(keyword, child) for keyword, child in inside if isinstance(child, dict)]
            pointer = item.get("$ref")
            target = resolve(schema, pointer) if isinstance(pointer, str) else None
            if isinstance(target, dict):
                parts.append(("$ref", target))

            stack.append((item, parts))
            stack.extend((part, None) for _, part in parts)
        else:
            open_now.discard(mark)
            sizes[mark] = 1 + sum(sizes.get(id(part), 1) for _, part in parts)
            depths[mark] = 1 + max((depths.get(id(part), 1) for _, part in parts), default=0)
            own = _own_steps(item)
            steps[mark] = own + _sum_of_parts(parts, steps)
            weights[mark] = own + _own_extra(item) + _sum_of_parts(parts, weights)
            if depths[mark] > MAX_CHAIN:
                raise LimitExceededError(
                    f"{what}: the schema has a chain of references with more than {MAX_CHAIN} parts"
                )

            if sizes[mark] > MAX_EXPANSION:
                raise LimitExceededError(
                    f"{what}: with its references replaced by their targets, the schema has more "
                    f"than {MAX_EXPANSION:,} parts"
                )

    if has_references and any(
        not target.startswith("#/") and target != "#" for _, _, target in _references(schema)
    ):
        # Assume the highest cost, because dynamic references and references by anchor or `$id` are
        # not followed here.
        return _ENDLESS, _ENDLESS, True

    return weights[id(schema)], steps[id(schema)], is_recursive


def _sum_of_parts(parts: list[tuple[str | int, JSONObject]], sums: dict[int, int]) -> int:
    every = sum(sums.get(id(part), 1) for keyword, part in parts if keyword not in _ONE_APPLIES)
    for keyword in _ONE_APPLIES:
        every += max((sums.get(id(part), 1) for word, part in parts if word == keyword), default=0)
    return every


def _own_extra(schema: JSONObject) -> int:
    """Return the extra weight of the keywords in one schema that compare values.

    This is in addition to the one step for each keyword.
    """
    extra = 0
    for keyword, value in schema.items():
        if keyword in _BOUNDS:
            extra += _NUMBER
        elif keyword == "multipleOf":
            is_fraction = isinstance(value, float) and not value.is_integer()
            extra += _FRACTION if is_fraction else _NUMBER
        elif keyword in ("enum", "const"):
            extra += _NUMBER * sum(1 for part in values_in(value) if isinstance(part, int | float))
        elif keyword == "uniqueItems" and value is True:
            extra += _DIFFERING
        elif keyword == "contentMediaType":
            extra += _READ

    return extra


def _own_steps(schema: JSONObject) -> int:
    """Return the steps that a schema, without nested schemas, takes for one part of a value."""
    weight = 1 + len(schema)
    for keyword, value in schema.items():
        if keyword in _LISTS_OF_NAMES and isinstance(value, dict | list):
            weight += len(value)
        elif keyword in ("enum", "const"):
            weight += _nodes(value, MAX_EXPANSION)
        elif keyword == "pattern" and isinstance(value, str):
            weight += _pattern_weight(value)
        elif keyword == "patternProperties" and isinstance(value, dict):
            weight += sum(map(_pattern_weight, value))

    return weight


def _pattern_weight(pattern: str) -> int:
    """Return the number of steps that a pattern takes per character. Most patterns take linear
    time; the others backtrack up to a limit.
    """
    if _GOES_BACK.search(pattern):
        return 100_000
    # jsonschema-rs cannot use its fastest method for a pattern with word boundaries.
    weight = len(pattern)
    if _WORD_ENDS.search(pattern):
        weight *= 4
    for times in _REPEATED.findall(pattern):
        weight *= max(1, min(int(times), 1_000))
    return min(weight, 100_000)
