"""The client bridge: contexts, ideas, minds, modules, the loop and replay (DESIGN 3).

    from ideabridge.bridge import Bridge, read_plan

Names are imported when they are first used: importing one small part does not load the MCP SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ideabridge.bridge.approver import ApprovalRequest, Decision
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import Configuration, Limits, load_configuration
    from ideabridge.bridge.context.handlers import Draft, Handlers
    from ideabridge.bridge.context.message import Message
    from ideabridge.bridge.errors import (
        CallDeniedError,
        CallError,
        CallFailedError,
        CancelledCallsError,
        GroupFailedError,
        NoAlternativeError,
        OutputTypeError,
        PlanError,
        PublicationError,
        RejectedSolutionError,
        RunFailedError,
        UnknownOutcomeError,
        UnknownRunError,
    )
    from ideabridge.bridge.ideas.idea import Idea
    from ideabridge.bridge.ideas.store import Store
    from ideabridge.bridge.minds.recorded import Recorded
    from ideabridge.bridge.plan import Plan, read_plan
    from ideabridge.bridge.replay.replay import Replay
    from ideabridge.bridge.run import Run
    from ideabridge.bridge.session import Session

_WHERE = {
    "ApprovalRequest": "approver",
    "Bridge": "bridge",
    "Configuration": "configuration",
    "Decision": "approver",
    "Draft": "context.handlers",
    "Handlers": "context.handlers",
    "Idea": "ideas.idea",
    "Limits": "configuration",
    "Message": "context.message",
    "CallDeniedError": "errors",
    "CallError": "errors",
    "CallFailedError": "errors",
    "CancelledCallsError": "errors",
    "GroupFailedError": "errors",
    "NoAlternativeError": "errors",
    "UnknownOutcomeError": "errors",
    "OutputTypeError": "errors",
    "Plan": "plan",
    "PlanError": "errors",
    "PublicationError": "errors",
    "Recorded": "minds.recorded",
    "RejectedSolutionError": "errors",
    "Replay": "replay.replay",
    "Run": "run",
    "RunFailedError": "errors",
    "Session": "session",
    "Store": "ideas.store",
    "UnknownRunError": "errors",
    "load_configuration": "configuration",
    "read_plan": "plan",
}

__all__ = [
    "ApprovalRequest",
    "Bridge",
    "CallDeniedError",
    "CallError",
    "CallFailedError",
    "CancelledCallsError",
    "Configuration",
    "Decision",
    "Draft",
    "GroupFailedError",
    "Handlers",
    "Idea",
    "Limits",
    "Message",
    "NoAlternativeError",
    "OutputTypeError",
    "Plan",
    "PlanError",
    "PublicationError",
    "Recorded",
    "RejectedSolutionError",
    "Replay",
    "Run",
    "RunFailedError",
    "Session",
    "Store",
    "UnknownOutcomeError",
    "UnknownRunError",
    "load_configuration",
    "read_plan",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{where}"), name)
