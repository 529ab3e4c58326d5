"""Every string that the outside world reads: annotations, resources, reasons, policy names.

They are promises (clusters, scripts and dashboards hold on to them), so they live in one place that
imports nothing, and no other module spells one of them again.
"""

from enum import StrEnum
from typing import TypeAlias

API_GROUP = "cardwise.dev"
API_VERSION = "v1alpha1"
GPUNODE_PLURAL = "gpunodes"
GPUNODE_KIND = "GPUNode"
SYSTEM_NAMESPACE = "cardwise-system"

SCHEDULER_NAME = "cardwise-scheduler"
"""The profile's name, and the name of the Lease that its kube-scheduler holds."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The cluster's own."""
TAKEN_OVER_SCHEDULERS = ("", DEFAULT_SCHEDULER, "hami-scheduler")
"""Scheduler names that mean "not chosen": admission puts another in their place."""

# Resources, per container ------------------------------------------------------------------------

RESOURCE_COUNT = "nvidia.com/gpu"
RESOURCE_MEMORY = "nvidia.com/gpumem"
RESOURCE_MEMORY_PERCENT = "nvidia.com/gpumem-percentage"
RESOURCE_CORES = "nvidia.com/gpucores"
RESOURCE_PRIORITY = "nvidia.com/priority"
RESOURCES = (
    RESOURCE_COUNT,
    RESOURCE_MEMORY,
    RESOURCE_MEMORY_PERCENT,
    RESOURCE_CORES,
    RESOURCE_PRIORITY,
)
QUOTA_MEMORY = "limits.nvidia.com/gpumem"
QUOTA_CORES = "limits.nvidia.com/gpucores"

# Annotations that a user writes on a Pod ---------------------------------------------------------

POLICY = "hami.io/gpu-scheduler-policy"
NODE_POLICY = "hami.io/node-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"
USE_TYPE = "nvidia.com/use-gputype"
NOUSE_TYPE = "nvidia.com/nouse-gputype"
USE_UUID = "nvidia.com/use-gpuuuid"
NOUSE_UUID = "nvidia.com/nouse-gpuuuid"
NUMA_BIND = "nvidia.com/numa-bind"
VGPU_MODE = "nvidia.com/vgpu-mode"
EXCLUSIVE = "cardwise.dev/exclusive"
TOPOLOGY = "cardwise.dev/topology"
DOOR = "cardwise.dev/door"
"""Which door decides the Pod where both are installed."""
GANG = "cardwise.dev/gang"
GANG_SIZE = "cardwise.dev/gang-size"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""A label, as the coscheduling plugin reads it: the Pods of one gang share its value."""
GATE = "cardwise.dev/cards"
"""The scheduling gate of a Pod that waits for its cards by the door of gates."""

# Annotations that we write -----------------------------------------------------------------------

ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
VGPU_NODE = "hami.io/vgpu-node"
VGPU_TIME = "hami.io/vgpu-time"
BIND_TIME = "hami.io/bind-time"
BIND_PHASE = "hami.io/bind-phase"
BIND_PHASE_ALLOCATING = "allocating"
BIND_PHASE_SUCCESS = "success"
"""A container of the Pod was let start with its cards."""
BIND_PHASE_FAILED = "failed"
"""The node's agent refused; it may still become ``success``, because kubelet tries again."""
EXCLUSIVE_HELD = "cardwise.dev/exclusive-held"
ALLOCATION_ANNOTATIONS = (
    ALLOCATED,
    TO_ALLOCATE,
    VGPU_NODE,
    VGPU_TIME,
    BIND_TIME,
    BIND_PHASE,
    EXCLUSIVE_HELD,
)
"""What a user may not write: admission strips them from a new Pod."""
DEFAULTED = "cardwise.dev/defaulted"
WAKE = "cardwise.dev/wake"
HEARTBEAT = "cardwise.dev/heartbeat"

NODE_CORDON = "hami.io/device-cordon"
"""HAMi's annotation on a Node: a comma list of card UUIDs that take no new tenant."""
NODE_LOCK = "hami.io/mutex.lock"
"""HAMi's annotation on a Node: to which Pod its device plugin is handing cards."""
SOURCE = "cardwise.dev/source"
"""A label on a GPUNode that is no agent's: where its content comes from."""
SOURCE_HAMI = "hami"
"""From the annotations of HAMi's device plugin, which hands out the node's cards."""
NODE_REGISTER = "hami.io/node-nvidia-register"
"""HAMi's annotation on a Node: its cards, as its device plugin sees them."""
NODE_SCORE = "hami.io/node-nvidia-score"
"""Likewise: how near its cards are to each other."""
WEBHOOK_LABEL = "hami.io/webhook"
WEBHOOK_IGNORE = "ignore"
SELF_TEST_LABEL = "cardwise.dev/self-test"
"""On the PodTemplate by which the controller tests whether the API server reaches the webhook."""

DEVICE_WORD = "NVIDIA"
"""The word for our kind of device in an allocation text."""

MODE_DEFAULT = "hami-core"
MODE_MIG = "mig"
MODES = (MODE_DEFAULT, MODE_MIG, "mps")
LINK_PATHS = ("SYS", "NODE", "PHB", "PXB", "PIX", "BOARD")
"""PCIe common ancestors of two cards, from the farthest to the nearest."""

# Who writes a GPUNode's status, and what the agent says of itself there ---------------------------

MANAGER_AGENT = "cardwise-agent"
MANAGER_CONTROLLER = "cardwise-controller"
"""Field managers of server-side apply: each owns its own part of the status."""
MANAGER_HAMI = "cardwise-hami"
"""The controller's, where it builds a GPUNode from HAMi's annotations in an agent's place."""
AGENT_LABEL = "cardwise.dev/agent"
"""A label on Nodes, on: our agent is sent there, beside HAMi (components/hami-nodes)."""
AGENT_DAEMONSET = "cardwise-agent"
CONDITION_READY = "Ready"
CONDITION_TOPOLOGY = "TopologyKnown"
CONDITION_MEMORY_UNKNOWN = "MemoryUnknown"
"""There only while it holds."""
CONDITION_OWNER_CONFLICT = "ResourceOwnerConflict"
"""Likewise, and the controller's: two device plugins write one Node's ``nvidia.com/gpu``."""
CONDITION_CORDON_STRAY = "CordonNamesNoCard"
"""Likewise: somebody wrote a cordon that closes no card."""
CONDITION_UNREADABLE = "NodeHasUnreadableAllocation"
"""Likewise: a Pod's allocation there can't be read, so the node takes no new one."""
CONTROLLER_CONDITIONS = (CONDITION_OWNER_CONFLICT, CONDITION_CORDON_STRAY, CONDITION_UNREADABLE)

ANNOTATION_BYTES_AT_BIND = 250 * 1024
"""Above 256 KiB of annotations every later status update of a Pod fails, so /bind stops before."""
ANNOTATION_BYTES_AT_ADMISSION = 200 * 1024


class PolicyName(StrEnum):
    """The names that a policy chain may hold (docs/placement.md section 2)."""

    MUTEX = "mutex"
    TOPOLOGY_AWARE = "topology-aware"
    BINPACK = "binpack"
    SPREAD = "spread"
    NUMA = "numa"


class Door(StrEnum):
    """How Pods come to us (docs/doors.md)."""

    EXTENDER = "extender"
    """A kube-scheduler of ours asks its extender."""
    GATES = "gates"
    """Pods wait behind a scheduling gate, and the cluster's own kube-scheduler binds them."""


class NodePolicy(StrEnum):
    """How a node is chosen among those where the Pod fits (docs/placement.md section 4)."""

    BINPACK = "binpack"
    SPREAD = "spread"


class TopologyMode(StrEnum):
    """What topology-aware asks of a set of cards (docs/placement.md section 5)."""

    REQUIRED = "required"
    PREFERRED = "preferred"


class Reason(StrEnum):
    """Why a card, or a node, can't take a request, in the order of docs/placement.md section 3.

    The order is the tie-break between words that are equally frequent: the later one wins.
    """

    NODE_HANDING_OVER = "NodeHandingOver"
    """First, because it is over in a moment: any other word says more, and wins a tie."""
    CARD_NOT_HEALTHY = "CardNotHealth"
    CARD_CORDONED = "CardCordoned"
    CARD_TYPE = "CardTypeMismatch"
    CARD_UUID = "CardUuidMismatch"
    SLOTS = "CardTimeSlicingExhausted"
    QUOTA = "ResourceQuotaNotFit"
    MEMORY = "CardInsufficientMemory"
    CORES = "CardInsufficientCore"
    EXCLUSIVE = "ExclusiveDeviceAllocateConflict"
    COMPUTE = "CardComputeUnitsExhausted"
    TOPOLOGY = "CardTopologyNotSatisfied"
    NUMA = "NumaNotFit"
    NODE_TOO_FEW_CARDS = "NodeInsufficientDevice"
    NODE_NOT_REPORTED = "NodeNotReported"
    NODE_HAS_NO_CARDS = "NodeHasNoCards"
    NODE_UNREADABLE = "NodeHasUnreadableAllocation"
    NODE_REJECTS_PODS = "NodeRejectsPods"
    INVALID_REQUEST = "InvalidGPURequest"

    @property
    def rank(self) -> int:
        """The row of the table, from 0."""
        return _RANK[self]

    @property
    def is_of_identity(self) -> bool:
        """Whether it is a word of checks 1 to 4: the card, not its load, is the obstacle."""
        return self in _OF_IDENTITY


class NodeReason(StrEnum):
    """Why a node is no candidate whatever its cards, in the order in which the rules are checked.

    They are kube-scheduler's own rules; where it has checked a node before we are asked about it,
    these words do not occur.
    """

    UNSCHEDULABLE = "NodeUnschedulable"
    """It is cordoned (``spec.unschedulable``), and the Pod does not tolerate that."""
    TAINT = "TaintNotTolerated"
    """A taint ``NoSchedule`` or ``NoExecute`` that no toleration of the Pod matches."""
    AFFINITY = "NodeAffinityMismatch"
    """The Pod's nodeSelector or required node affinity does not match the node."""
    VOLUMES = "VolumeNodeMismatch"
    """A volume of the Pod can't be used there."""
    OTHERS = "AntiAffinityOfOthers"
    """A Pod that runs there, or near, refuses this one by its required anti-affinity."""
    PORTS = "HostPortTaken"
    """Another Pod there has a host port that the Pod asks for."""
    PODS = "TooManyPods"
    """As many Pods as it takes (``status.allocatable.pods``)."""
    CPU = "InsufficientCpu"
    """Allocatable less the requests of its Pods is less than the Pod requests."""
    MEMORY = "InsufficientMemory"
    STORAGE = "InsufficientEphemeralStorage"
    RESOURCE = "InsufficientResource"
    """Another extended resource, huge pages, or one of ours that the node does not advertise."""


_RANK = {reason: row for row, reason in enumerate(Reason)}
_OF_IDENTITY = frozenset(
    {Reason.CARD_NOT_HEALTHY, Reason.CARD_CORDONED, Reason.CARD_TYPE, Reason.CARD_UUID}
)


class EventReason(StrEnum):
    """Reasons of our events that are no word for a card or a node; docs/ explains each."""

    CARDS_ALLOCATED = "CardsAllocated"
    UNKNOWN_POLICY = "UnknownSchedulingPolicy"
    BINDING_FAILED = "BindingFailed"
    CLASS_TAKES_OUR_RESOURCE = "ClassTakesOurResource"
    UNREADABLE_ALLOCATION = "UnreadableAllocation"
    NEEDS_EXTENDER_DOOR = "NeedsExtenderDoor"
    PINNED_NODE_REFUSED = "PinnedNodeRefused"
    SCHEDULER_ABSENT = "SchedulerAbsent"
    GANG_INCOMPLETE = "GangIncomplete"
    VOLUME_NOT_READY = "VolumeNotReady"
    KEPT_BACK = "KeptBack"
    CARD_OVERBOOKED = "CardOverbooked"
    ALLOCATION_MISMATCH = "AllocationMismatch"
    WEBHOOK_BYPASSED = "WebhookBypassed"
    UNMANAGED_POD = "UnmanagedPod"
    HOLD_EXPIRED = "HoldExpired"


class CardEvent(StrEnum):
    """Reasons of an agent's events on its Node."""

    UNHEALTHY = "CardUnhealthy"
    HEALTHY = "CardHealthy"
    GONE = "CardGone"
    """The driver lists it no more."""
    DRIVER_FAILED = "DriverFailed"
    DRIVER_ANSWERS = "DriverAnswers"
    MEMORY_UNKNOWN = "MemoryUnknown"
    """The driver can't tell how much memory a card has, and nobody has said it."""


class NodeEvent(StrEnum):
    """Reasons of the controller's events on a Node."""

    REJECTS_PODS = "NodeRejectsPods"
    """The same word as that of the Pods which wait for it."""
    TAKES_PODS = "NodeTakesPods"
    OWNER_CONFLICT = "ResourceOwnerConflict"
    CORDON_STRAY = "CordonNamesNoCard"


class WebhookEvent(StrEnum):
    """Reasons of the controller's events on the webhook's configuration."""

    UNREACHABLE = "WebhookUnreachable"
    REACHABLE = "WebhookReachable"


WaitReason: TypeAlias = Reason | NodeReason | EventReason
"""The word of a Pod that waits."""
