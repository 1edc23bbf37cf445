"""Cycles: calls that wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def components(edges: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """The strongly connected parts, each after all it leads to (Tarjan's algorithm, linear and without recursion).

    Args:
        edges: what each node waits for; looked at in the order given. Nodes that are no key are left out.

    Returns:
        Parts of one node where it stands in no circle; larger ones sorted.
    """
    found: list[list[int]] = []
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[int] = []
    on_path: set[int] = set()
    for root in edges:
        if root in number:
            continue
        walk: list[tuple[int, Iterator[int]]] = [(root, iter(edges[root]))]
        number[root] = lowest[root] = len(number)
        path.append(root)
        on_path.add(root)
        while walk:
            node, following = walk[-1]
            for other in following:
                if other not in edges:
                    continue
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    walk.append((other, iter(edges[other])))
                    break
                if other in on_path:
                    lowest[node] = min(lowest[node], number[other])
            else:
                walk.pop()
                if walk:
                    above = walk[-1][0]
                    lowest[above] = min(lowest[above], lowest[node])
                if lowest[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(path.pop())
                    on_path.difference_update(part)
                    found.append(sorted(part))
    return found


def emission(data: Mapping[int, Iterable[int]], listed: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """An order of all calls in which data flows forwards, and listed order is kept where data does not forbid it.

    Args:
        data: what each call waits for, in listing order.
        listed: the earlier calls that each call should wait for because of their listed order.

    Returns:
        Parts to be taken one after the other. A part of several calls is a circle: nothing orders those.
    """
    wished = {index: [*targets, *listed.get(index, ())] for index, targets in data.items()}
    order: list[list[int]] = []
    for part in components(wished):
        # Where the wish closes a circle with the data, the wish gives way: within that circle only.
        members = set(part)
        inner = {index: [one for one in data[index] if one in members] for index in part} if part[1:] else {}
        order.extend(components(inner) if inner else [part])
    return order


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
