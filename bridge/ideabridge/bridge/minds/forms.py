"""Forms: the ways to ask a model for a JSON object, from the strictest to the plainest (DESIGN 5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import Final

_REMEMBERED: Final = 512


class Form(Enum):
    """How a Request asks for JSON; an endpoint that refuses one is asked in the next."""

    NATIVE = "native"
    """By the provider's own schema output (`response_format: json_schema` and its like)."""
    PROMPTED = "prompted"
    """By the prompt, in the provider's JSON mode where it has one."""
    PLAIN = "plain"
    """By the prompt alone."""


class FormMemory:
    """Which form an endpoint took for a schema, so that it is not asked in vain again; kept as long as the process."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, Form] = OrderedDict()

    def taken(self, schema: str) -> Form | None:
        """The form that worked for the schema of this hash; None: none yet."""
        return self._taken.get(schema)

    def keep(self, schema: str, form: Form) -> None:
        """A form has worked."""
        self._taken[schema] = form
        self._taken.move_to_end(schema)
        if len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)


def below(forms: Sequence[Form], form: Form) -> Form | None:
    """The next form to try after one that was refused; None: it was the last."""
    place = forms.index(form) + 1
    return forms[place] if place < len(forms) else None
