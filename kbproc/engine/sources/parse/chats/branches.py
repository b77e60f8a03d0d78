"""Finds the messages of a log that a person went back from, where messages name their parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A record of a tree, in the order of its log.

    `begins`: the answer or question with which the record may begin a branch. A record without one,
    such as a tool's output, belongs to its parent's branch. `is_root`: it needs no parent.
    """

    id: str
    parent: str
    begins: str | None
    is_root: bool = False


def left_behind(nodes: Sequence[Node], leaf: str) -> set[str]:
    """Returns the ids of the nodes on branches that do not lead to the leaf.

    Outputs of tools that ran at the same time stand beside the way to the leaf, and stay.
    """
    parents = _parents(nodes)
    way = _way(parents, leaf)
    on_way = {node.begins for node in nodes if node.id in way}
    ids: set[str] = set()
    for node in nodes:
        if node.id in way:
            continue
        begins_branch = node.begins is not None and node.begins not in on_way
        if parents[node.id] in ids or begins_branch:
            ids.add(node.id)
    return ids


def _parents(nodes: Sequence[Node]) -> dict[str, str]:
    """Returns id → id of the parent; the node before it for one whose parent is not in the log.

    A client that sums up a long session begins a new tree, which goes on with the one before.
    """
    ids = {node.id for node in nodes}
    parents: dict[str, str] = {}
    before = ""
    for node in nodes:
        is_known = node.parent in ids or (node.is_root and not node.parent)
        parents.setdefault(node.id, node.parent if is_known else before)
        before = node.id
    return parents


def _way(parents: dict[str, str], leaf: str) -> set[str]:
    """Returns the ids from the leaf up to the root."""
    way: set[str] = set()
    while leaf in parents and leaf not in way:
        way.add(leaf)
        leaf = parents[leaf]
    return way
