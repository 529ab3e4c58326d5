"""A failed Pod → whether kubelet rejected it, and whether the node's cards are to blame.

The words are kubelet's (``status.reason`` and ``status.message``). What a Pod brings on itself must
not count against the node: its author could then close nodes for everybody else.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from cardwise.names import RESOURCE_COUNT, RESOURCES
from cardwise.wire.containers import containers_of
from cardwise.wire.fields import at, mapping, text

UNEXPECTED: Final = "UnexpectedAdmissionError"
"""A device plugin, or another of kubelet's managers, could not give what was asked."""
_REJECTED: Final = "Pod was rejected: "
"""How kubelet begins the message of each; whatever else fails a Pod is told in other words."""
_OUT_OF: Final = "OutOf"
_KNOWN: Final = frozenset(
    {
        UNEXPECTED,
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        f"{_OUT_OF}{RESOURCE_COUNT}",
        "NodeAffinity",
        "NodePorts",
        "NodeShutdown",
        "TaintToleration",
        "TopologyAffinityError",
        "Evicted",
        "SysctlForbidden",
    }
)
"""Reasons by their names; a label of a metric can't have one for each text that is possible."""
_ANY_RESOURCE: Final = "OutOfExtendedResources"
_OTHER: Final = "Other"
_OURS: Final = re.compile(rf"(?<![\w./-]){re.escape(RESOURCE_COUNT)}(?![\w/-]|\.\w)")
_OF_A_PLUGIN: Final = ("rpc error", "has been stopped")
"""A device plugin did not answer; kubelet does not say which."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why kubelet did not let a Pod in."""

    reason: str
    """One of few words."""
    of_cards: bool
    """Whether any Pod with cards would have got the same answer there."""


def rejection_of(pod: dict[str, Any]) -> Rejection | None:
    """Read why kubelet rejected a Pod; None where it did not: it runs, or it ended otherwise."""
    if at(pod, "status", "phase") != "Failed":
        return None
    reason, message = text(at(pod, "status", "reason")), text(at(pod, "status", "message"))
    if not reason or not message.startswith(_REJECTED):
        return None
    return Rejection(_word(reason), _is_of_cards(pod, reason, message))


def _word(reason: str) -> str:
    if reason in _KNOWN:
        return reason
    return _ANY_RESOURCE if reason.startswith(_OUT_OF) else _OTHER


def _is_of_cards(pod: dict[str, Any], reason: str, message: str) -> bool:
    if reason == f"{_OUT_OF}{RESOURCE_COUNT}":
        return True
    if reason != UNEXPECTED:
        return False
    if _OURS.search(message):
        return True
    return any(word in message for word in _OF_A_PLUGIN) and not _asks_other_devices(pod)


def _asks_other_devices(pod: dict[str, Any]) -> bool:
    """Whether it asks another device plugin, too: that one may be to blame, and its author knew."""
    return any(
        "/" in name and name not in RESOURCES
        for container in containers_of(pod)
        for name in mapping(at(container.json, "resources", "limits"))
    )
