"""Decide which published ideas each profile is allowed to use."""

from __future__ import annotations

from typing import Final

from ideabridge.bridge.offer.offer import Offer
from ideabridge.bridge.runs.idea_needs import why_not_here
from ideabridge.bridge.runs.pins import read_pins
from ideabridge.bridge.store.errors import UnknownPublicationError
from ideabridge.bridge.store.idea import Publication
from ideabridge.bridge.store.store import Store
from ideabridge.bridge.store.users import LOCAL, SEES_ALL, in_profile

_MOST_DECIDED: Final = 20_000


class AdmittedIdeas:
    """Decides which published ideas the profiles of a configuration may use.

    A profile that names ideas can use these ideas and every tool with which they were published.
    Any other profile can use only ideas whose calls need no tools outside the profile.
    """

    def __init__(self, store: Store, offer: Offer) -> None:
        self._store = store
        self._offer = offer
        # Decisions can be remembered, because neither a version of an idea nor the profiles in a
        # configuration ever change.
        self._decided: dict[tuple[str, str, int], bool] = {}

    def admits(self, profile: str, name: str, version: int) -> bool:
        """Return whether a profile may use a version of an idea; see `Publications.admits`."""
        offer = self._offer.to(in_profile(profile, LOCAL))
        if offer.profile is None or not offer.profile.admits_idea(name):
            return False
        if offer.profile.ideas is not None:
            return True

        key = (profile, name, version)
        if key not in self._decided:
            if len(self._decided) >= _MOST_DECIDED:
                self._decided.clear()
            try:
                publication = self._store.publications.get(name, version, caller=SEES_ALL)
            except UnknownPublicationError:
                return False
            if read_pins(publication.plan_or_guide) is None:
                # Do not remember this decision, because it is still unknown which tools the calls
                # of the idea refer to.
                return self._needs_nothing_else(publication, offer)
            self._decided[key] = self._needs_nothing_else(publication, offer)
        return self._decided[key]

    def _needs_nothing_else(self, publication: Publication, offer: Offer) -> bool:
        """Return whether an idea, with the ideas that it calls, needs only tools in the given
        offer.
        """
        return why_not_here(self._store, publication, SEES_ALL, offer.missing.hides) is None
