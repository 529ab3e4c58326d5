"""Which Pods are a gang: decided together, all or none.

A gang is named by the label of the coscheduling plugin or by an annotation of ours; its size stands
on the Pods, or in the PodGroup of that name.
"""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from cardwise.doors import MOST_PODS, gang_size
from cardwise.model import NodeView
from cardwise.names import GANG, GANG_SIZE, POD_GROUP_LABEL
from cardwise.wire.fields import annotation, at, quoted, text
from cardwise.wire.pods import pod_ref

_PLAIN = re.compile(r"[A-Za-z0-9._/-]{1,63}")
_GROUP = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST = 253

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The gang of a Pod, as the Pod says."""

    key: Key
    size: int | None
    """How many Pods it has at least; None: its PodGroup says, if there is one."""
    unreadable: str = ""
    """What is written as its size, where that is none."""

    def __str__(self) -> str:
        name = self.key[1]
        # Anybody may write it, and it goes into the log.
        return name if _PLAIN.fullmatch(name) else quoted(name)

    @property
    def may_have_group(self) -> bool:
        """Whether a PodGroup can have its name."""
        return _GROUP.fullmatch(self.key[1]) is not None and len(self.key[1]) <= _LONGEST


def gang_of(pod: dict[str, Any]) -> Gang | None:
    """The gang that a Pod says it is one of; None for a Pod on its own."""
    name = (annotation(pod, GANG) or "").strip()
    name = name or text(at(pod, "metadata", "labels", POD_GROUP_LABEL))
    if not name:
        return None
    written = annotation(pod, GANG_SIZE) or ""
    size = gang_size(written)
    unreadable = quoted(written) if written.strip() and size is None else ""
    return Gang((pod_ref(pod).namespace, name), size, unreadable)


def size_said(gangs: Iterable[Gang | None]) -> int | None:
    """The largest size that is written on any of a gang's Pods; None where none is."""
    return max((gang.size for gang in gangs if gang and gang.size), default=None)


def incomplete(gang: Gang, here: int, size: int) -> str:
    """The sentence for a gang of which some Pods are missing."""
    return f"Gang {gang}: {here} of its {size} Pods are here; none is placed before all are."


def as_not_placed(view: NodeView, members: Set[str]) -> NodeView:
    """A node as it is to be told of while a gang is tried: its Pods have no cards there yet.

    Args:
        view: with cards that are held for members of the gang, to see whether all fit.
        members: their ``namespace/name``.

    Returns:
        The view, where one text in front of each card's tenants stands for those members.
    """
    return replace(view, tenants=tuple(_told_apart(names, members) for names in view.tenants))


def _told_apart(tenants: Sequence[str], members: Set[str]) -> tuple[str, ...]:
    tried = [name for name in tenants if name in members]
    if not tried:
        return tuple(tenants)
    more = f" and {len(tried) - 1} more" if len(tried) > 1 else ""
    others = (name for name in tenants if name not in members)
    return (f"{tried[0]}{more} (of this gang, not placed)", *others)


def without_size(gang: Gang, wrong: str = "") -> str:
    """The sentence for a gang whose size nobody says, or says in a way that can't be read.

    Args:
        gang: of which no Pod is placed.
        wrong: what is written as its size, if anything.
    """
    if wrong:
        return (
            f"Gang {gang}: {GANG_SIZE} is {wrong}, which is no whole number from 1 to {MOST_PODS}; "
            "write how many Pods it has."
        )
    return (
        f"Gang {gang}: nobody says how many Pods it has. Write "
        f'{GANG_SIZE}: "8", say, on each of its Pods, or make the PodGroup of its name.'
    )
