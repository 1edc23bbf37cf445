"""Ideas: saved triples (context, schema, solution), and the store of ideas, publications and runs."""

from ideabridge.bridge.ideas.filters import IdeaFilter
from ideabridge.bridge.ideas.idea import Idea, IdeaMeta, function_schemas
from ideabridge.bridge.ideas.records import IdeaHit, IdeaRecord, Page, Publication, RunRecord, StoredIdea
from ideabridge.bridge.ideas.store import Store

__all__ = [
    "Idea",
    "IdeaFilter",
    "IdeaHit",
    "IdeaMeta",
    "IdeaRecord",
    "Page",
    "Publication",
    "RunRecord",
    "Store",
    "StoredIdea",
    "function_schemas",
]
