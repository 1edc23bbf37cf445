"""Keeping: what a bridge does with the ideas and runs it keeps: give an idea away, fork a run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Final

from ideabridge.bridge.arguments import read_object
from ideabridge.bridge.configuration import Configuration
from ideabridge.bridge.context.handlers import Handlers
from ideabridge.bridge.forking import Forking
from ideabridge.bridge.ideas.store import Store
from ideabridge.bridge.ideas.users import LOCAL as LOCAL
from ideabridge.bridge.modules.expansion import learn_secrets
from ideabridge.bridge.modules.modules import Modules
from ideabridge.bridge.modules.secrets import Secrets
from ideabridge.bridge.offer import Offer
from ideabridge.bridge.run import Run
from ideabridge.bridge.screen import Screen
from ideabridge.tools.encoding import JSON, JSONObject, ObjectLike, normalise

TOKEN_VARIABLE: Final = "IDEABRIDGE_TOKEN"  # noqa: S105 - the name of the variable, not a token
"""The environment variable that holds the bearer token of the server over HTTP."""


class Keeping(ABC):
    """A part of `Bridge`, which has what this needs."""

    configuration: Configuration
    fingerprint: str
    handlers: Handlers
    modules: Modules
    offer: Offer
    secrets: Secrets

    @property
    @abstractmethod
    def store(self) -> Store:
        """The open store."""

    @abstractmethod
    async def run(self, run_id: str, *, caller: str = LOCAL) -> Run:
        """A run of this caller."""

    def learn_secrets(self) -> None:
        """Learn what is secret in the configuration, whether the modules run or not."""
        token = os.environ.get(TOKEN_VARIABLE)
        if token:
            self.secrets.add(TOKEN_VARIABLE, token, certain=True)
        told = self.configuration
        learn_secrets(
            told.modules,
            self.secrets,
            environ=os.environ,
            folder_of=told.folder_of,
            variables_of=told.variables_of,
        )

    def export_idea(self, ref: str) -> JSONObject:
        """An idea as a portable document (DESIGN 4.11), with its publication where `ref` is a name.

        Raises:
            UnknownIdeaError, AmbiguousIdeaError: there is none of that name, or several.
            SecretInIdeaError: it holds a secret: a configured one, or one of a well-known shape.
        """
        self.learn_secrets()
        return self.store.export_idea(ref, self.secrets.found_in)

    async def fork(
        self,
        run_id: str,
        at: int,
        *,
        solution: ObjectLike | JSON = None,
        input: ObjectLike | None = None,  # noqa: A002 - the vocabulary's word
        caller: str = LOCAL,
    ) -> Run:
        """A run that goes on from a point of another, which stays as it is.

        The calls started before that point keep what came of them and are not run again. What asks from now on is
        what the configuration says now.

        Args:
            run_id: the parent.
            at: after which of its events, from 1, as `Run.events` gives them.
            solution: another answer to the Request of which that event is; the fork begins at that Request. Of a plan,
                whose calls are the whole answer, it begins anew.
            input: another input, whole: as if it had been this from the beginning, and the calls before had given
                what they gave.
            caller: whose run it is.

        Raises:
            UnknownRunError: there is none of that id for this caller.
            ForkError: no such event, an input it does not take, or one with which other calls would have run before.
            RejectedSolutionError, PlanError, ValueMismatchError: the solution is malformed.
            SecretGivenError: the input or the solution holds a secret of the configuration.
        """
        given = read_object("input", input)
        solved = None if solution is None else normalise(solution, what="the solution")
        screen = Screen(self.secrets)
        forking = Forking(self.store, self.offer, self.handlers, self.configuration, self.fingerprint, screen)
        fork = await forking.fork(run_id, at, caller=caller, given=given, solution=solved)
        return await self.run(fork, caller=caller)
