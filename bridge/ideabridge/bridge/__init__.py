"""The Python API of ideabridge, which runs plans, programs and tasks over MCP servers.

    from ideabridge.bridge import Bridge, Configuration, ModelConfiguration

Import every public name from here or from `ideabridge.tools`. The bridge for scripts is
`ideabridge.bridge.sync`. Each name is loaded when it is first used, so importing only a few of them
does not load the MCP SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ideabridge.bridge.bridge import Bridge as Bridge
    from ideabridge.bridge.bridge import CallOptions as CallOptions
    from ideabridge.bridge.configuration import ApprovalRule as ApprovalRule
    from ideabridge.bridge.configuration import ApprovalRules as ApprovalRules
    from ideabridge.bridge.configuration import Configuration as Configuration
    from ideabridge.bridge.configuration import ConfigurationError as ConfigurationError
    from ideabridge.bridge.configuration import load_configuration as load_configuration
    from ideabridge.bridge.configuration import parse_configuration as parse_configuration
    from ideabridge.bridge.context.assumption import Assumption as Assumption
    from ideabridge.bridge.context.errors import HandlerError as HandlerError
    from ideabridge.bridge.context.errors import MessageError as MessageError
    from ideabridge.bridge.context.messages import Draft as Draft
    from ideabridge.bridge.context.messages import Handler as Handler
    from ideabridge.bridge.context.messages import Handlers as Handlers
    from ideabridge.bridge.context.messages import Message as Message
    from ideabridge.bridge.context.mind import Mind as Mind
    from ideabridge.bridge.context.mind import MindError as MindError
    from ideabridge.bridge.context.mind import Usage as Usage
    from ideabridge.bridge.context.request import Request as Request
    from ideabridge.bridge.errors import CallDeniedError as CallDeniedError
    from ideabridge.bridge.errors import CallError as CallError
    from ideabridge.bridge.errors import CallFailedError as CallFailedError
    from ideabridge.bridge.errors import CancelledCallsError as CancelledCallsError
    from ideabridge.bridge.errors import ConstantsOpenError as ConstantsOpenError
    from ideabridge.bridge.errors import DecisionError as DecisionError
    from ideabridge.bridge.errors import FinishedRunError as FinishedRunError
    from ideabridge.bridge.errors import ForkError as ForkError
    from ideabridge.bridge.errors import GroupFailedError as GroupFailedError
    from ideabridge.bridge.errors import InterruptedRunError as InterruptedRunError
    from ideabridge.bridge.errors import MindUnavailableError as MindUnavailableError
    from ideabridge.bridge.errors import NameInUseError as NameInUseError
    from ideabridge.bridge.errors import NeedsPersonError as NeedsPersonError
    from ideabridge.bridge.errors import NoAlternativeError as NoAlternativeError
    from ideabridge.bridge.errors import OutputTypeError as OutputTypeError
    from ideabridge.bridge.errors import PlanError as PlanError
    from ideabridge.bridge.errors import ProgramRefusedError as ProgramRefusedError
    from ideabridge.bridge.errors import PublicationError as PublicationError
    from ideabridge.bridge.errors import RejectedSolutionError as RejectedSolutionError
    from ideabridge.bridge.errors import RunFailedError as RunFailedError
    from ideabridge.bridge.errors import SecretGivenError as SecretGivenError
    from ideabridge.bridge.errors import SettledTurnError as SettledTurnError
    from ideabridge.bridge.errors import UnknownOutcomeError as UnknownOutcomeError
    from ideabridge.bridge.errors import UnknownPathError as UnknownPathError
    from ideabridge.bridge.errors import UnwrittenRunError as UnwrittenRunError
    from ideabridge.bridge.history.conversation import HistoryError as HistoryError
    from ideabridge.bridge.history.importer import HistoryImport as HistoryImport
    from ideabridge.bridge.history.report import HistoryReport as HistoryReport
    from ideabridge.bridge.history.report import HistoryRun as HistoryRun
    from ideabridge.bridge.lifting.draft import PlanDraft as PlanDraft
    from ideabridge.bridge.lifting.report import report_lines as report_lines
    from ideabridge.bridge.lifting.report import report_of as report_of
    from ideabridge.bridge.limits import Limits as Limits
    from ideabridge.bridge.loop.event import ApprovalAsked as ApprovalAsked
    from ideabridge.bridge.loop.event import CallDecided as CallDecided
    from ideabridge.bridge.loop.event import CallFinished as CallFinished
    from ideabridge.bridge.loop.event import CallProposed as CallProposed
    from ideabridge.bridge.loop.event import CallStarted as CallStarted
    from ideabridge.bridge.loop.event import ConfigurationChanged as ConfigurationChanged
    from ideabridge.bridge.loop.event import Decider as Decider
    from ideabridge.bridge.loop.event import Event as Event
    from ideabridge.bridge.loop.event import GroupCommitted as GroupCommitted
    from ideabridge.bridge.loop.event import MessageAdded as MessageAdded
    from ideabridge.bridge.loop.event import OutcomeAsked as OutcomeAsked
    from ideabridge.bridge.loop.event import OutcomeDecided as OutcomeDecided
    from ideabridge.bridge.loop.event import OutputProposed as OutputProposed
    from ideabridge.bridge.loop.event import PlanAsked as PlanAsked
    from ideabridge.bridge.loop.event import PlanDecided as PlanDecided
    from ideabridge.bridge.loop.event import QuestionAnswered as QuestionAnswered
    from ideabridge.bridge.loop.event import QuestionAsked as QuestionAsked
    from ideabridge.bridge.loop.event import QuestionRefused as QuestionRefused
    from ideabridge.bridge.loop.event import RequestMade as RequestMade
    from ideabridge.bridge.loop.event import RunEnded as RunEnded
    from ideabridge.bridge.loop.event import RunStarted as RunStarted
    from ideabridge.bridge.loop.event import SolutionCancelled as SolutionCancelled
    from ideabridge.bridge.loop.event import SolutionClosed as SolutionClosed
    from ideabridge.bridge.loop.event import SolutionProposed as SolutionProposed
    from ideabridge.bridge.loop.event import SolutionRejected as SolutionRejected
    from ideabridge.bridge.loop.event import UsageNoted as UsageNoted
    from ideabridge.bridge.loop.question import Question as Question
    from ideabridge.bridge.loop.settings import Planning as Planning
    from ideabridge.bridge.minds.choice import MindName as MindName
    from ideabridge.bridge.minds.errors import ModelSetupError as ModelSetupError
    from ideabridge.bridge.minds.errors import ModelUnavailableError as ModelUnavailableError
    from ideabridge.bridge.minds.function import MindAnswer as MindAnswer
    from ideabridge.bridge.minds.function import MindFunction as MindFunction
    from ideabridge.bridge.minds.recorded import Recorded as Recorded
    from ideabridge.bridge.minds.recorded import recording as recording
    from ideabridge.bridge.minds.settings import ModelConfiguration as ModelConfiguration
    from ideabridge.bridge.minds.settings import SamplingSettings as SamplingSettings
    from ideabridge.bridge.modules.settings import ModuleConfiguration as ModuleConfiguration
    from ideabridge.bridge.modules.settings import ModuleStatus as ModuleStatus
    from ideabridge.bridge.plan import Plan as Plan
    from ideabridge.bridge.plan import PlanLike as PlanLike
    from ideabridge.bridge.plan import WaitingPlan as WaitingPlan
    from ideabridge.bridge.plan import read_plan as read_plan
    from ideabridge.bridge.publishing.importing import SavedIdea as SavedIdea
    from ideabridge.bridge.publishing.program_answer import ProgramAnswer as ProgramAnswer
    from ideabridge.bridge.publishing.program_request import ProgramRequest as ProgramRequest
    from ideabridge.bridge.publishing.suggestions import Suggestion as Suggestion
    from ideabridge.bridge.runs.people import ApprovalRequest as ApprovalRequest
    from ideabridge.bridge.runs.people import Approver as Approver
    from ideabridge.bridge.runs.people import Decision as Decision
    from ideabridge.bridge.runs.people import DecisionName as DecisionName
    from ideabridge.bridge.runs.replay import Replay as Replay
    from ideabridge.bridge.runs.run import Run as Run
    from ideabridge.bridge.runs.run import RunStatus as RunStatus
    from ideabridge.bridge.runs.runs import ListedRun as ListedRun
    from ideabridge.bridge.runs.session import Session as Session
    from ideabridge.bridge.store.errors import IdeaDocumentError as IdeaDocumentError
    from ideabridge.bridge.store.errors import SecretInIdeaError as SecretInIdeaError
    from ideabridge.bridge.store.errors import StaleDriverError as StaleDriverError
    from ideabridge.bridge.store.errors import StoreBusyError as StoreBusyError
    from ideabridge.bridge.store.errors import StoreError as StoreError
    from ideabridge.bridge.store.errors import StoreGoneError as StoreGoneError
    from ideabridge.bridge.store.errors import TamperedIdeaError as TamperedIdeaError
    from ideabridge.bridge.store.errors import UnknownIdeaError as UnknownIdeaError
    from ideabridge.bridge.store.errors import UnknownPublicationError as UnknownPublicationError
    from ideabridge.bridge.store.errors import UnknownRunError as UnknownRunError
    from ideabridge.bridge.store.idea import Answer as Answer
    from ideabridge.bridge.store.idea import Idea as Idea
    from ideabridge.bridge.store.idea import IdeaMeta as IdeaMeta
    from ideabridge.bridge.store.idea import NewPublication as NewPublication
    from ideabridge.bridge.store.idea import Publication as Publication
    from ideabridge.bridge.store.ideas import IdeaFilter as IdeaFilter
    from ideabridge.bridge.store.portable import remake as remake
    from ideabridge.bridge.store.sqlite import sqlite3 as sqlite3
    from ideabridge.bridge.store.store import Store as Store
    from ideabridge.bridge.store.users import SEES_ALL as SEES_ALL
    from ideabridge.bridge.store.users import Viewer as Viewer
    from ideabridge.bridge.trust import TrustError as TrustError
    from ideabridge.bridge.trust import trust_file as trust_file

_HOMES: Final = {
    "bridge": ("Bridge", "CallOptions"),
    "configuration": (
        "ApprovalRule",
        "ApprovalRules",
        "Configuration",
        "ConfigurationError",
        "load_configuration",
        "parse_configuration",
    ),
    "context.assumption": ("Assumption",),
    "context.errors": ("HandlerError", "MessageError"),
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
        "ConstantsOpenError",
        "DecisionError",
        "FinishedRunError",
        "ForkError",
        "GroupFailedError",
        "InterruptedRunError",
        "MindUnavailableError",
        "NameInUseError",
        "NeedsPersonError",
        "NoAlternativeError",
        "OutputTypeError",
        "PlanError",
        "ProgramRefusedError",
        "PublicationError",
        "RejectedSolutionError",
        "RunFailedError",
        "SecretGivenError",
        "SettledTurnError",
        "UnknownOutcomeError",
        "UnknownPathError",
        "UnwrittenRunError",
    ),
    "history.conversation": ("HistoryError",),
    "history.importer": ("HistoryImport",),
    "history.report": (
        "HistoryReport",
        "HistoryRun",
    ),
    "lifting.draft": ("PlanDraft",),
    "lifting.report": (
        "report_lines",
        "report_of",
    ),
    "limits": ("Limits",),
    "loop.event": (
        "ApprovalAsked",
        "CallDecided",
        "CallFinished",
        "CallProposed",
        "CallStarted",
        "ConfigurationChanged",
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
    "minds.function": (
        "MindAnswer",
        "MindFunction",
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
    "publishing.importing": ("SavedIdea",),
    "publishing.program_answer": ("ProgramAnswer",),
    "publishing.program_request": ("ProgramRequest",),
    "publishing.suggestions": ("Suggestion",),
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
    "runs.runs": ("ListedRun",),
    "runs.session": ("Session",),
    "store.errors": (
        "IdeaDocumentError",
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
    "store.portable": ("remake",),
    "store.idea": (
        "Answer",
        "Idea",
        "IdeaMeta",
        "NewPublication",
        "Publication",
    ),
    "store.sqlite": ("sqlite3",),
    "store.store": ("Store",),
    "store.users": ("SEES_ALL", "Viewer"),
    "trust": (
        "TrustError",
        "trust_file",
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:
    # Type checkers rely on the imports above, because they cannot evaluate this list.
    __all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
