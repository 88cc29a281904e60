"""Maximum flow in whole numbers, by blocking flows (E. A. Dinic, Soviet Mathematics Doklady 11, 1970)."""

from __future__ import annotations

INFINITE = 1 << 300  # capacities from fractions may become large numbers


class Flow:
    """A directed graph with capacities. Arc i and its residual i ^ 1 are stored side by side."""

    def __init__(self, vertices: int) -> None:
        """Makes a graph without arcs."""
        self.arcs: list[list[int]] = [[] for _ in range(vertices)]
        self.head: list[int] = []
        self.left: list[int] = []

    def vertex(self) -> int:
        """Adds a vertex."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> int:
        """Adds an arc and returns its number; `left[number ^ 1]` becomes the flow over it."""
        number = len(self.head)
        self.arcs[tail].append(number)
        self.arcs[head].append(number + 1)
        self.head += (head, tail)
        self.left += (capacity, 0)
        return number

    def run(self, source: int, sink: int, most: int = INFINITE) -> int:
        """Adds flow from `source` to `sink`, up to `most`; returns how much was added."""
        total = 0
        while total < most:
            level = self._levels(source, sink)
            if level is None:
                break
            place = [0] * len(self.arcs)
            while total < most:
                amount = self._augment(source, sink, level, place, most - total)
                if amount == 0:
                    break
                total += amount
        return total

    def reachable(self, source: int) -> set[int]:
        """Returns the vertices reachable from `source` in the residual graph: one side of a minimum cut after `run`."""
        seen, todo = {source}, [source]
        while todo:
            for arc in self.arcs[todo.pop()]:
                head = self.head[arc]
                if self.left[arc] and head not in seen:
                    seen.add(head)
                    todo.append(head)
        return seen

    def _levels(self, source: int, sink: int) -> list[int] | None:
        level = [-1] * len(self.arcs)
        level[source] = 0
        todo = [source]
        for vertex in todo:
            for arc in self.arcs[vertex]:
                head = self.head[arc]
                if self.left[arc] and level[head] < 0:
                    level[head] = level[vertex] + 1
                    todo.append(head)
            if level[sink] >= 0:
                return level
        return None

    def _augment(self, source: int, sink: int, level: list[int], place: list[int], most: int) -> int:
        path: list[int] = []
        vertex = source
        while vertex != sink:
            arcs = self.arcs[vertex]
            while place[vertex] < len(arcs):
                arc = arcs[place[vertex]]
                if self.left[arc] and level[self.head[arc]] == level[vertex] + 1:
                    break
                place[vertex] += 1
            else:
                if not path:
                    return 0
                vertex = self.head[path.pop() ^ 1]
                place[vertex] += 1
                continue
            path.append(arc)
            vertex = self.head[arc]
        amount = min(most, *(self.left[arc] for arc in path))
        for arc in path:
            self.left[arc] -= amount
            self.left[arc ^ 1] += amount
        return amount
