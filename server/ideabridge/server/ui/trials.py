"""The runs of a single tool that a person starts in the playground or on the tool's page.

The page shows their results beside the form that started them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

from ideabridge.bridge.context.payloads import without_payloads
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.run_record import RunRecord
from ideabridge.server.ui.access import FormFields
from ideabridge.server.ui.outputs import ShownOutput, shown_output
from ideabridge.server.ui.run_pages import ShownImage, images_in, shown_images
from ideabridge.server.ui.site import Site
from ideabridge.server.views.records import input_of, run_status
from ideabridge.server.views.text import message_of
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.threads import compute_in_thread

AWAITED_SECONDS: Final = 5.0
"""How long the page waits for a run that a person has started to end, in seconds."""

_MOST_ERRORS: Final = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of a single tool, as shown on a page with the tool's form.

    Attributes:
        record: the run.
        status: the status of the run.
        values: the parameters with which the tool was called.
        errors: the first errors of the run.
        output: the output of the run, or None if there is none yet.
        shown_output: the output as a page shows it, or None if there is no output or, because the
            journal is large, only the page of the run can show it.
        images: the images in the output.
    """

    record: RunRecord
    status: str
    values: JSONObject
    errors: tuple[str, ...]
    output: JSON
    shown_output: ShownOutput | None
    images: list[ShownImage]


async def page_after(run: Run, form: FormFields, page: str, version: int | None = None) -> str:
    """Return the path of the page to show after a form has started a run. This is the page of the
    form, except that a run started on a tool's page leads to the page of the run if it is waiting
    for a person, who can decide there.

    Args:
        run: the run.
        form: the fields of the form.
        page: the path of the tool's page, relative to the path of all pages.
        version: the version of the tool that the page shows, or None for the current one.
    """
    status = await run.wait(AWAITED_SECONDS)
    if form.get("from") == "playground":
        return f"/playground?{urlencode({'tool': page, 'run': run.id})}#trial"
    if status == "needs_approval":
        return f"/runs/{run.id}"

    query: dict[str, str | int] = {"run": run.id}
    if version is not None:
        query["version"] = version
    return f"/{page}?{urlencode(query)}#trial"


async def trial_of(site: Site, request: Request) -> Trial | None:
    """Return the run named in the page's URL, or None if the URL names none.

    Raises:
        UnknownRunError: no run has this id, or the visitor is not allowed to see it.
    """
    run_id = request.query_params.get("run", "")
    return await trial_of_run(site, request, run_id) if run_id else None


async def trial_of_run(site: Site, request: Request, run_id: str) -> Trial:
    """Return a run for a page.

    Raises:
        UnknownRunError: no run has this id, or the visitor is not allowed to see it.
    """
    record = site.record(request, run_id)
    async with site.histories.reading(record.id) as read:
        bars = read.trace.bars
        values = await compute_in_thread(input_of, site.bridge.store, record.id)
        if not values and bars:
            values = {
                name: value for name, value in bars[0].call.items() if not name.startswith("_")
            }

        errors: tuple[str, ...] = ()
        output: JSON = None
        shown: ShownOutput | None = None
        images: list[ShownImage] = []
        if read.history is not None:
            machine = read.history.machine
            errors = tuple(message_of(error.get("error")) for error in machine.errors)
            if machine.has_output:
                address = f"{site.prefix}/runs/{record.id}/images/"
                images = shown_images(images_in(machine.output), address)
                output = without_payloads(machine.output)
                shown = await compute_in_thread(shown_output, output)

    status, _ = run_status(record)
    return Trial(record, status, values, errors[:_MOST_ERRORS], output, shown, images)
