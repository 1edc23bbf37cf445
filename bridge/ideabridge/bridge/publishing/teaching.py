"""Teaching: what a replay of a published idea shows is added to its evidence when the run has ended."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from ideabridge.bridge.context.references import Path
from ideabridge.bridge.context.state import Missing
from ideabridge.bridge.lifting.aligned import AlignedRun
from ideabridge.bridge.lifting.draft import PlanDraft
from ideabridge.bridge.lifting.evidence import CONTRADICTED, Record, record_of, teach, view_of
from ideabridge.bridge.lifting.lift import MAYBE_DATA, RECORDED, SAME_NUMBER, VARIES
from ideabridge.bridge.runs.run import Run
from ideabridge.bridge.store.database import now_text
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.tools.encoding import JSON, JSONObject
from ideabridge.tools.errors import IdeabridgeError

logger: Final = logging.getLogger(__name__)

_OPEN: Final = 1_000
"""The most replays whose end is awaited. What later ones show is not learned."""


class Teaching:
    """The replays of this process that may teach something.

    A replay is examined after its end, when the next idea is called or the bridge closes: its values are evidence if
    the publisher called it and a person confirmed them; see `record_of`.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: list[tuple[Run, Publication]] = []

    def expect(self, run: Run, publication: Publication) -> None:
        """Examine a replay of a version after its end."""
        if (publication.plan or {}).get("explained") and len(self._open) < _OPEN:
            self._open.append((run, publication))

    def learn(self) -> None:
        """Add what ended replays show to the evidence of their versions."""
        if not self._open:
            return
        still: list[tuple[Run, Publication]] = []
        for run, publication in self._open:
            stored = self._store.runs.get(run.id)
            if stored is not None and stored.status == "done":
                self._learn_from(run.id, publication)
            elif not run.machine.ended:
                still.append((run, publication))
        self._open = still

    def _learn_from(self, run_id: str, publication: Publication) -> None:
        try:
            record = record_of(self._store, run_id, publication)
            if record is not None:
                add_record(self._store, publication, record)
        except IdeabridgeError as error:
            logger.warning("run %s teaches nothing about %s: %s", run_id, publication.name, error)


def add_record(store: Store, publication: Publication, record: Record) -> None:
    """Add a record to the evidence of a version, if it shows something new."""
    store.publications.add_evidence(
        publication.name, publication.version, lambda published, known: teach(published, known, record)
    )


def records_of(draft: PlanDraft, by: str) -> list[Record]:
    """Return the records of the runs that were named when a draft was published."""
    return [_record(draft, run, by) for run in draft.lifted.others]


def _record(draft: PlanDraft, run: AlignedRun, by: str) -> Record:
    arguments = draft.arguments(run)
    values: dict[Path, JSON] = {}
    for one in draft.explained:
        place, keys = (None, one.at[1:]) if one.at[0] == "output" else (int(one.at[1]), one.at[2:])
        value = run.leaf(place, keys)
        if not isinstance(value, Missing):
            values[one.at] = value
    return Record(run.run_id, by, "run", now_text(), values, view_of(draft.explained, partial(_read, run, arguments)))


def _read(run: AlignedRun, arguments: JSONObject, text: str) -> JSON | Missing:
    return run.read(text, arguments)


UNPROVED: Final = "its evidence is not in the document"
"""Why a literal of an imported plan is never determined."""

_REASONS: Final = (CONTRADICTED, MAYBE_DATA, RECORDED, SAME_NUMBER, VARIES)
"""The reasons that a document may give: a person reads them in questions, so no document words them."""


def without_claims(document: JSON, before: Publication | None) -> JSON:
    """Return a document whose plan claims no evidence: each copied value is assumed, whatever the document says.

    The own plan of a name that is imported again keeps what the store knows of it.
    """
    publication = document.get("publication") if isinstance(document, dict) else None
    plan = publication.get("plan") if isinstance(publication, dict) else None
    listed = plan.get("explained") if isinstance(plan, dict) else None
    if not isinstance(document, dict) or not isinstance(publication, dict) or not isinstance(plan, dict):
        return document
    if not isinstance(listed, list) or (before is not None and (before.plan or {}).get("explained") == listed):
        return document
    claims: list[JSON] = []
    for one in listed:
        members = {key: value for key, value in one.items() if key != "runs"} if isinstance(one, dict) else one
        if isinstance(members, dict):
            told = members.get("why")
            members = {**members, "why": told if told in _REASONS else UNPROVED}
        claims.append(members)
    return {**document, "publication": {**publication, "plan": {**plan, "explained": claims}}}
