"""Answer calls to `publish_idea`.

A run is published immediately, as version 1. If its copied values are ambiguous, a mind is asked
for a program that resolves them:

- With `program_mind: "model"` in the configuration, the configured model writes the program within
  this call.
- If the client's model answered the run (sampling) and can still be asked, it writes the program
  within this call.
- Otherwise, the answer contains `needs_program`, a Request for the host's model, which calls
  `publish_idea` again with a `program`.

Each program is judged by the recordings; see `publishing/rounds.py`. Judging can take longer than a
host waits, so it continues after `wait_s`. If the host makes the same call again, that call gets
the result.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio

from ideabridge.bridge.context.preview import shorten_literal
from ideabridge.bridge.errors import (
    NeedsPersonError,
    PlanError,
    ProgramRefusedError,
    PublicationError,
)
from ideabridge.bridge.lifting.choices import read_choices
from ideabridge.bridge.lifting.report import report_text
from ideabridge.bridge.loop.event import Decider
from ideabridge.bridge.minds.choice import SAMPLING, Choice
from ideabridge.bridge.publishing.distilling import ROUNDS, answer_of
from ideabridge.bridge.publishing.program_answer import ProgramAnswer, read_program_answer
from ideabridge.bridge.publishing.program_request import ProgramRequest, ToolWords
from ideabridge.bridge.publishing.publish_request import PublishRequest
from ideabridge.bridge.publishing.rounds import Rounds
from ideabridge.bridge.runs.direct import SESSION
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.users import LOCAL
from ideabridge.server.answers import ToolAnswer, answer
from ideabridge.server.asking.elicitation import NOBODY_ASKED, ask_once, by_tool, in_form
from ideabridge.server.asking.forms import publication_form
from ideabridge.server.asking.rounds import ToolRequest
from ideabridge.server.catalogue import ToolCatalogue
from ideabridge.server.direct_calls import DirectCalls
from ideabridge.server.running import WAIT_S, Running
from ideabridge.server.sharing import Sharing
from ideabridge.tools.encoding import JSON, JSONObject, decode, encode_text
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.keywords import show

Arguments: TypeAlias = dict[str, Any]
"""Arguments that satisfy the parameters of `publish_idea`."""

_ASKS: Final = "?"
"""The value of `program` that asks what a program must do, before one is written."""

_DECLINES: Final = (False, "false")
"""The values of `program` that decline a program. The list of tools declares a string, because
hosts rewrite parameters with more than one type.
"""

_OF_RUNS: Final = ("program", "parameters", "choices", "calls", "inputs", "constants", "strict")
"""The parameters that are meaningless if the call itself contains the idea."""

_UNLISTED: Final = (
    "Call it by its name. It is not in the list of tools, which contains the newest and the most "
    "used published ideas (listed_ideas: {most})."
)

_OF_PROGRAM: Final = ("program", "inputs", "description", "parameters", "constants")
"""The parameters with which a program's author describes it."""

_CHANGE: Final = (
    "To change it, publish it again with parameters ({limit: {rename: n}}; also fix, "
    "merge, required, default, at), choices ({take: {calls.0.repo: †input.repo}, runs: "
    "[more runs]}), answer (auto, recorded, plan, program, solve), or program (Python that "
    "does it; ?: what to write)."
)
"""The parameters that the list of tools omits."""

_BY_SAMPLING: Final = Choice(SAMPLING, "it answered the run that is published")

_HAND_IN: Final = "Submit the program (check_run(run={run}) shows it), and a person is asked"

_MOST_JUDGED: Final = 200
"""Maximum number of programs being judged, including those whose result no call has fetched yet."""


def _written(idea: JSON) -> str | JSONObject:
    """Return the idea that a call publishes: either its name, or its document, which models
    sometimes write as a JSON string.

    Raises:
        PublicationError: the argument is neither.
    """
    if isinstance(idea, str) and idea.lstrip().startswith("{"):
        idea = decode(idea, what="idea")
    if not isinstance(idea, str | dict):
        raise PublicationError(
            "idea: expected a run, an idea, session, or an object {context, schema?, solution?}"
        )
    return idea


@dataclass(slots=True)
class _Judging:
    """The judging of a program, shared by all calls that submit the same program."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    publication: Publication | None = None
    error: IdeabridgeError | None = None


class Publishing:
    """Answers calls to `publish_idea`.

    Args:
        running: carries out runs on behalf of requests.
        listed: the tools that clients see.
        record: the direct calls of clients.
    """

    def __init__(self, running: Running, listed: ToolCatalogue, record: DirectCalls) -> None:
        self._bridge = running.bridge
        self._listed = listed
        self._record = record
        self._running = running
        self._rounds = Rounds(self._bridge.publisher)
        self._sharing = Sharing(running, record)
        self._judging: OrderedDict[str, _Judging] = OrderedDict()

    async def publish_idea(self, arguments: Arguments, request: ToolRequest) -> ToolAnswer:
        """Publish a run, an idea, or a document in the call itself, and judge a submitted program.

        Raises:
            IdeabridgeError: nothing was published; the message says why.
        """
        name = arguments["name"]
        self.check_free(name, request.caller)
        idea = _written(arguments["idea"])
        if not isinstance(idea, str):
            return await self._save_written(idea, arguments, request)

        publish_request = await self._read_request(idea, arguments, request)
        program = arguments.get("program")
        seconds = arguments.get("wait_s", WAIT_S)
        if program == _ASKS:
            program_request = await self._program_request(publish_request)
            instructions = self._program_instructions(program_request, name)
            return answer({**program_request.to_json(), "request": instructions}, instructions)

        declines = program in _DECLINES
        if isinstance(program, str) and not declines:
            written = read_program_answer(
                {key: arguments[key] for key in _OF_PROGRAM if key in arguments}
            )
            return await self._hand_in(publish_request, written, request, seconds)

        if program is not None and not declines:
            raise PublicationError(
                f"program: expected the text of a program, or false; found {show(program)}"
            )
        if request.resumed is not None:
            return await self._sampled(publish_request, request.resumed, request, seconds)

        publish_request = dataclasses.replace(
            publish_request,
            answer=arguments.get("answer", "auto"),
            parameters=arguments.get("parameters") or {},
            strict=arguments.get("strict", False),
        )
        return await self._publish(publish_request, request, None if declines else seconds)

    async def _read_request(
        self, idea: str, arguments: Arguments, request: ToolRequest
    ) -> PublishRequest:
        """Read what a call wants to publish, except for its decisions about a plan.

        Args:
            idea: the name of the run or idea.
            arguments: the arguments of the call.
            request: the call.

        Raises:
            IdeabridgeError: the caller has no such run or idea, or an argument is malformed.
        """
        ref = await self._called_run(idea, arguments.get("calls"), request)
        # Check this now, so that a run that is not done gets the usual error.
        self._bridge.store.ideas.get(ref, caller=request.caller)
        choices = read_choices(arguments.get("choices"))
        runs = [await self._called_run(run, None, request) for run in choices.runs]
        return PublishRequest(
            ref,
            arguments["name"],
            description=arguments.get("description"),
            choices=dataclasses.replace(choices, runs=tuple(runs)),
            by=by_tool(request),
            to=arguments.get("to"),
            caller=request.caller,
        )

    async def _program_request(self, publish_request: PublishRequest) -> ProgramRequest:
        """Return the Request for a program that does what the runs did."""
        words = ToolWords(publish_request.name, publish_request.description)
        return await self._bridge.publisher.program_request(
            publish_request.refs, publish_request.caller, words=words
        )

    def check_free(self, name: str, caller: str) -> None:
        """Raise an error if the name cannot be used for a publication."""
        self._bridge.publisher.check_free(name, caller=caller)
        if self._listed.is_exposed(name):
            raise PlanError(
                f"name: {name!r} is already a tool of a connected server; choose another name"
            )

    async def save(
        self, document: JSONObject, to: str | None, caller: str
    ) -> tuple[JSONObject, str]:
        """Publish an idea that does not come from a run. Return the answer as JSON and as text."""
        saved = await self._bridge.save_idea(document, to=to, caller=caller)
        publication = saved.publication
        if publication is None:
            raise PublicationError("name: a tool needs a name")
        self._running.published()
        result, text = self._published(publication)
        if saved.is_unchanged:
            text = (
                f"{publication.name} (version {publication.version}) is already published in "
                "exactly this form; nothing changed"
            )

        if saved.missing:
            result["missing"] = list[JSON](saved.missing)
            text += "\nmissing here: " + "; ".join(saved.missing)

        if not saved.is_unchanged:
            text += self._note_changes(publication, result)

        return result, text

    async def _save_written(
        self, idea: JSONObject, arguments: Arguments, request: ToolRequest
    ) -> ToolAnswer:
        """Publish an idea written by the assistant, which does not come from a run."""
        extra = [key for key in _OF_RUNS if arguments.get(key) is not None]
        if extra:
            raise PublicationError(
                f"{extra[0]}: applies only to a run; leave it out, because `idea` contains the "
                "whole idea"
            )
        document = {
            **idea,
            **{
                key: arguments[key] for key in ("name", "description", "answer") if key in arguments
            },
        }
        result, text = await self.save(document, arguments.get("to"), request.caller)
        return answer(
            result, f"{text}\ninput: {encode_text(shorten_literal(result['input_schema']))}"
        )

    # -- publishing and its report -----------------------------------------------------------------

    async def _publish(
        self,
        publish_request: PublishRequest,
        request: ToolRequest,
        program_seconds: float | None = None,
    ) -> ToolAnswer:
        """Publish a run, and report the ambiguities that a program would resolve.

        Args:
            publish_request: what to publish.
            request: the call.
            program_seconds: how long to wait for a program from the client's model or the
                configured model, or None if no program is wanted.
        """
        by = await self._decider(publish_request, request)
        publication = await self._bridge.saver.publish_run(
            dataclasses.replace(publish_request, by=by)
        )
        self._running.published()
        is_open = bool(publication.report_parts.open)
        if (
            program_seconds is None
            or not is_open
            or publish_request.answer != "auto"
            or not self._bridge.configuration.programs
        ):
            return self._version_answer(publication)

        if self._bridge.configuration.program_mind == "model" and self._bridge.mind is not None:
            return await self._by_model(
                publish_request, self._bridge.mind.name, publication, program_seconds
            )
        if await self._was_sampled(publication, request):
            run = await self._rounds.ask(publish_request, _BY_SAMPLING)
            return await self._sampled(publish_request, run, request, program_seconds, publication)
        return self._version_answer(publication, await self._program_request(publish_request))

    def _version_answer(
        self, publication: Publication, program_request: ProgramRequest | None = None
    ) -> ToolAnswer:
        """Return the answer about a new version, including the Request for a program if one is
        wanted.
        """
        result, text = self._published(publication)
        if publication.report is not None and program_request is None:
            # Leave the report out if there is a Request for a program, which names the open points
            # itself.
            result["report"] = report_text(publication.report)
            text += f"\n{result['report']}"

        text += self._note_changes(publication, result)
        if program_request is None:
            result["change"] = _CHANGE
            text += f"\n{_CHANGE}"

        text += f"\ninput: {encode_text(shorten_literal(publication.input_schema))}"
        if program_request is not None:
            instructions = self._program_instructions(program_request, publication.name)
            # Put the full Request into the text and the structured content, because a host shows
            # only one of them.
            result["needs_program"] = {
                "runs": list[JSON](program_request.runs),
                "open": [{"kind": point.kind, "at": point.at} for point in program_request.open],
                "request": instructions,
            }
            text += f"\n\nneeds_program: {instructions}"

        return answer(result, text)

    def _program_instructions(self, program_request: ProgramRequest, name: str) -> str:
        """Return a Request as text, with instructions for answering it."""
        first, *others = program_request.runs
        runs = f", choices={{runs: {encode_text(list[JSON](others))}}}" if others else ""
        return (
            f"Answer with publish_idea(idea={first}, name={name}{runs}, program=TEXT, "
            "inputs=[{MEMBER: VALUE}],"
            " parameters={MEMBER: {description}}, description=ONE SENTENCE, "
            "constants?=[VALUE]). program=false: none."
            f" check_run(run={first}, paths=[†results.0]) shows a result whole.\n\n{program_request.text}"
        )

    def _published(self, publication: Publication) -> tuple[JSONObject, str]:
        """Return the answer about a new tool, as JSON and as text."""
        result: JSONObject = {
            "name": publication.name,
            "version": publication.version,
            "answer": publication.answer,
            "description": publication.description,
            "idea": publication.idea_id,
            "input_schema": publication.input_schema,
            "output_schema": publication.output_schema,
            "annotations": publication.annotations,
        }
        text = f"published {publication.name} (version {publication.version}): it is now a tool."
        if publication.live and self._listed.is_crowded_out(
            publication, publication.owner or LOCAL
        ):
            result["listed"] = False
            text += f" {_UNLISTED.format(most=self._bridge.configuration.listed_ideas)}"
        return result, f"{text} {publication.description}"

    def _note_changes(self, publication: Publication, result: JSONObject) -> str:
        """Add the breaking changes of a new version to the result, and return them as lines of
        text.
        """
        text = ""
        broken = self._bridge.store.change_of(publication).breaking
        if broken:
            result["breaking"] = list[JSON](broken)
            text += "\nbreaking changes since the previous version: " + "; ".join(broken)

        if not publication.live:
            result["live"] = False
            text += "\nThe name is pinned to another version and stays with it."

        return text

    # -- programs ----------------------------------------------------------------------------------

    async def _hand_in(
        self,
        publish_request: PublishRequest,
        written: ProgramAnswer,
        request: ToolRequest,
        seconds: float,
    ) -> ToolAnswer:
        """Judge a program written by the host's model, and publish it if the recordings accept
        it.
        """
        if publish_request.choices.take:
            raise PublicationError(
                "choices: a program has no copied values to decide on, so leave out take"
            )

        # Drop the description in the call, because its author wrote the program but is not the
        # publisher.
        publish_request = dataclasses.replace(
            publish_request.for_program(written), description=None
        )
        # If the request is repeated, it contains the person's answer to the question that it asked.
        question = request.resumed or await self._sharing.find(publish_request, written)
        if question is None:
            try:
                return await self._answer_of_judge(publish_request, written, seconds)
            except NeedsPersonError:
                question = await self._sharing.ask(publish_request, written)

        person = await self._sharing.decided(question, request, seconds)
        if person is None:
            return self._sharing.waits(publish_request, question, request)

        judged = await self._answer_of_judge(
            dataclasses.replace(publish_request, by=person), written, seconds
        )
        if "judging" not in judged["structuredContent"]:
            await self._sharing.forget(question)

        return judged

    async def _answer_of_judge(
        self, publish_request: PublishRequest, written: ProgramAnswer, seconds: float
    ) -> ToolAnswer:
        """Judge a program, publish it if the recordings accept it, and return the answer."""

        async def judge() -> Publication:
            return await self._rounds.hand_in(publish_request, written)

        judged = await self._judged(publish_request, written.to_json(), judge, seconds)
        if judged is None:
            return self._still_judged(publish_request.name)
        return self._version_answer(judged)

    async def _judged(
        self,
        publish_request: PublishRequest,
        written: JSONObject,
        judge: Callable[[], Awaitable[Publication]],
        seconds: float,
    ) -> Publication | None:
        """Wait up to `seconds` for the publication of a program. Return None if the program is
        still being judged.

        The same program for the same task is judged only once, no matter how many calls submit it
        in the meantime.
        """
        digest = publish_request.digest_with(written)
        judging = self._judging.get(digest)
        if judging is None:
            judging = self._judging[digest] = _Judging()
            while len(self._judging) > _MOST_JUDGED:
                self._judging.popitem(last=False)
            self._running.start(self._judge, judging, judge)

        with anyio.move_on_after(seconds):
            await judging.ended.wait()

        if not judging.ended.is_set():
            return None
        self._judging.pop(digest, None)
        if judging.error is not None:
            raise judging.error
        return judging.publication

    async def _judge(self, judging: _Judging, judge: Callable[[], Awaitable[Publication]]) -> None:
        try:
            judging.publication = await judge()
            self._running.published()
        except IdeabridgeError as error:
            judging.error = error
        finally:
            judging.ended.set()

    def _still_judged(self, name: str) -> ToolAnswer:
        text = (
            f"the program for {name} is still being judged. To wait for the result, call "
            "publish_idea again with the same arguments."
        )
        return answer({"name": name, "judging": True}, text)

    async def _by_model(
        self, publish_request: PublishRequest, mind: str, version: Publication, seconds: float
    ) -> ToolAnswer:
        """Let the configured model write programs until one is accepted, and return the answer
        about the last version.
        """
        choice = Choice(mind, "as program_mind in the configuration says")

        async def write() -> Publication:
            distilled, _ = await self._bridge.publisher.distill(publish_request, choice)
            return distilled

        try:
            judged = await self._judged(publish_request, {"mind": mind}, write, seconds)
        except NeedsPersonError as error:
            return self._noted(self._version_answer(version), str(error))
        except PublicationError as error:
            return self._noted(
                self._version_answer(version), f"the configured model wrote no program: {error}"
            )

        if judged is None:
            return self._noted(
                self._version_answer(version),
                "the configured model writes a program for the next version",
            )

        return self._version_answer(judged)

    # -- sampling ----------------------------------------------------------------------------------

    async def _was_sampled(self, publication: Publication, request: ToolRequest) -> bool:
        """Return whether this client's model can be asked and is the mind that answered the
        published run.
        """
        lifted = publication.report_parts.run
        if not request.samples or lifted is None:
            return False
        run = await self._bridge.run(lifted, caller=request.caller)
        return run.turns.mind == SAMPLING

    async def _sampled(
        self,
        publish_request: PublishRequest,
        run: Run,
        request: ToolRequest,
        seconds: float,
        version: Publication | None = None,
    ) -> ToolAnswer:
        """Let the client's model write programs until one is accepted, and return the answer about
        the last version.

        Args:
            publish_request: what to publish.
            run: the run in which the model writes the next program.
            request: the call, which can be repeated for each program.
            seconds: how long to wait for each program.
            version: the version without a program, if this request has already published one.

        Raises:
            InputRequired: the client's model must be asked. The client repeats the request with the
                model's answer.
        """
        while True:
            if await self._running.wait(run, seconds, request) != "done":
                return await self._without_program(
                    publish_request, version, run, f"its run {run.id} is {run.status}"
                )
            try:
                return self._version_answer(
                    await self._rounds.hand_in(publish_request, await answer_of(run), run)
                )
            except NeedsPersonError as error:
                published = self._version_answer(self._version(publish_request, version))
                return self._noted(published, f"{error}. {_HAND_IN.format(run=run.id)}")
            except ProgramRefusedError as error:
                if len(self._rounds.refused(publish_request)) >= ROUNDS:
                    return await self._without_program(publish_request, version, run, str(error))
            run = await self._rounds.ask(publish_request, _BY_SAMPLING)
            # The earlier rounds of the request belong to a different run.
            request.round = None

    async def _without_program(
        self, publish_request: PublishRequest, version: Publication | None, run: Run, reason: str
    ) -> ToolAnswer:
        """Return the answer if the client's model wrote no program that the recordings accept.

        The run that asks the model is cancelled if it is still waiting.
        """
        if run.status == "needs_solution":
            await run.patiently(lambda: run.cancel("the client's model wrote no program in time"))
        note = f"the client's model wrote no program that does what the run did: {reason}"
        return self._noted(self._version_answer(self._version(publish_request, version)), note)

    def _version(self, publish_request: PublishRequest, version: Publication | None) -> Publication:
        """Return the version without a program, which another request might have published."""
        return version or self._bridge.store.publications.named(
            publish_request.name, caller=publish_request.caller
        )

    def _noted(self, published: ToolAnswer, note: str) -> ToolAnswer:
        """Return an answer about a version, with a note about its program."""
        first, *others = published["content"]
        content = [{**first, "text": f"{first['text']}\n{note}"}, *others]
        return {
            **published,
            "content": content,
            "structuredContent": {**published["structuredContent"], "note": note},
        }

    # -- deciders ----------------------------------------------------------------------------------

    async def _called_run(self, ref: str, calls: list[int] | None, request: ToolRequest) -> str:
        """Return the id of the run to publish.

        A direct-call session, or some of the calls of a session or run, first becomes a run. Any
        other `ref` is returned unchanged.
        """
        await self._record.written()
        sessions = self._bridge.direct_sessions
        if ref == SESSION:
            ref = sessions.find(
                request.caller, self._record.client(request), self._record.session(request)
            )
        return await sessions.part(ref, calls, request.caller)

    async def _decider(self, publish_request: PublishRequest, request: ToolRequest) -> Decider:
        """Return who decides about an assistant's choices: the person, if the client shows forms.

        Raises:
            PublicationError: nobody has accepted the choices. The message says how a person can.
        """
        choices = publish_request.choices.to_json()
        if not choices or publish_request.answer not in ("auto", "plan"):
            return publish_request.by

        deciding = self._running.deciding
        if deciding.offers(request):
            return publish_request.by

        ref = publish_request.ref
        commands = deciding.commands_of(request)
        places = commands.places_to_publish(ref, publish_request.name)
        if not deciding.shows_forms(request):
            raise PublicationError(
                "choices: only the person can make them (approval.by in the configuration), "
                f"{places}"
            )

        text, form = publication_form(ref, publish_request.name, choices, commands)
        result = await ask_once(self._bridge.secrets.mask(text), form, request, deciding)
        if result is None:
            raise PublicationError(
                f"choices: {NOBODY_ASKED}. Submit them again, or decide {places}"
            )

        decision = (result.content or {}).get("decision")
        if result.action != "accept" or decision not in form["properties"]["decision"]["enum"]:
            raise PublicationError(
                f"choices: the person has not accepted them, so nothing was published; {places}"
            )

        if decision != "approve":
            raise PublicationError("choices: the person refused them; nothing was published")
        return in_form(request)
