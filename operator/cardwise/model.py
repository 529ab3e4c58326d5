"""The values that pass between the parts: frozen, without I/O, without Kubernetes JSON.

Units everywhere: memory in MiB, cores in percent of one card (100 is a whole card as its driver
sees it; a card scaled by ``coreScaling`` may offer more), slots are the number of containers that
may share a card, scores are integers in millionths (``1651042`` is printed 1.651042).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from cardwise.names import MODE_DEFAULT, MODE_MIG, NodePolicy, PolicyName, Reason, TopologyMode

WHOLE_CORES = 100
"""A request or booking of this many cores means all cores that the card has."""


class PodRef(NamedTuple):
    """Which Pod: the UID is its identity, namespace and name are for people.

    A tuple, because every look at a Pod makes one, and a data class takes longer to make.
    """

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# What a node reports ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU as its GPUNode offers it, after scaling."""

    uuid: str
    index: int
    model: str = ""
    memory_mib: int
    cores: int = 100
    slots: int = 10
    numa: int | None = None
    """NUMA node; None is unknown."""
    mode: str = MODE_DEFAULT
    healthy: bool = True
    unhealthy_reason: str = ""
    pci_bus_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How two cards of a node are joined, by card index (``first`` < ``second``)."""

    first: int
    second: int
    nvlinks: int = 0
    path: str = ""
    """PCIe common ancestor: SYS, NODE, PHB, PXB, PIX or BOARD; empty is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUNode:
    """What one node reports, and what its administrator closed."""

    name: str
    cards: tuple[Card, ...] = ()
    """Sorted by index."""
    links: tuple[Link, ...] | None = None
    """None: not known; empty: known, and no two cards are joined."""
    cordoned: frozenset[str] = frozenset()
    """UUIDs that take no new tenant."""
    reported_at: str = ""
    """The agent's heartbeat, compared for change only."""
    by_hami: bool = False
    """HAMi's device plugin hands out its cards, to one Pod at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOverrides:
    """What an administrator sets for one node's agent; None leaves the agent's settings alone."""

    slots_per_card: int | None = None
    memory_scaling: float | None = None
    core_scaling: float | None = None
    memory_mib: int | None = None
    """MiB of a card, before scaling, where the driver cannot tell."""
    mode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that a node's agent says of itself."""

    type: str
    holds: bool
    reason: str
    """One word in camel case."""
    message: str = ""
    since: str = ""
    """When ``holds`` last changed, as RFC 3339 text; empty is unknown."""


# What a Pod asks ----------------------------------------------------------------------------------


class ContainerKind(Enum):
    """How a container runs beside the others (docs/placement.md section 7)."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one container asks."""

    kind: ContainerKind = ContainerKind.REGULAR
    count: int = 0
    """Cards, each a different one; 0: the container asks for none."""
    memory_mib: int = 0
    """Per card; 0: ``memory_percent`` of the card instead."""
    memory_percent: int = 100
    cores: int = 0
    """Percent of a card, 0 to 100; 100 asks all the card has."""

    def memory_on(self, card_memory_mib: int) -> int:
        """MiB that this container takes of a card of that size (rounded down, section 1)."""
        return self.memory_mib or card_memory_mib * self.memory_percent // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A parsed policy chain (docs/placement.md section 2)."""

    mutex: bool = False
    topology_aware: bool = False
    keys: tuple[PolicyName, ...] = (PolicyName.SPREAD,)
    """Sort keys in order; the card index is the last one, always."""
    names: tuple[PolicyName, ...] = ()
    """The names in force, as written, for people."""

    def __str__(self) -> str:
        return ",".join(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of the card score (docs/placement.md section 4)."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """All of a request that placement looks at: equal signatures are the same question."""

    asks: tuple[Ask, ...]
    """One a container, in annotation order: init containers first, then regular ones."""
    policy: Policy = field(default_factory=Policy)
    node_policy: NodePolicy = NodePolicy.BINPACK
    weights: Weights = field(default_factory=Weights)
    use_types: tuple[str, ...] = ()
    """Lower case; the model must contain one of them."""
    nouse_types: tuple[str, ...] = ()
    use_uuids: frozenset[str] = frozenset()
    nouse_uuids: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()
    numa_bind: bool = False
    exclusive: bool = False
    topology_mode: TopologyMode = TopologyMode.REQUIRED
    digest: int = field(init=False, compare=False, repr=False, default=0)
    """Its hash, made once: answers are looked up by it, again and again for each Pod."""

    def __post_init__(self) -> None:
        written = (
            self.asks, self.policy, self.node_policy, self.weights, self.use_types,
            self.nouse_types, self.use_uuids, self.nouse_uuids, self.modes, self.numa_bind,
            self.exclusive, self.topology_mode,
        )  # fmt: skip
        object.__setattr__(self, "digest", hash(written))

    def __hash__(self) -> int:
        return self.digest

    @property
    def names_uuids(self) -> bool:
        """Whether the answer depends on more of a card than its state."""
        return bool(self.use_uuids or self.nouse_uuids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A Pod that asks for cards."""

    pod: PodRef
    signature: Signature
    containers: tuple[str, ...]
    """Names, parallel to ``signature.asks``."""
    policy_text: str | None = None
    """The user's annotation as written."""
    unknown_policies: tuple[str, ...] = ()
    """Names in it that have no effect."""
    warnings: tuple[str, ...] = ()
    """Sentences about values without effect."""
    annotation_bytes: int = 0
    """Size of the Pod's annotations as they are: there is a limit to what may be added."""
    priority: int = 0
    """The Pod's priority; it plays no part in placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidRequest:
    """A Pod whose request can't be read: refused everywhere with ``InvalidGPURequest``."""

    pod: PodRef
    message: str
    """One sentence: key, value, and what to write instead."""


# What is taken ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """One card's part for one container, as the allocation text has it."""

    uuid: str
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """The cards of one Pod on one node."""

    node: str
    containers: tuple[tuple[Share, ...], ...]
    kinds: tuple[ContainerKind, ...]
    """Parallel to ``containers``. All regular where the text does not match the Pod: then every
    segment counts, summed (section 7, "Reading")."""
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class CardUse:
    """What is used of one card. It also stands for one Pod's part of that use."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0


NO_USE = CardUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaBound:
    """A namespace's bound on GPU use; None is no bound (docs/placement.md section 8)."""

    memory_mib: int | None = None
    cores: int | None = None
    memory_quota: str = field(default="", compare=False)
    """Whose bound ``memory_mib`` is: that ResourceQuota's name."""
    cores_quota: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class QuotaRoom:
    """What a namespace may still take; None is no bound. It may be negative."""

    memory_mib: int | None = None
    cores: int | None = None


# What the engine looks at -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """Everything the engine looks at of one card: no UUID, no tenant's name."""

    index: int
    model: str = ""
    memory_mib: int
    cores: int = 100
    slots: int = 10
    numa: int | None = None
    mode: str = MODE_DEFAULT
    healthy: bool = True
    cordoned: bool = False
    used_slots: int = 0
    """More than 0 exactly when the card has a tenant."""
    used_memory_mib: int = 0
    used_cores: int = 0
    exclusive: bool = False
    """An exclusive Pod holds it."""

    @property
    def is_overbooked(self) -> bool:
        """Whether more is given out than there is: no decision of ours did that."""
        return (
            self.used_slots > self.slots
            or self.used_memory_mib > self.memory_mib
            or self.used_cores > self.cores
        )

    @property
    def room_mib(self) -> int:
        """The most memory that a new Pod could have here, whatever else it asks for."""
        closed = not self.healthy or self.cordoned or self.exclusive or self.mode == MODE_MIG
        if closed or self.used_slots >= self.slots:
            return 0
        return max(0, self.memory_mib - self.used_memory_mib)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The state of a node: nodes in the same state are the same question."""

    cards: tuple[CardState, ...] = ()
    """Sorted by index."""
    links: tuple[Link, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node as a decision sees it: its state, and who is who in it."""

    name: str
    problem: Reason | None = None
    """A node-level refusal that stands before any card is looked at."""
    state: NodeState = field(default_factory=NodeState)
    state_id: int = 0
    """Equal for equal states, for as long as one ledger lives."""
    score: int = 0
    """Node score in millionths."""
    uuids: tuple[str, ...] = ()
    """Parallel to ``state.cards``."""
    tenants: tuple[tuple[str, ...], ...] = ()
    """``namespace/name`` of each card's tenants, parallel to ``state.cards``."""
    troubles: tuple[str, ...] = ()
    """Why each card is unhealthy, as its agent says, parallel to ``state.cards``."""
    problem_detail: str = ""
    """For people: e.g. which Pod's allocation can't be read."""


# What was decided ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CardVerdict:
    """One line of the account: a card's score, and why it was refused (None: it could take it)."""

    index: int
    score: int
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Pick:
    """A card given to a container: its position in ``NodeState.cards``, and the part taken."""

    position: int
    memory_mib: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer for one node state: either ``picks`` or a ``reason``."""

    picks: tuple[tuple[Pick, ...], ...] | None = None
    """Per container, cards in the order in which they were ranked."""
    reason: Reason | None = None
    container: int = 0
    """The container that ``cards`` tells of: the first that asks, or the one that did not fit."""
    cards: tuple[CardVerdict, ...] = ()
    detail: str = ""
    """What the word alone does not say, e.g. that link data is missing."""

    @property
    def fits(self) -> bool:
        """Whether the Pod can be placed on a node in this state."""
        return self.picks is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer for one request over some nodes."""

    request: Request
    node: str | None
    """The chosen node, or None when it fits on none."""
    booking: Booking | None
    outcomes: Mapping[str, Outcome]
    """Every node that was asked about; where one is chosen, that one at least."""
    reason: Reason | None
    """The leading reason over the nodes; None when ``node`` is set."""
    refusals: Mapping[str, Reason]
    """The outcomes' reasons, of the nodes where the Pod does not fit: whoever decides has them,
    and a look at thousands of outcomes is spared."""
