"""Many trees at once, as columns of numbers. A node is a number; its parent is a smaller one, or NONE.

Values that propagate up or down a tree (the end of a branch, the order of a walk) are computed level by level, for all
trees together: there are few levels and many trees.
"""

from __future__ import annotations

import numpy as np

from raceway.pipeline.transforms.beginnings import Numbers

NONE = -1


class Forest:
    """Trees of nodes. `trees` says which tree a node is in; trees are numbered from 0, and their nodes are consecutive.

    Every tree has at least one root.
    """

    def __init__(self, parents: Numbers, trees: Numbers) -> None:
        self.parents, self.trees, self.count = parents, trees, len(parents)
        self.tree_count = int(trees[-1]) + 1 if self.count else 0
        self.first_nodes: Numbers = np.searchsorted(trees, np.arange(self.tree_count))
        self.depths = self._depths()
        self._levels = self._by_level()
        # Siblings share a parent; the roots of one tree are siblings too, with a number beyond all nodes as parent.
        self._families: Numbers = np.where(parents == NONE, self.count + trees, parents)

    def _depths(self) -> Numbers:
        """Return the depth of each node; a root has 1. Pointer jumping: each step reaches twice as far up."""
        # One extra node at the end is its own parent with depth 0, so that roots need no special case.
        above = np.append(np.where(self.parents == NONE, self.count, self.parents), self.count)
        depths = np.append(np.ones(self.count, np.int64), 0)
        while (above != self.count).any():
            depths, above = depths + depths[above], above[above]
        return depths[:-1]

    def _by_level(self) -> list[Numbers]:
        """Return the nodes that have a parent, level by level from the root."""
        order = np.argsort(self.depths, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.depths[order])) + 1)[1:]

    def greatest_below(self, values: Numbers) -> Numbers:
        """Return the greatest value among each node and its descendants."""
        found = values.copy()
        for level in reversed(self._levels):
            # `at` is unbuffered: several children of one parent are all taken into account.
            np.maximum.at(found, self.parents[level], found[level])
        return found

    def walk(self) -> Numbers:
        """Return all nodes tree by tree, each before its descendants, siblings in order of their numbers."""
        sizes = np.ones(self.count, np.int64)
        for level in reversed(self._levels):
            np.add.at(sizes, self.parents[level], sizes[level])
        # A node's place is its parent's, plus one, plus the sizes of its earlier siblings' subtrees.
        siblings = np.argsort(self._families, kind="stable")
        before = np.cumsum(sizes[siblings]) - sizes[siblings]
        firsts = _firsts(self._families[siblings])
        before -= np.repeat(before[firsts], np.diff(np.append(firsts, self.count)))
        places = np.empty(self.count, np.int64)
        places[siblings] = before
        roots = self.parents == NONE
        places[roots] += self.first_nodes[self.trees[roots]]
        for level in self._levels:
            places[level] += places[self.parents[level]] + 1
        found = np.empty(self.count, np.int64)
        found[places] = np.arange(self.count)
        return found

    def paths(self, values: Numbers) -> tuple[Numbers, Numbers]:
        """Follow the greatest value from root to leaf in each tree; the first of equals.

        Returns the number of nodes on each tree's path, and the nodes, tree by tree.
        """
        order = np.lexsort((-values, self._families))
        best = np.full(self.count + self.tree_count, NONE)
        chosen = order[_firsts(self._families[order])]
        best[self._families[chosen]] = chosen
        trees, nodes = np.arange(self.tree_count), best[self.count :]
        steps: list[tuple[Numbers, Numbers]] = []
        while len(nodes):
            steps.append((trees, nodes))
            goes_on = best[nodes] != NONE
            trees, nodes = trees[goes_on], best[nodes[goes_on]]
        found_trees, found_nodes = (np.concatenate(each) for each in zip(*steps, strict=True))
        lengths = np.bincount(found_trees, minlength=self.tree_count)
        return lengths, found_nodes[np.argsort(found_trees, kind="stable")]


def _firsts(values: Numbers) -> Numbers:
    """Return the places where the value changes."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else values
