"""The objects that all runs of this process use."""

from __future__ import annotations

from dataclasses import dataclass, field

from anyio.abc import TaskGroup

from ideabridge.bridge.configuration import Configuration, fingerprint, start_definitions
from ideabridge.bridge.context.messages import Handlers
from ideabridge.bridge.context.mind import Mind
from ideabridge.bridge.driving.notices import Notices
from ideabridge.bridge.driving.queue import Queue
from ideabridge.bridge.loop.event import ConfigurationChanged
from ideabridge.bridge.loop.policy import strictest_of
from ideabridge.bridge.loop.request import Composer, SchemaCache
from ideabridge.bridge.loop.settings import RULES, Settings
from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.programs.names import program_schema
from ideabridge.bridge.programs.sandbox import Sandbox
from ideabridge.bridge.runs.executor import Executor
from ideabridge.bridge.runs.people import Approver
from ideabridge.bridge.screen import Screen
from ideabridge.bridge.standing_rules import StandingRules
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.writer import Writer


class InForce:
    """The parts of the configuration that runs follow, which can change while runs are in progress;
    see `Bridge.reconfigure`.

    Attributes:
        fingerprint: the fingerprint of the configuration.
        definitions: how each server of the configuration starts; see `start_definitions`.
        approval: the setting `approval` of the configuration.
        users: the limits on the runs of each user.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.follow(configuration)

    def follow(self, configuration: Configuration) -> None:
        """Switch to another configuration."""
        self.fingerprint = fingerprint(configuration)
        self.definitions = start_definitions(configuration)
        self.approval = configuration.approval_setting
        self.users = configuration.users

    def change_since(self, made_under: str, settings: Settings) -> ConfigurationChanged | None:
        """Return the event that records a change of configuration in a run's journal.

        Args:
            made_under: the fingerprint of the configuration under which the run was last driven.
            settings: the settings of the run.

        Returns:
            The event, or None if `made_under` is this configuration and the version of the rules is
            the same.
        """
        if made_under == self.fingerprint and settings.rules == RULES:
            return None
        approval = strictest_of(settings.approval, self.approval)
        return ConfigurationChanged(self.fingerprint, approval, RULES)


@dataclass(frozen=True, slots=True)
class Services:
    """The objects that all runs of this process use.

    Attributes:
        store: contains the journals.
        writer: performs the writes to the store that might have to wait.
        group: the task group in which the runs make their calls.
        notices: reports what other processes have written.
        queue: decides which runs this process drives.
        executor: makes the calls.
        sandbox: runs programs.
        offer: provides the tools for the rooms of published ideas and for edited calls in a plan.
        screen: keeps secrets out of the journals.
        handlers: decide how each type of message changes a Request.
        in_force: the parts of the configuration that runs follow.
        mind: answers the Requests of runs that do not choose another mind.
        approver: decides on calls that need approval, or None if people decide with `Run.decide`.
        standing_rules: the tools that people have allowed always, or None if each call asks.
    """

    store: Store
    writer: Writer
    group: TaskGroup
    notices: Notices
    queue: Queue
    executor: Executor
    sandbox: Sandbox
    offer: Offer
    screen: Screen
    handlers: Handlers
    in_force: InForce
    mind: Mind | None
    approver: Approver | None
    standing_rules: StandingRules | None
    _schemas: SchemaCache = field(default_factory=SchemaCache, init=False)

    def composer(self) -> Composer:
        """Create the composer of one run's Requests."""
        return Composer(self.handlers, self._schemas, self.offer.latent, program_schema)
