"""Dependency cycles: groups nodes that can reach each other (the strongly connected components of a graph).

Promises: linear time and no recursion, so a chain of 10,000 nodes overflows no stack (Tarjan's algorithm). A group
comes after the groups that it leads to. Each node is in exactly one group.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence


def grouped(below: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the groups of a graph; every node, and every node that it leads to, must be a key."""
    search = _Search(below)
    for node in below:
        if node not in search.numbers:
            search.explore(node)
    return search.groups


class _Search:
    def __init__(self, below: Mapping[str, Sequence[str]]) -> None:
        self._below = below
        self.numbers: dict[str, int] = {}
        self._lowest: dict[str, int] = {}
        """The lowest number of a node that this one reaches, among the nodes of unfinished groups."""
        self._open: list[str] = []
        self._is_open: set[str] = set()
        self.groups: list[list[str]] = []

    def explore(self, start: str) -> None:
        path: list[tuple[str, Iterator[str]]] = [self._entered(start)]
        while path:
            node, children = path[-1]
            child = self._next_new(node, children)
            if child is not None:
                path.append(self._entered(child))
                continue
            path.pop()
            if path:
                parent = path[-1][0]
                self._lowest[parent] = min(self._lowest[parent], self._lowest[node])
            if self._lowest[node] == self.numbers[node]:
                self._close(node)

    def _entered(self, node: str) -> tuple[str, Iterator[str]]:
        self.numbers[node] = self._lowest[node] = len(self.numbers)
        self._open.append(node)
        self._is_open.add(node)
        return node, iter(self._below[node])

    def _next_new(self, node: str, children: Iterable[str]) -> str | None:
        """Return the next child that was not visited yet; take the numbers of visited ones into account."""
        for child in children:
            if child not in self.numbers:
                return child
            if child in self._is_open:
                self._lowest[node] = min(self._lowest[node], self.numbers[child])
        return None

    def _close(self, node: str) -> None:
        group = []
        while True:
            member = self._open.pop()
            self._is_open.discard(member)
            group.append(member)
            if member == node:
                break
        self.groups.append(group)
