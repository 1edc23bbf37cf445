"""Shape: the calls of an idea without their literals: what is done over and over is recognised by it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from ideabridge.bridge.context.reference import is_reference
from ideabridge.tools.encoding import JSON, JSONObject, encode
from ideabridge.tools.tool import META_PROPERTIES

_LITERAL: Final = "·"
_OF_INPUT: Final = re.compile(r"†input(?:[.\[].*)?", re.DOTALL)


def shape_of(solution: JSON) -> bytes | None:
    """The hash of a Solution's calls and output without what they were given; None where it has no calls.

    References, tools, modules, paths and keys count; texts, numbers and lists of them do not, nor does a reference to
    the input, which stands where one of them would.
    """
    calls = solution.get("calls") if isinstance(solution, dict) else None
    if not isinstance(calls, list) or not calls or not isinstance(solution, dict):
        return None
    told: JSONObject = {"calls": [_call(call) for call in calls], "output": _bare(solution.get("output"))}
    return hashlib.sha256(encode(told)).digest()[:16]


def _call(call: JSON) -> JSON:
    if not isinstance(call, dict):
        return _LITERAL
    # In one order: the same call may be written with its parameters in any.
    return {
        key: call[key] if key in META_PROPERTIES and key not in ("_each", "_output") else _bare(call[key])
        for key in sorted(call)
    }


def is_literal(value: JSON) -> bool:
    """Whether a parameter is a text, number or list without a reference in it."""
    return _bare(value, _is_no_reference) == _LITERAL


def _is_given(text: str) -> bool:
    """Whether a text is a literal, or stands for what a run is given: a reference to the input and to nothing else."""
    return _is_no_reference(text) or (_OF_INPUT.fullmatch(text) is not None and "||" not in text and "&&" not in text)


def _is_no_reference(text: str) -> bool:
    return not is_reference(text)


def _bare(value: JSON, is_left_out: Callable[[str], bool] = _is_given) -> JSON:
    if value is None:
        return None
    if isinstance(value, str):
        return _LITERAL if is_left_out(value) else value
    if isinstance(value, dict):
        return {key: _bare(value[key], is_left_out) for key in sorted(value)}
    if isinstance(value, list):
        bare = [_bare(item, is_left_out) for item in value]
        # How many literals a list has is a literal too.
        return _LITERAL if all(item == _LITERAL or item is None for item in bare) else bare
    return _LITERAL
