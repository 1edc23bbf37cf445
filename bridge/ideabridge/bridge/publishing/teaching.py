"""Add finished replays of a published idea to the idea's evidence."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import anyio

from ideabridge.bridge.context.explanations import COPIED_PART, MAYBE_DATA, UNPROVED
from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.lifting.aligned import AlignedRun
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.evidence import CONTRADICTED, Record, record_of, teach, view_of
from ideabridge.bridge.lifting.lifted import JUDGED, RECORDED, VARIES
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.database import now_text
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.published import plan_in_document, with_plan_in_document
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject, list_or_empty
from ideabridge.tools.errors import IdeabridgeError
from ideabridge.tools.threads import compute_in_thread

logger: Final = logging.getLogger(__name__)

_MOST_REPLAYS: Final = 1_000
"""The maximum number of replays that are awaited at the same time. Further replays do not add
evidence.
"""


class Teaching:
    """The replays in this process that can add evidence.

    A replay that has ended is examined when the next idea is called or the bridge closes. Its
    values are evidence if the publisher called the idea and a person confirmed the values; see
    `record_of`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: list[tuple[Run, Publication]] = []
        # Replays that have ended but have not been read, because the task was cancelled.
        self._ended: list[tuple[str, Publication]] = []

    def expect(self, run: Run, publication: Publication) -> None:
        """Register a replay of a version, which is examined once it has ended."""
        if publication.plan_parts.explained and len(self._open) < _MOST_REPLAYS:
            self._open.append((run, publication))

    async def learn(self) -> None:
        """Add the replays that have ended to the evidence of their versions. They are read in a
        thread.
        """
        ended = self._take_ended()
        while ended:
            run_id, publication = ended[0]
            try:
                record = await compute_in_thread(self._record_of, run_id, publication)
            except anyio.get_cancelled_exc_class():
                # The remaining replays are examined at the next call to an idea.
                self._ended += ended
                raise
            ended.pop(0)
            self._add(publication, record)

    def learn_at_the_end(self) -> None:
        """Like `learn`, but without waiting, because the bridge is closing."""
        for run_id, publication in self._take_ended():
            self._add(publication, self._record_of(run_id, publication))

    def _take_ended(self) -> list[tuple[str, Publication]]:
        ended = self._ended
        self._ended = []
        still: list[tuple[Run, Publication]] = []
        for run, publication in self._open:
            stored = self._store.runs.get(run.id)
            if stored is not None and stored.status == "done":
                ended.append((run.id, publication))
            elif not run.machine.ended:
                still.append((run, publication))

        self._open = still
        return ended

    def _record_of(self, run_id: str, publication: Publication) -> Record | None:
        try:
            return record_of(self._store, run_id, publication)
        except IdeabridgeError as error:
            logger.warning("run %s adds no evidence about %s: %s", run_id, publication.name, error)
            return None

    def _add(self, publication: Publication, record: Record | None) -> None:
        if record is None:
            return
        try:
            add_record(self._store, publication, record)
        except IdeabridgeError as error:
            logger.warning(
                "run %s adds no evidence about %s: %s", record.run, publication.name, error
            )


def add_record(store: Store, publication: Publication, record: Record) -> None:
    """Add a record to the evidence of a version if the record shows something new."""
    store.publications.add_evidence(
        publication.name,
        publication.version,
        lambda published, evidence: teach(published, evidence, record),
    )


def records_of(draft: PlanDraft, by: str) -> list[Record]:
    """Return the records of the other runs that were named when a draft was published."""
    return [_record(draft, run, by) for run in draft.lifted.others]


def _record(draft: PlanDraft, run: AlignedRun, by: str) -> Record:
    arguments = draft.arguments(run)
    values: dict[Path, JSON] = {}
    for literal in draft.explained:
        value = run.leaf(literal.at)
        if not isinstance(value, Missing):
            values[literal.at] = value

    return Record(
        run.run_id,
        by,
        "run",
        now_text(),
        values,
        view_of(draft.explained, partial(_read, run, arguments)),
    )


def _read(run: AlignedRun, arguments: JSONObject, text: str) -> JSON | Missing:
    return run.read(text, arguments)


_REASONS: Final = (CONTRADICTED, COPIED_PART, JUDGED, MAYBE_DATA, RECORDED, VARIES)
"""The only reasons that a document can contain. Questions show the reasons to people, so a document
must not supply its own wording.
"""


def without_claims(document: JSON, before: Publication | None) -> JSON:
    """Return the document with a plan that claims no evidence: each copied value is assumed, no
    matter what the document says.

    If the store already has the same plan under the name, the plan keeps its evidence.
    """
    plan = plan_in_document(document)
    if plan is None:
        return document

    listed = list_or_empty(plan.get("explained"))
    if not listed:
        return document
    if before is not None and before.plan_parts.explained == listed:
        return document

    return with_plan_in_document(document, {**plan, "explained": [*map(_unproved, listed)]})


def _unproved(explained: JSON) -> JSON:
    """Return an explained literal without claims of evidence. Malformed literals are returned
    unchanged.
    """
    if not isinstance(explained, dict):
        return explained

    others = {key: value for key, value in explained.items() if key != "runs"}
    reason = explained.get("why")
    return {**others, "why": reason if reason in _REASONS else UNPROVED}
