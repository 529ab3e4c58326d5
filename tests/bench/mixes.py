"""What the Pods of a trial ask for. All contestants get the same Pods, but for who is to bind them.

A Pod asks for ``nvidia.com/gpu`` and ``nvidia.com/gpumem``. The nodes advertise what their cards
come to, so that a kube-scheduler without an extender has a sum to check as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cardwise import names

Json = dict[str, Any]

REFUSED = "bench-refused"
"""A label: the Pod fits nowhere. An extender that does nothing else knows it by that."""
_TOO_MUCH = 50_000_000
"""MiB: more than a node's cards come to, so that a kube-scheduler alone refuses it as well."""


@dataclass(frozen=True)
class Mix:
    """A kind of load."""

    name: str
    title: str
    asks: Callable[[int], tuple[dict[str, int], str]]
    """By the Pod's number: its resources, and its policy."""
    fits: Callable[[int], bool] = lambda _: True


def _alike(_: int) -> tuple[dict[str, int], str]:
    return {names.RESOURCE_COUNT: 1, names.RESOURCE_MEMORY: 1000}, "binpack"


def _fifty(number: int) -> tuple[dict[str, int], str]:
    return {names.RESOURCE_COUNT: 1, names.RESOURCE_MEMORY: 500 + 20 * (number % 50)}, "binpack"


def _mesh(_: int) -> tuple[dict[str, int], str]:
    return {names.RESOURCE_COUNT: 2, names.RESOURCE_MEMORY: 1000}, "topology-aware,binpack"


def _half(number: int) -> tuple[dict[str, int], str]:
    memory = 1000 if number % 2 else _TOO_MUCH
    return {names.RESOURCE_COUNT: 1, names.RESOURCE_MEMORY: memory}, "binpack"


MIXES = {
    mix.name: mix
    for mix in (
        Mix("alike", "all alike", _alike),
        Mix("fifty", "50 different requests", _fifty),
        Mix("mesh", "2 cards, topology-aware", _mesh),
        Mix("half", "half refused and waiting", _half, fits=lambda number: bool(number % 2)),
    )
}


def pod(mix: Mix, number: int, *, scheduler: str, gated: bool) -> Json:
    """A Pod as it leaves admission.

    Args:
        mix: what it asks for.
        number: of the Pod.
        scheduler: who binds it.
        gated: whether it waits behind our gate.
    """
    resources, policy = mix.asks(number)
    amounts = {name: str(amount) for name, amount in resources.items()}
    spec: Json = {
        "schedulerName": scheduler,
        "containers": [
            {
                "name": "app",
                "image": "none",
                "resources": {"limits": amounts, "requests": amounts},
            }
        ],
    }
    if gated:
        spec["schedulingGates"] = [{"name": names.GATE}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"p{number:05}",
            "annotations": {names.POLICY: policy},
            "labels": {} if mix.fits(number) else {REFUSED: "true"},
        },
        "spec": spec,
    }
