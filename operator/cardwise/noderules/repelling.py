"""Pods that are there and refuse others near them: required anti-affinity, seen from the other end.

What is near is said by a label of nodes (the topology key): two nodes with the same value of it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from cardwise.noderules.needs import Repulsion

_NOBODY: Final[Mapping[str, str]] = {}


class Repelling:
    """Every repulsion that is in force, and in which places."""

    def __init__(self) -> None:
        """Nobody repels anybody."""
        self._places: dict[Repulsion, dict[str, int]] = {}
        """How many Pods repel so, by the value of the topology key; the order is that of age."""
        self._members: dict[str, dict[str, set[str]]] = {}
        """The nodes of every place, by topology key and value, for the keys in use."""
        self._by_label: dict[tuple[str, str], dict[Repulsion, None]] = {}
        """Repulsions that only Pods of one label can meet: most of them."""
        self._by_more: dict[Repulsion, None] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    def meeting(self, namespace: str, labels: Mapping[str, str]) -> tuple[Repulsion, ...]:
        """The repulsions that are meant for a Pod."""
        if not self._places:
            return ()
        found = {
            repulsion
            for label in labels.items()
            for repulsion in self._by_label.get(label, ())
            if repulsion.repels(namespace, labels)
        }
        found.update(each for each in self._by_more if each.repels(namespace, labels))
        # In an order of their own, so that the same ones are the same key.
        return tuple(sorted(found, key=hash)) if len(found) > 1 else tuple(found)

    def is_repelled(self, node: str, meeting: Iterable[Repulsion]) -> bool:
        """Whether one of these is in force at a node."""
        labels = self._labels.get(node, _NOBODY)
        return any(
            labels.get(repulsion.topology_key) in self._places.get(repulsion, ())
            for repulsion in meeting
        )

    def change(self, node: str, repulsion: Repulsion, by: int) -> set[str]:
        """Count one more or one less at a node; the nodes at which that made a difference."""
        value = self._labels.get(node, _NOBODY).get(repulsion.topology_key)
        return set() if value is None else self._change(repulsion, value, by)

    def relabel(
        self, node: str, labels: Mapping[str, str] | None, here: Mapping[Repulsion, int]
    ) -> set[str]:
        """Give a node other labels, or none once it is gone.

        Args:
            node: its name.
            labels: as they are from now on.
            here: how many Pods of that node repel how.

        Returns:
            The nodes at which that made a difference.
        """
        before, after = self._labels.get(node, _NOBODY), labels or _NOBODY
        moved = [
            (repulsion, count, before.get(key), after.get(key))
            for repulsion, count in here.items()
            if before.get(key := repulsion.topology_key) != after.get(key)
        ]
        touched = set()
        for repulsion, count, old, _ in moved:
            if old is not None:
                touched |= self._change(repulsion, old, -count)
        self._move(node, before, after)
        if labels is None:
            self._labels.pop(node, None)
        else:
            self._labels[node] = labels
        for repulsion, count, _, new in moved:
            if new is not None:
                touched |= self._change(repulsion, new, count)
        return touched

    def _move(self, node: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Take a node from the places of its labels before to those of its labels after."""
        for key, places in self._members.items():
            old, new = before.get(key), after.get(key)
            if old == new:
                continue
            if old is not None:
                places[old].discard(node)
                if not places[old]:
                    del places[old]
            if new is not None:
                places.setdefault(new, set()).add(node)

    def _change(self, repulsion: Repulsion, value: str, by: int) -> set[str]:
        places = self._places.get(repulsion)
        if places is None:
            places = self._places[repulsion] = {}
            self._enlist(repulsion)
        had = places.get(value, 0)
        if had + by:
            places[value] = had + by
        else:
            places.pop(value, None)
            if not places:
                del self._places[repulsion]
                self._strike_off(repulsion)
        if bool(had) == bool(had + by):
            return set()
        return set(self._members_of(repulsion.topology_key).get(value, ()))

    def _members_of(self, key: str) -> dict[str, set[str]]:
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = {}
            for node, labels in self._labels.items():
                if (value := labels.get(key)) is not None:
                    members.setdefault(value, set()).add(node)
        return members

    def _enlist(self, repulsion: Repulsion) -> None:
        label = _only_for(repulsion)
        if label is None:
            self._by_more[repulsion] = None
        else:
            self._by_label.setdefault(label, {})[repulsion] = None

    def _strike_off(self, repulsion: Repulsion) -> None:
        label = _only_for(repulsion)
        if label is None:
            del self._by_more[repulsion]
            return
        listed = self._by_label[label]
        del listed[repulsion]
        if not listed:
            del self._by_label[label]


def _only_for(repulsion: Repulsion) -> tuple[str, str] | None:
    """A label without which no Pod is meant; None where there is no such label."""
    for requirement in repulsion.selector:
        if requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.key, next(iter(requirement.values))
    return None
