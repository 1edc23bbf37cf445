"""Cycles: calls that wait for each other in a circle (DESIGN 4.9)."""

from __future__ import annotations

from collections.abc import Mapping


def reaches(edges: Mapping[int, set[int]], start: int, goal: int) -> bool:
    """Whether a way leads from `start` to `goal`."""
    seen = {start}
    todo = [start]
    while todo:
        for following in edges.get(todo.pop(), ()):
            if following == goal:
                return True
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False


def cycles(edges: Mapping[int, set[int]]) -> list[list[int]]:
    """One cycle of each strongly connected part, found by Kahn's algorithm and a walk through what is left."""
    waiting = {index: {other for other in targets if other in edges} for index, targets in edges.items()}
    readers: dict[int, list[int]] = {}
    for index, targets in waiting.items():
        for target in targets:
            readers.setdefault(target, []).append(index)
    free = [index for index, targets in waiting.items() if not targets]
    while free:
        done = free.pop()
        del waiting[done]
        for reader in readers.get(done, ()):
            if reader in waiting:
                waiting[reader].discard(done)
                if not waiting[reader]:
                    free.append(reader)
    found: list[list[int]] = []
    visited: set[int] = set()
    for start in sorted(waiting):
        way: list[int] = []
        index = start
        while index not in visited:
            visited.add(index)
            way.append(index)
            index = min(target for target in waiting[index] if target in waiting)
        if index in way:
            found.append(way[way.index(index) :])
    return found
