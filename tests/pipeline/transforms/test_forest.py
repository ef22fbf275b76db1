from __future__ import annotations

import numpy as np

from raceway.pipeline.transforms.forest import NONE, Forest

#   0            4      two trees: 0 with the branches 1-3 and 2, and 4 with 5
#   1  2         5
#   3
FOREST = Forest(np.array([NONE, 0, 0, 1, NONE, 4]), np.array([0, 0, 0, 0, 1, 1]))


def test_depths_and_first_nodes() -> None:
    assert FOREST.depths.tolist() == [1, 2, 2, 3, 1, 2]
    assert FOREST.first_nodes.tolist() == [0, 4]


def test_a_node_has_the_greatest_value_of_its_branch() -> None:
    assert FOREST.greatest_below(np.array([0, 1, 9, 5, 7, 2])).tolist() == [9, 5, 9, 5, 7, 2]


def test_a_walk_visits_a_node_before_its_descendants_and_siblings_in_order() -> None:
    assert FOREST.walk().tolist() == [0, 1, 3, 2, 4, 5]


def test_a_path_follows_the_greatest_value_and_the_first_of_equals() -> None:
    lengths, nodes = FOREST.paths(np.array([0, 1, 9, 5, 7, 2]))
    assert (lengths.tolist(), nodes.tolist()) == ([2, 2], [0, 2, 4, 5])
    lengths, nodes = FOREST.paths(np.zeros(6, np.int64))
    assert (lengths.tolist(), nodes.tolist()) == ([3, 2], [0, 1, 3, 4, 5])


def test_no_trees_are_a_forest_too() -> None:
    empty = Forest(np.array([], np.int64), np.array([], np.int64))
    assert (empty.tree_count, empty.walk().tolist()) == (0, [])
