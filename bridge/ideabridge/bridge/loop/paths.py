"""PathIndex: which calls write a path that overlaps another."""

from __future__ import annotations

from ideabridge.bridge.context.reference import Path


class _Node:
    __slots__ = ("children", "writers")

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.children: dict[str, _Node] = {}


class PathIndex:
    """A trie of written paths. A path overlaps itself, its prefixes and its extensions."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, path: Path, writer: int) -> None:
        """Note that `writer` writes `path`."""
        node = self._root
        for key in path:
            child = node.children.get(key)
            if child is None:
                child = node.children[key] = _Node()
            node = child
        node.writers.append(writer)

    def overlapping(self, path: Path) -> set[int]:
        """The writers of every path that overlaps `path`."""
        node: _Node | None = self._root
        found: set[int] = set(self._root.writers)
        for key in path:
            node = node.children.get(key)
            if node is None:
                return found
            found.update(node.writers)
        below = list(node.children.values())
        while below:
            child = below.pop()
            found.update(child.writers)
            below.extend(child.children.values())
        return found
