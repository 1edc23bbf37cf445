"""The client bridge: contexts, ideas, minds, modules, the loop and replay.

    from ideabridge.bridge import Bridge, Configuration, ModelConfiguration

Every public name is imported from here, or from `ideabridge.tools`; the bridge for scripts is `ideabridge.bridge.sync`.
Names are imported when they are first used: importing one small part does not load the MCP SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ideabridge.bridge.approval_rules import ApprovalRule, ApprovalRules
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import (
        Configuration,
        ConfigurationError,
        Limits,
        load_configuration,
        parse_configuration,
    )
    from ideabridge.bridge.context.errors import MessageError
    from ideabridge.bridge.context.handlers import Draft, Handler, Handlers
    from ideabridge.bridge.context.message import Message
    from ideabridge.bridge.context.request import Request
    from ideabridge.bridge.errors import (
        CallDeniedError,
        CallError,
        CallFailedError,
        CancelledCallsError,
        DecisionError,
        FinishedRunError,
        ForkError,
        GroupFailedError,
        InterruptedRunError,
        MindUnavailableError,
        NameInUseError,
        NoAlternativeError,
        OutputTypeError,
        PlanError,
        PublicationError,
        RejectedSolutionError,
        RunFailedError,
        SecretGivenError,
        SettledTurnError,
        UnknownOutcomeError,
        UnknownPathError,
        UnwrittenRunError,
    )
    from ideabridge.bridge.ideas.errors import (
        SecretInIdeaError,
        StaleDriverError,
        StoreBusyError,
        StoreError,
        StoreGoneError,
        TamperedIdeaError,
        UnknownIdeaError,
        UnknownPublicationError,
        UnknownRunError,
    )
    from ideabridge.bridge.ideas.filters import IdeaFilter
    from ideabridge.bridge.ideas.idea import Idea, IdeaMeta
    from ideabridge.bridge.ideas.records import Answer, Publication
    from ideabridge.bridge.ideas.sqlite import sqlite3
    from ideabridge.bridge.ideas.store import Store
    from ideabridge.bridge.loop.decider import Decider
    from ideabridge.bridge.loop.event import (
        ApprovalAsked,
        CallDecided,
        CallFinished,
        CallProposed,
        CallStarted,
        Event,
        GroupCommitted,
        MessageAdded,
        OutcomeAsked,
        OutcomeDecided,
        OutputProposed,
        PlanAsked,
        PlanDecided,
        QuestionAnswered,
        QuestionAsked,
        QuestionRefused,
        RequestMade,
        RunEnded,
        RunStarted,
        SolutionCancelled,
        SolutionClosed,
        SolutionProposed,
        SolutionRejected,
        UsageNoted,
    )
    from ideabridge.bridge.loop.question import Question
    from ideabridge.bridge.loop.settings import Planning
    from ideabridge.bridge.minds.choice import MindName
    from ideabridge.bridge.minds.endpoint_settings import ModelConfiguration
    from ideabridge.bridge.minds.errors import ModelSetupError, ModelUnavailableError
    from ideabridge.bridge.minds.mind import Mind, MindError
    from ideabridge.bridge.minds.recorded import Recorded, recording
    from ideabridge.bridge.minds.sampling_settings import SamplingSettings
    from ideabridge.bridge.minds.usage import Usage
    from ideabridge.bridge.modules.settings import ModuleConfiguration
    from ideabridge.bridge.modules.status import ModuleStatus
    from ideabridge.bridge.people import ApprovalRequest, Approver, Decision, DecisionName
    from ideabridge.bridge.plan import Plan, PlanLike, WaitingPlan, read_plan
    from ideabridge.bridge.replay.decide import Decided
    from ideabridge.bridge.replay.replay import Replay
    from ideabridge.bridge.replay.report import report_lines, report_of
    from ideabridge.bridge.run import Run, RunStatus
    from ideabridge.bridge.runs import RunSummary
    from ideabridge.bridge.session import Session
    from ideabridge.bridge.trust import TrustError, trust_file

__all__ = [
    "Answer",
    "ApprovalAsked",
    "ApprovalRequest",
    "ApprovalRule",
    "ApprovalRules",
    "Approver",
    "Bridge",
    "CallDecided",
    "CallDeniedError",
    "CallError",
    "CallFailedError",
    "CallFinished",
    "CallProposed",
    "CallStarted",
    "CancelledCallsError",
    "Configuration",
    "ConfigurationError",
    "Decided",
    "Decider",
    "Decision",
    "DecisionError",
    "DecisionName",
    "Draft",
    "Event",
    "FinishedRunError",
    "ForkError",
    "GroupCommitted",
    "GroupFailedError",
    "Handler",
    "Handlers",
    "Idea",
    "IdeaFilter",
    "IdeaMeta",
    "InterruptedRunError",
    "Limits",
    "Message",
    "MessageAdded",
    "MessageError",
    "Mind",
    "MindError",
    "MindName",
    "MindUnavailableError",
    "ModelConfiguration",
    "ModelSetupError",
    "ModelUnavailableError",
    "ModuleConfiguration",
    "ModuleStatus",
    "NameInUseError",
    "NoAlternativeError",
    "OutcomeAsked",
    "OutcomeDecided",
    "OutputProposed",
    "OutputTypeError",
    "Plan",
    "PlanAsked",
    "PlanDecided",
    "PlanError",
    "PlanLike",
    "Planning",
    "Publication",
    "PublicationError",
    "Question",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionRefused",
    "Recorded",
    "RejectedSolutionError",
    "Replay",
    "Request",
    "RequestMade",
    "Run",
    "RunEnded",
    "RunFailedError",
    "RunStarted",
    "RunStatus",
    "RunSummary",
    "SamplingSettings",
    "SecretGivenError",
    "SecretInIdeaError",
    "Session",
    "SettledTurnError",
    "SolutionCancelled",
    "SolutionClosed",
    "SolutionProposed",
    "SolutionRejected",
    "StaleDriverError",
    "Store",
    "StoreBusyError",
    "StoreError",
    "StoreGoneError",
    "TamperedIdeaError",
    "TrustError",
    "UnknownIdeaError",
    "UnknownOutcomeError",
    "UnknownPathError",
    "UnknownPublicationError",
    "UnknownRunError",
    "UnwrittenRunError",
    "Usage",
    "UsageNoted",
    "WaitingPlan",
    "load_configuration",
    "parse_configuration",
    "read_plan",
    "recording",
    "report_lines",
    "report_of",
    "sqlite3",
    "trust_file",
]

_HOMES: Final = {
    "approval_rules": (
        "ApprovalRule",
        "ApprovalRules",
    ),
    "bridge": ("Bridge",),
    "configuration": (
        "Configuration",
        "ConfigurationError",
        "Limits",
        "load_configuration",
        "parse_configuration",
    ),
    "context.errors": ("MessageError",),
    "context.handlers": (
        "Draft",
        "Handler",
        "Handlers",
    ),
    "context.message": ("Message",),
    "context.request": ("Request",),
    "errors": (
        "CallDeniedError",
        "CallError",
        "CallFailedError",
        "CancelledCallsError",
        "DecisionError",
        "FinishedRunError",
        "ForkError",
        "GroupFailedError",
        "InterruptedRunError",
        "MindUnavailableError",
        "NoAlternativeError",
        "OutputTypeError",
        "PlanError",
        "NameInUseError",
        "PublicationError",
        "RejectedSolutionError",
        "RunFailedError",
        "SecretGivenError",
        "SettledTurnError",
        "UnknownOutcomeError",
        "UnknownPathError",
        "UnwrittenRunError",
    ),
    "ideas.errors": (
        "SecretInIdeaError",
        "StaleDriverError",
        "StoreBusyError",
        "StoreError",
        "StoreGoneError",
        "TamperedIdeaError",
        "UnknownIdeaError",
        "UnknownPublicationError",
        "UnknownRunError",
    ),
    "ideas.filters": ("IdeaFilter",),
    "ideas.idea": (
        "Idea",
        "IdeaMeta",
    ),
    "ideas.records": (
        "Answer",
        "Publication",
    ),
    "ideas.sqlite": ("sqlite3",),
    "ideas.store": ("Store",),
    "loop.decider": ("Decider",),
    "loop.event": (
        "ApprovalAsked",
        "CallDecided",
        "CallFinished",
        "CallProposed",
        "CallStarted",
        "Event",
        "GroupCommitted",
        "MessageAdded",
        "OutcomeAsked",
        "OutcomeDecided",
        "OutputProposed",
        "PlanAsked",
        "PlanDecided",
        "QuestionAnswered",
        "QuestionAsked",
        "QuestionRefused",
        "RequestMade",
        "RunEnded",
        "RunStarted",
        "SolutionCancelled",
        "SolutionClosed",
        "SolutionProposed",
        "SolutionRejected",
        "UsageNoted",
    ),
    "loop.question": ("Question",),
    "loop.settings": ("Planning",),
    "minds.choice": ("MindName",),
    "minds.endpoint_settings": ("ModelConfiguration",),
    "minds.errors": (
        "ModelSetupError",
        "ModelUnavailableError",
    ),
    "minds.mind": (
        "Mind",
        "MindError",
    ),
    "minds.recorded": (
        "Recorded",
        "recording",
    ),
    "minds.sampling_settings": ("SamplingSettings",),
    "minds.usage": ("Usage",),
    "modules.settings": ("ModuleConfiguration",),
    "modules.status": ("ModuleStatus",),
    "people": (
        "ApprovalRequest",
        "Approver",
        "Decider",
        "Decision",
        "DecisionName",
    ),
    "plan": (
        "Plan",
        "PlanLike",
        "WaitingPlan",
        "read_plan",
    ),
    "replay.decide": ("Decided",),
    "replay.replay": ("Replay",),
    "replay.report": (
        "report_lines",
        "report_of",
    ),
    "run": (
        "Run",
        "RunStatus",
    ),
    "runs": ("RunSummary",),
    "session": ("Session",),
    "trust": (
        "TrustError",
        "trust_file",
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
