"""What a gang of a cluster waits for, by what its Pods say."""

from collections.abc import Iterator, Sequence
from typing import Any

from cardwise.gangs import Gang, gang_of, incomplete, size_said, without_size
from cardwise.wire import pods

Json = dict[str, Any]


def unbegun(pod: Json, everyone: Sequence[Json]) -> Gang | None:
    """A Pod's gang, where it waits for the others; once one is placed the rest joins singly."""
    gang = gang_of(pod)
    if gang is None or any(pods.placed_node(each) for each in _members(gang, everyone)):
        return None
    return gang


def lacking_in(gang: Gang, everyone: Sequence[Json]) -> str:
    """What a gang that has not begun lacks; empty where it lacks nothing that its Pods tell of.

    Its size may stand in a PodGroup, which is not read.
    """
    waiting = [pod for pod in _members(gang, everyone) if pods.waits_at_gate(pod)]
    of_each = [each for each in map(gang_of, waiting) if each is not None]
    size = size_said(of_each)
    if size is not None:
        return incomplete(gang, len(waiting), size) if len(waiting) < size else ""
    wrong = next((each.unreadable for each in of_each if each.unreadable), "")
    return without_size(gang, wrong) if wrong or not gang.may_have_group else ""


def _members(gang: Gang, everyone: Sequence[Json]) -> Iterator[Json]:
    for pod in everyone:
        other = gang_of(pod)
        if other is not None and other.key == gang.key:
            yield pod
