"""The feature matrix: one function a step, its first docstring line is its title."""

import time
from collections.abc import Callable
from typing import TypeAlias

from cardwise.names import GATE, Door
from demo.theatre import NODE, Theatre

Step: TypeAlias = Callable[[Theatre], None]

_ALLOCATED = r"jsonpath={.metadata.annotations.hami\.io/vgpu-devices-allocated}"
_PINNED = (
    "{.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    ".nodeSelectorTerms[*].matchFields[*].values[*]}"
)


def spread(theatre: Theatre) -> None:
    """Without a policy, Pods spread over GPU 0 to 3."""
    got = [theatre.create(f"spread-{number}").gpu_of(f"spread-{number}") for number in range(4)]
    theatre.expect("four Pods are on four cards, in order", got, [0, 1, 2, 3])


def binpack(theatre: Theatre) -> None:
    """`binpack` stacks on the card that is fullest already."""
    got = [
        theatre.create(f"pack-{number}", policy="binpack").gpu_of(f"pack-{number}")
        for number in range(2)
    ]
    theatre.expect("both Pods are on GPU 0", got, [0, 0])


def mutex_blocked(theatre: Theatre) -> None:
    """`mutex` waits while every card has a tenant, and `kubectl describe` says why."""
    # What kube-scheduler says of it, too.
    _blocked(theatre, "1 ExclusiveDeviceAllocateConflict")


def mutex_gated(theatre: Theatre) -> None:
    """`mutex` waits behind its gate while every card has a tenant; `kubectl describe` says why."""
    _blocked(theatre, "4/4 ExclusiveDeviceAllocateConflict")
    theatre.expect_text(
        "kubectl calls it SchedulingGated",
        theatre.show("get", "pod", "exclusive"),
        "SchedulingGated",
    )
    gates = theatre.ask("get", "pod", "exclusive", "-o", "jsonpath={.spec.schedulingGates[*].name}")
    theatre.expect("its gate is ours alone", gates, GATE)


def _blocked(theatre: Theatre, told: str) -> None:
    theatre.create("exclusive", policy="mutex")
    theatre.eventually(
        "the reason is told",
        lambda: theatre.ask("describe", "pod", "exclusive"),
        "GPU 0: default/pack-0, default/pack-1, default/spread-0",
        told,
        within=20,
    )
    theatre.show("describe", "pod", "exclusive")
    phase = theatre.ask("get", "pod", "exclusive", "-o", "jsonpath={.status.phase}")
    theatre.expect("it is Pending", phase, "Pending")
    node = theatre.ask("get", "pod", "exclusive", "-o", "jsonpath={.spec.nodeName}")
    theatre.expect("it is on no node", node, "")
    events = theatre.ask(
        *("get", "events", "--field-selector", "involvedObject.name=exclusive"),
        *("-o", "jsonpath={range .items[*]}{.reason}{'\\n'}{end}"),
    )
    theatre.expect_text(
        "its event says ExclusiveDeviceAllocateConflict", events, "ExclusiveDeviceAllocateConflict"
    )


def woken(theatre: Theatre) -> None:
    """A tenant leaves: the waiting Pod gets its card within 2 s, untouched."""
    theatre.delete("spread-2")
    gone = time.monotonic()
    theatre.show(
        *("wait", "pod/exclusive", "--timeout=20s"),
        f"--for=jsonpath={{.spec.nodeName}}={NODE}",
    )
    seconds = time.monotonic() - gone
    theatre.tell(f"placed {seconds:.2f} s after the tenant was gone")
    theatre.expect("it took less than 2 s", seconds < 2, True)
    theatre.expect("it is on the card that became free", theatre.gpu_of("exclusive"), 2)


def mutex_binpack(theatre: Theatre) -> None:
    """`mutex,binpack` with GPU 0 and 1 occupied takes GPU 2."""
    theatre.clear()
    for name, policy, gpu in [
        ("tenant-0a", "binpack", 0),
        ("tenant-0b", "binpack", 0),
        ("tenant-1", "spread", 1),
    ]:
        got = theatre.create(name, policy=policy).gpu_of(name)
        theatre.expect(f"{name} is on GPU {gpu}", got, gpu)
    got = theatre.create("training", policy="mutex,binpack").gpu_of("training")
    theatre.expect("training is on GPU 2", got, 2)
    theatre.tell("The controller's log of that decision:")
    for line in theatre.decision_log("training"):
        theatre.tell(f"  {line}")


def annotation(theatre: Theatre) -> None:
    """The Pod carries its allocation, written together with its node."""
    _allocated(theatre)


def pinned(theatre: Theatre) -> None:
    """The Pod carries its allocation and its node, written as its gate was taken away."""
    _allocated(theatre)
    node = theatre.show("get", "pod", "training", "-o", f"jsonpath={_PINNED}")
    theatre.expect("its node affinity names its node alone", node, NODE)
    gates = theatre.ask("get", "pod", "training", "-o", "jsonpath={.spec.schedulingGates}")
    theatre.expect("its gate is gone", gates, "")
    scheduler = theatre.ask("get", "pod", "training", "-o", "jsonpath={.spec.schedulerName}")
    theatre.expect("the cluster's own kube-scheduler bound it", scheduler, "default-scheduler")


def _allocated(theatre: Theatre) -> None:
    text = theatre.show("get", "pod", "training", "-o", _ALLOCATED)
    uuid = theatre.ask("get", "gpunode", NODE, "-o", "jsonpath={.status.cards[2].uuid}")
    theatre.expect("it names GPU 2 with 1000 MiB", text, f"{uuid},NVIDIA,1000,0:;")


def advertised(theatre: Theatre) -> None:
    """`kubectl describe node` shows the cards' totals, which the agent advertises."""
    text = theatre.show("describe", "node", NODE)
    told = {words[0]: words[1:] for line in text.splitlines() if (words := line.split())}
    theatre.expect(f"{NODE} has 4 x 15360 MiB", told["nvidia.com/gpumem:"], ["61440"])
    theatre.expect("4000 of them are asked for", told["nvidia.com/gpumem"][0], "4k")


def columns(theatre: Theatre) -> None:
    """`kubectl get gpunodes` shows cards and what is used of them."""
    theatre.eventually(
        "usage is told",
        lambda: theatre.ask("get", "gpunodes"),
        "NVIDIA-Tesla T4",
        "4/40",
        "4000/61440",
        within=15,
    )
    text = theatre.show("get", "gpunodes")
    theatre.expect_text("four tenants are counted", text, "4/40", "4000/61440")


MATRIX: dict[Door, tuple[Step, ...]] = {
    Door.EXTENDER: (
        spread,
        binpack,
        mutex_blocked,
        woken,
        mutex_binpack,
        annotation,
        columns,
    ),
    Door.GATES: (
        spread,
        binpack,
        mutex_gated,
        woken,
        mutex_binpack,
        pinned,
        advertised,
        columns,
    ),
}
"""By door: what is shown, in this order."""
