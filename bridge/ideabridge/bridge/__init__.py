"""The client bridge: contexts, ideas, minds, modules, the loop and replay.

    from ideabridge.bridge import Bridge, Configuration, ModelConfiguration

Every public name is imported from here, or from `ideabridge.tools`; the bridge for scripts is `ideabridge.bridge.sync`.
Names are imported when they are first used: importing one small part does not load the MCP SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge
    from ideabridge.bridge.configuration import (
        ApprovalRule,
        ApprovalRules,
        Configuration,
        ConfigurationError,
        Limits,
        load_configuration,
        parse_configuration,
    )
    from ideabridge.bridge.context.errors import MessageError
    from ideabridge.bridge.context.messages import Draft, Handler, Handlers, Message
    from ideabridge.bridge.context.mind import Mind, MindError, Usage
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
    from ideabridge.bridge.lifting.asking import report_lines, report_of
    from ideabridge.bridge.lifting.draft import PlanDraft
    from ideabridge.bridge.loop.event import (
        ApprovalAsked,
        CallDecided,
        CallFinished,
        CallProposed,
        CallStarted,
        Decider,
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
    from ideabridge.bridge.minds.errors import ModelSetupError, ModelUnavailableError
    from ideabridge.bridge.minds.recorded import Recorded, recording
    from ideabridge.bridge.minds.settings import ModelConfiguration, SamplingSettings
    from ideabridge.bridge.modules.settings import ModuleConfiguration, ModuleStatus
    from ideabridge.bridge.plan import Plan, PlanLike, WaitingPlan, read_plan
    from ideabridge.bridge.runs.people import ApprovalRequest, Approver, Decision, DecisionName
    from ideabridge.bridge.runs.replay import Replay
    from ideabridge.bridge.runs.run import Run, RunStatus
    from ideabridge.bridge.runs.runs import RunSummary
    from ideabridge.bridge.runs.session import Session
    from ideabridge.bridge.store.errors import (
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
    from ideabridge.bridge.store.idea import Answer, Idea, IdeaMeta, Publication
    from ideabridge.bridge.store.ideas import IdeaFilter
    from ideabridge.bridge.store.sqlite import sqlite3
    from ideabridge.bridge.store.store import Store
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
    "PlanDraft",
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
    "bridge": ("Bridge",),
    "configuration": (
        "ApprovalRule",
        "ApprovalRules",
        "Configuration",
        "ConfigurationError",
        "Limits",
        "load_configuration",
        "parse_configuration",
    ),
    "context.errors": ("MessageError",),
    "context.messages": (
        "Draft",
        "Handler",
        "Handlers",
        "Message",
    ),
    "context.mind": (
        "Mind",
        "MindError",
        "Usage",
    ),
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
        "NameInUseError",
        "NoAlternativeError",
        "OutputTypeError",
        "PlanError",
        "PublicationError",
        "RejectedSolutionError",
        "RunFailedError",
        "SecretGivenError",
        "SettledTurnError",
        "UnknownOutcomeError",
        "UnknownPathError",
        "UnwrittenRunError",
    ),
    "lifting.asking": (
        "report_lines",
        "report_of",
    ),
    "lifting.draft": ("PlanDraft",),
    "loop.event": (
        "ApprovalAsked",
        "CallDecided",
        "CallFinished",
        "CallProposed",
        "CallStarted",
        "Decider",
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
    "minds.errors": (
        "ModelSetupError",
        "ModelUnavailableError",
    ),
    "minds.recorded": (
        "Recorded",
        "recording",
    ),
    "minds.settings": (
        "ModelConfiguration",
        "SamplingSettings",
    ),
    "modules.settings": (
        "ModuleConfiguration",
        "ModuleStatus",
    ),
    "plan": (
        "Plan",
        "PlanLike",
        "WaitingPlan",
        "read_plan",
    ),
    "runs.people": (
        "ApprovalRequest",
        "Approver",
        "Decision",
        "DecisionName",
    ),
    "runs.replay": ("Replay",),
    "runs.run": (
        "Run",
        "RunStatus",
    ),
    "runs.runs": ("RunSummary",),
    "runs.session": ("Session",),
    "store.errors": (
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
    "store.ideas": ("IdeaFilter",),
    "store.idea": (
        "Answer",
        "Idea",
        "IdeaMeta",
        "Publication",
    ),
    "store.sqlite": ("sqlite3",),
    "store.store": ("Store",),
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
