"""A page where people write a tool in a form, or write or paste it as a document, review the tool,
and save it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.offer.task_tools import TaskTools
from ideabridge.bridge.publishing.written import WrittenIdea, read_idea, written_document
from ideabridge.server.ui.access import FormFields, Visitor, expect_owner, form_of, visitor_of
from ideabridge.server.ui.form_tools import FormTools
from ideabridge.server.ui.forms import Audience, number_from
from ideabridge.server.ui.idea_folder import IdeaFolder
from ideabridge.server.ui.modules import page_of
from ideabridge.server.ui.plan_fields import PlanFields
from ideabridge.server.ui.plan_form import PlanForm, read_plan_form, tool_key
from ideabridge.server.ui.playground import Example
from ideabridge.server.ui.showing import as_json
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.text_faults import TextFault
from ideabridge.server.ui.trials import AWAITED_SECONDS, Trial, trial_of_run
from ideabridge.server.views.text import source_text
from ideabridge.tools.documents import has_comments, read_written
from ideabridge.tools.encoding import JSONObject, content_hash
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.names import name_from
from ideabridge.tools.threads import compute_in_thread
from ideabridge.tools.tool import IDEA

_CALLS: Final = """\
name: with_tax
description: The price with value added tax
context:
  - type: input
    input: {net: 100, percent: 19}
solution:
  calls:
    - _tool: compute
      code: net * percent / 100
      net: †input.net
      percent: †input.percent
      _outputPath: tax
  output: {tax: †state.tax}
"""
_PROGRAM: Final = """\
name: longest_words
description: The longest words of a text, the longest first
context:
  - type: input
    input: {text: the quick brown fox jumps, most: 2}
solution:
  program: |
    words = set(input["text"].split())
    sorted(words, key=lambda word: (-len(word), word))[:input["most"]]
"""
_QUESTION: Final = """\
name: translate
description: Translates a text politely
context:
  - role: user
    content: Translate the text. Leave names and numbers as they are.
  - type: input
    input: {text: Thank you for your order, language: German}
schema: {type: string}
"""
EXAMPLES: Final = (
    Example("calls", "Fixed steps", _CALLS, "Calls the same tools each time."),
    Example("program", "Code", _PROGRAM, "Runs Python, which can decide and repeat."),
    Example("question", "A question for a model", _QUESTION, "A model answers each time."),
)
"""The kinds of tools that a person can start from. Each runs on any machine."""


class WritingPage:
    """The page for writing tools, either as text or, if the steps are fixed, in a form."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [Route("/write", self.show, methods=["GET", "POST"])]

    async def show(self, request: Request) -> Response:
        """Show the form or the editor. A POST request shows the submitted content again and
        performs the button's action.
        """
        if request.method == "GET":
            return await self._begin(request)
        form = form_of(request)
        if form.get("view") == "form":
            return await self._changed_form(request, form)
        return await self._written_text(request, form)

    async def _begin(self, request: Request) -> Response:
        """Show an empty form. With `example`, show an example instead, with `tool`, a handwritten
        tool, and with `file`, a document of the project. With `view=text`, show text.
        """
        query = request.query_params
        tools = self._tools(request)
        name = query.get("tool", "")
        if name:
            document = self._document(name, visitor_of(request))
            commented = ""
            if visitor_of(request).is_owner:
                commented = await compute_in_thread(self._folder().commented_file, name)
            try:
                form = PlanForm.of(document, tools)
                return await self._form(request, form, tools, commented_file=commented)
            except ArgumentError:
                return await self._text(request, as_json(document))

        file = query.get("file", "")
        if file:
            # The document is a file on this machine, so let only the owner read it.
            expect_owner(visitor_of(request))
            text = await compute_in_thread(self._folder().text, file)
            return await self._text(request, text)

        example_name = query.get("example", "")
        examples = {example.name: example for example in EXAMPLES}
        example = examples.get(example_name, EXAMPLES[0])
        if example.name != "calls" or query.get("view") == "text":
            return await self._text(request, example.text)

        form = PlanForm()
        if example_name:
            form = PlanForm.of(_read(example.text)[0], tools)
        return await self._form(request, form, tools)

    def _folder(self) -> IdeaFolder:
        return IdeaFolder(self._bridge.configuration.project.absolute())

    def _document(self, name: str, visitor: Visitor) -> JSONObject:
        """Return the document of a tool published to the visitor.

        Raises:
            ArgumentError: the tool has no document, because it was made from a run.
        """
        store = self._bridge.store
        publication = store.publications.get(name, None, caller=visitor.scope)
        stored = store.ideas.get(publication.idea_id, caller=visitor.scope)
        document = written_document(publication, stored.idea)
        if document is None:
            raise ArgumentError(f"{publication.name} was made from a run, so it has no text.")
        return document

    # -- as text -----------------------------------------------------------------------------------

    async def _written_text(self, request: Request, form: FormFields) -> Response:
        """Show the tool that a text would become. Save it if the tool has already been shown."""
        text = form.get("text")
        action = form.get("action")
        values: dict[str, Any] = {}
        try:
            document, written = await compute_in_thread(_read, text)
            if action == "form":
                tools = self._tools(request)
                plan_form = await compute_in_thread(PlanForm.of, document, tools)
                commented_text = text if await compute_in_thread(has_comments, text) else ""
                return await self._form(request, plan_form, tools, commented_text=commented_text)

            # Save a tool only after the page has shown it to the person, because the text might
            # come from someone else.
            digest = content_hash(text)
            values = {"written": written, "seen": digest, **_shown(written)}
            if action == "save" and form.get("seen") == digest:
                return await self._save(request, document, form)
        except IdeabridgeError as error:
            values["fault"] = TextFault.of(self._bridge.secrets.mask(str(error)), text)

        return await self._text(request, text, **values)

    async def _text(self, request: Request, text: str, **values: Any) -> Response:
        names = {example.text: example.name for example in EXAMPLES}
        defaults = {
            "fields": None,
            "text": text,
            "example": names.get(text, ""),
            "written": None,
            "fault": None,
        }
        return await self._page(request, defaults | values)

    # -- as a form ---------------------------------------------------------------------------------

    async def _changed_form(self, request: Request, form: FormFields) -> Response:
        """Show a form again after the change that its button makes."""
        tools = self._tools(request)
        plan_form = PlanForm()
        fault = ""
        trial: Trial | None = None
        action = form.get("action")
        commented_text = form.get("commented_text")
        if action == "commented":
            return await self._text(request, commented_text)
        try:
            plan_form = await compute_in_thread(read_plan_form, form)
            plan_form = _after(action, plan_form, form, tools)
            if action == "text":
                document = await compute_in_thread(plan_form.without_blanks().document, tools)
                return await self._text(request, as_json(document))
            if action in ("try", "save"):
                document = await compute_in_thread(plan_form.document, tools)
                if plan_form.name.strip():
                    document["name"] = name_from(plan_form.name)
                if action == "save":
                    return await self._save(request, document, form)
                trial = await self._try(request, plan_form, read_idea(document))
        except IdeabridgeError as error:
            fault = self._bridge.secrets.mask(str(error))

        return await self._form(
            request,
            plan_form,
            tools,
            fault=fault,
            trial=trial,
            commented_text=commented_text,
            commented_file=form.get("commented_file"),
        )

    async def _form(
        self,
        request: Request,
        form: PlanForm,
        tools: FormTools,
        *,
        fault: str = "",
        trial: Trial | None = None,
        commented_text: str = "",
        commented_file: str = "",
    ) -> Response:
        """Show a form. The page says so if the form comes from text with comments, or if the
        project's file for the tool has comments, because a form has none.
        """
        values: dict[str, Any] = {
            "fields": await compute_in_thread(PlanFields.of, form, tools),
            "example": "calls",
            "fault": fault,
            "trial": trial,
            "commented_text": commented_text,
            "commented_file": commented_file,
        }
        return await self._page(request, values)

    async def _try(self, request: Request, form: PlanForm, written: WrittenIdea) -> Trial:
        """Run the steps with the parameters' examples."""
        for parameter in form.parameters:
            if not parameter.example.strip():
                raise ArgumentError(f"{parameter.name}: enter an example to try the tool with.")

        plan = written.published_plan()
        plan["input"] = written.example
        caller = visitor_of(request).caller
        run = await self._bridge.run_plan(plan, caller=caller, title=written.title)
        await run.wait(AWAITED_SECONDS)
        return await trial_of_run(self._site, request, run.id)

    def _tools(self, request: Request) -> FormTools:
        """Return the tools that the visitor can call, including those made here."""
        visitor = visitor_of(request)
        caller = visitor.caller
        offered = TaskTools(self._bridge.offer, ("*", f"{IDEA}*"), caller=caller).present().tools
        callable_here = [tool for tool in offered if page_of(self._bridge, tool)]
        observed = partial(self._bridge.observed, caller=caller)
        return FormTools(callable_here, observed, self._site.titles(visitor))

    # -- both --------------------------------------------------------------------------------------

    async def _save(self, request: Request, document: JSONObject, form: FormFields) -> Response:
        """Save a document as a tool and show the tool's page."""
        saved = await self._bridge.save_idea(
            document,
            publish=True,
            to=Audience.of(form).chosen,
            caller=visitor_of(request).caller,
        )
        name = str(document.get("name", ""))
        self._site.front.announcements.poke()
        page = f"/ideas/{name}?made"
        note = f"{name} is now a tool."
        if saved.is_unchanged:
            page = f"/ideas/{name}"
            note = f"The tool {name} already has exactly this content."
        for line in saved.missing:
            note += f" Missing here: {line}."
        return self._site.back(request, page, note)

    async def _page(self, request: Request, values: dict[str, Any]) -> Response:
        audience = Audience.of(form_of(request)) if request.method == "POST" else Audience("", "")
        return await self._site.page_beside(
            request, "write.html", examples=EXAMPLES, audience=audience, **values
        )


def _after(action: str, plan_form: PlanForm, form: FormFields, tools: FormTools) -> PlanForm:
    """Return the form after the change that a button makes."""
    kind, _, written = action.partition(".")
    place = number_from(written) or 0
    count = len(plan_form.steps)
    order = list(range(count))
    if kind == "add":
        key = tool_key(form.get("tool"))
        if tools.find(key) is None:
            raise ArgumentError(f"There is no tool {key[1][:80]!r} here.")
        changed = plan_form.with_step(key, tools)
    elif kind == "return":
        changed = plan_form.with_returned()
    elif kind in ("remove", "up", "down", "value") and place >= count:
        raise ArgumentError(f"There is no step {place + 1}.")
    elif kind == "remove":
        changed = plan_form.in_order([*order[:place], *order[place + 1 :]])
    elif kind in ("up", "down"):
        other = min(max(place + (1 if kind == "down" else -1), 0), count - 1)
        order[place] = other
        order[other] = place
        changed = plan_form.in_order(order)
    elif kind == "value":
        changed = plan_form.with_value(place, form.get(f"s{place}.add"))
    else:
        return plan_form

    changed.expect_small()
    return changed


def _read(text: str) -> tuple[JSONObject, WrittenIdea]:
    document = read_written(text, what="the tool")
    if not isinstance(document, dict):
        raise ArgumentError(
            "the tool: expected an object with context and, optionally, schema and solution"
        )
    return document, read_idea(document)


def _shown(written: WrittenIdea) -> dict[str, Any]:
    """Return everything that a call of the tool runs or that a mind reads."""
    values: dict[str, Any] = {
        "program": source_text(written.solution.program or ""),
        "plan": None,
        "guide": None,
        "recorded": None,
    }
    if written.answer == "solve":
        values["guide"] = written.guide(list(written.tools or ()))
    elif written.answer == "recorded":
        values["recorded"] = written.recorded_output()
    else:
        plan = written.published_plan()
        plan.pop("program", None)
        values["plan"] = plan
    return values
