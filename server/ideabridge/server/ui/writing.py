"""Writing: a page where people write or paste a tool as a document, review it, and save it as a
tool.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ideabridge.bridge.publishing.written import WrittenIdea, read_idea
from ideabridge.server.ui.access import expect_owner, form_of, visitor_of
from ideabridge.server.ui.forms import Audience
from ideabridge.server.ui.idea_folder import IdeaFolder
from ideabridge.server.ui.playground import Example
from ideabridge.server.ui.site import Site
from ideabridge.server.ui.text_faults import TextFault
from ideabridge.server.views.text import source_text
from ideabridge.tools.documents import read_written
from ideabridge.tools.encoding import JSONObject, content_hash
from ideabridge.tools.errors import ArgumentError, IdeabridgeError
from ideabridge.tools.threads import compute_in_thread

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
"""The kinds of tools that a person can begin with. Each runs on any machine."""


class WritingPage:
    """The page where ideas are written by hand."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._bridge = site.bridge

    def routes(self) -> list[Route]:
        """Return the routes under `/ui`."""
        return [Route("/write", self.show, methods=["GET", "POST"])]

    async def show(self, request: Request) -> Response:
        """Show the editor. A POST shows what the document would become, and saves the document if
        it has already been shown.
        """
        form = form_of(request)
        visitor = visitor_of(request)
        file = request.query_params.get("file", "")
        asked = request.query_params.get("example", "")
        example = next((one for one in EXAMPLES if one.name == asked), EXAMPLES[0])
        text = form.get("text", example.text)
        if file and request.method == "GET":
            # The document is a file on this machine, so let only the owner read it.
            expect_owner(visitor)
            folder = IdeaFolder(self._bridge.configuration.project.absolute())
            text = await compute_in_thread(folder.text, file)
        values: dict[str, Any] = {"written": None, "fault": None}
        if request.method == "POST":
            try:
                document, written = await compute_in_thread(_read, text)
                # Save an idea only after the page has shown it to the person, because the text
                # might come from someone else.
                digest = content_hash(text)
                values.update(written=written, seen=digest, **_shown(written))
                if form.get("action") == "save" and form.get("seen") == digest:
                    saved = await self._bridge.save_idea(
                        document,
                        publish=True,
                        to=Audience.of(form).chosen,
                        caller=visitor.caller,
                    )
                    name = written.name or ""
                    self._site.front.announcements.poke()
                    note = f"{name} is now a tool."
                    if saved.is_unchanged:
                        note = f"The tool {name} already has exactly this content."
                    for line in saved.missing:
                        note += f" Missing here: {line}."
                    return self._site.back(request, f"/ideas/{name}", note)
            except IdeabridgeError as error:
                values["fault"] = TextFault.of(self._bridge.secrets.mask(str(error)), text)

        return await self._site.page_beside(
            request,
            "write.html",
            examples=EXAMPLES,
            example=example.name if text == example.text else "",
            text=text,
            audience=Audience.of(form),
            **values,
        )


def _read(text: str) -> tuple[JSONObject, WrittenIdea]:
    document = read_written(text, what="the tool")
    if not isinstance(document, dict):
        raise ArgumentError(
            "the tool: expected an object with context and, optionally, schema and solution"
        )
    return document, read_idea(document)


def _shown(written: WrittenIdea) -> dict[str, Any]:
    """Return everything that a call to the tool runs, or that a mind reads."""
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
