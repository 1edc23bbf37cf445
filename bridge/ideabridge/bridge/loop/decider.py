"""Decider: who decided on a question of a run, as the journal keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from ideabridge.bridge.loop.journaled import JournalError
from ideabridge.tools.encoding import JSON, JSONObject

DeciderKind: TypeAlias = Literal["person", "assistant", "approver", "nobody", "unknown"]
"""`person`: a person was shown the question and answered; `assistant`: the model of a client, with `decide_approval`;
`approver`: the code of a program that embeds ideabridge; `nobody`: a time-out, or the question lapsed; `unknown`: a
journal of an earlier version, which kept a text only.
"""

Via: TypeAlias = Literal[
    "form", "terminal", "page", "command", "tool", "code", "time-out", "fork", "bridge", "module", "text"
]
"""The way an answer came. `command`: a command line that nobody typed at a prompt, such as a script; `tool`:
`decide_approval`; `code`: an approver or `Run.decide`; `fork`: it had run before the fork; `bridge`: the process in
which the call waited has died; `module`: the module took its question back; `text`: an earlier version's journal.
"""

LOCAL_USER: Final = "local"
"""The user at this machine, who needs no name where only one person uses the server."""

_TEXTS: Final[dict[tuple[DeciderKind, Via], str]] = {
    ("person", "form"): "the person at the client",
    ("person", "terminal"): "the person at the terminal",
    ("person", "page"): "the person at the local page",
    ("person", "command"): "the command line",
    ("assistant", "tool"): "the assistant",
    ("approver", "code"): "the approver",
    ("nobody", "time-out"): "the time-out",
    ("nobody", "command"): "the command line",
    ("nobody", "fork"): "fork",
    ("nobody", "bridge"): "the bridge",
    ("nobody", "module"): "the module",
}
"""What is said of each. Journals of earlier versions hold these texts: they are read back to what they stood for."""

_BY_TEXT: Final = {text: key for key, text in reversed(_TEXTS.items()) if key != ("assistant", "tool")}


@dataclass(frozen=True, slots=True)
class Decider:
    """Who decided.

    Attributes:
        kind: who it was; see `DeciderKind`.
        via: the way the answer came; see `Via`.
        user: of a person or an assistant: the user of the server (`local`, or a name); of an approver: the name it
            uses; of an earlier journal: what it said.
    """

    kind: DeciderKind
    via: Via
    user: str | None = None

    def __str__(self) -> str:
        if self.kind == "unknown" or (self.kind == "approver" and self.user):
            return self.user or "somebody"
        text = _TEXTS.get((self.kind, self.via), f"{self.kind}, {self.via}")
        return text if self.user in (None, LOCAL_USER) else f"{text} ({self.user})"

    def to_json(self) -> JSONObject:
        """`{"kind", "via"}`, and `user` where there is one."""
        told: JSONObject = {"kind": self.kind, "via": self.via}
        if self.user is not None:
            told["user"] = self.user
        return told


def decider_of(by: str | Decider) -> Decider:
    """Who decided, where a program may name its approver by a text alone."""
    return by if isinstance(by, Decider) else Decider("approver", "code", by)


def read_decider(value: JSON) -> Decider:
    """Who decided, as a journal holds it: a text in those of earlier versions.

    Raises:
        JournalError: it is neither.
    """
    if isinstance(value, str):
        known = _BY_TEXT.get(value)
        return Decider("unknown", "text", value) if known is None else Decider(*known)
    if isinstance(value, dict):
        kind, via, user = value.get("kind"), value.get("via"), value.get("user")
        if kind in get_args(DeciderKind) and via in get_args(Via) and (user is None or isinstance(user, str)):
            held: tuple[Any, Any] = kind, via
            return Decider(cast("DeciderKind", held[0]), cast("Via", held[1]), user)
    raise JournalError(f"by: expected who decided, as {{kind, via, user?}} or a text, found {str(value)[:100]!r}")


APPROVER: Final = Decider("approver", "code")
AT_TERMINAL: Final = Decider("person", "terminal", LOCAL_USER)
BY_COMMAND: Final = Decider("person", "command", LOCAL_USER)
TIME_OUT: Final = Decider("nobody", "time-out")
FORK: Final = Decider("nobody", "fork")
NOBODY_THERE: Final = Decider("nobody", "command")
BRIDGE: Final = Decider("nobody", "bridge")
MODULE: Final = Decider("nobody", "module")
