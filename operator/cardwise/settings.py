"""The settings file: one YAML document that controller, webhook and agent read alike.

Separate from the edges, because admission (pure) and the command line need the same values.
"""

import re
from typing import Any, Final, Literal

import msgspec
import msgspec.inspect
import yaml

from cardwise.errors import BadSettings
from cardwise.names import Door, NodePolicy, PolicyName, TopologyMode
from cardwise.quantity import LARGEST

LONGEST_REPORT_SECONDS: Final = 90
"""Half of the time after which a node counts as silent: one lost heartbeat closes no node."""

_AT = re.compile(r" - at `\$\.([\w.]+)`\Z")


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of keys; an unknown key is an error, so that a typo never means "default"."""


class TopologyAware(_Section, frozen=True):
    """The filter ``topology-aware`` (docs/placement.md section 5)."""

    enabled: bool = True
    """Off: the name is dropped from every chain, with a warning."""
    mode: TopologyMode = TopologyMode.REQUIRED
    """Whether every pair of a set must be joined by NVLink."""


class Scheduling(_Section, frozen=True):
    """How cards are chosen where a Pod does not say."""

    door: Door = Door.EXTENDER
    """How Pods come to us, where the Pod does not say."""
    bothDoors: bool = False
    """True: the other door is installed, too, and a Pod may choose it."""
    cardPolicy: str = "spread"
    """A chain, as a Pod would write it."""
    nodePolicy: NodePolicy = NodePolicy.BINPACK
    """Which node, among those where a Pod fits: the fullest or the emptiest (section 4)."""
    topologyAware: TopologyAware = TopologyAware()
    shadow: bool = False
    """True: place nothing and write nothing; only say where each placed Pod would have gone."""
    initShrink: bool = False
    """True: a Pod's use shrinks to its regular containers' once its init containers ended well."""


class GatesSection(_Section, frozen=True):
    """The door of gates."""

    strictOrder: bool = False
    """True: a Pod that fits nowhere keeps back every Pod behind it in the queue."""
    refusedSeconds: int = 60
    """How long kube-scheduler may refuse a Pod on its node before it is evicted."""
    evictRefused: bool = True
    """False: such a Pod is told of, and stays."""


class Rejections(_Section, frozen=True):
    """When a node is closed for a while because kubelet there rejects Pods."""

    limit: int = 5
    """Pods that the node itself is to blame for, with none started in between; 0: never."""
    withinSeconds: int = 60
    """In which they come."""
    closedSeconds: int = 60
    """For how long it is closed then; twice as long each time after that, ..."""
    longestClosedSeconds: int = 900
    """... but no longer than this."""


class Events(_Section, frozen=True):
    """What events may tell."""

    nameTenants: bool = True
    """False: tenants of other namespaces are counted, not named."""


class Defaults(_Section, frozen=True):
    """What a container asks where it does not say."""

    memoryMiB: int = 0
    """MiB per card; 0 is the whole card's memory."""
    cores: int = 0
    """Percent of a card; 0 leaves the compute unbounded."""
    gpuCount: int = 1
    """Cards, where only memory, percentage or cores were asked."""


class Admission(_Section, frozen=True):
    """What the webhook writes into Pods that ask for cards, beyond what placement needs."""

    runtimeClassName: str = ""
    """For Pods that name none; empty: none is written."""
    coreUtilizationPolicy: str = ""
    """HAMi-core's ``GPU_CORE_UTILIZATION_POLICY``: force or disable; empty or default: not set."""
    hideCardsFromOthers: bool = False
    """True: containers without cards get ``NVIDIA_VISIBLE_DEVICES=none``."""


CORE_UTILIZATION_POLICIES = ("", "default", "force", "disable")


class Agent(_Section, frozen=True):
    """What an agent publishes; a GPUNode's ``spec`` goes before it."""

    slotsPerCard: int = 10
    """Containers that may share a card; HAMi's default."""
    memoryScaling: float = 1.0
    """Factor on a card's memory, above 0, at most 100; above 1 oversells it."""
    coreScaling: float = 1.0
    """Likewise, on a card's cores."""
    reportSeconds: int = 60
    """Seconds between two heartbeats, at most ``LONGEST_REPORT_SECONDS``."""
    ignoredXids: tuple[int, ...] = (13, 31, 43, 45, 68, 109)
    """Errors, as NVIDIA numbers them, that the program on a card is to blame for; NVIDIA's own
    device plugin ignores these."""
    cdi: bool | Literal["auto", "on", "off"] = "auto"
    """Whether the node's container runtime reads CDI specs; auto: its version tells. ``on`` and
    ``off`` are truth values in YAML, but for those who quote them."""

    @property
    def said_cdi(self) -> bool | None:
        """What ``cdi`` says; None: nothing."""
        if isinstance(self.cdi, bool):
            return self.cdi
        return None if self.cdi == "auto" else self.cdi == "on"


class Migration(_Section, frozen=True):
    """The way over from HAMi (docs/migrating-from-hami.md)."""

    hamiNodes: bool = False
    """True: a node that HAMi's device plugin serves has a GPUNode, built from its annotations."""


class Settings(_Section, frozen=True):
    """All settings, with their defaults."""

    scheduling: Scheduling = Scheduling()
    gates: GatesSection = GatesSection()
    rejections: Rejections = Rejections()
    events: Events = Events()
    defaults: Defaults = Defaults()
    admission: Admission = Admission()
    agent: Agent = Agent()
    migration: Migration = Migration()


def parse(text: str) -> Settings:
    """Read a settings document; an empty one is all defaults.

    Raises:
        BadSettings: not YAML, an unknown key, one that is there twice, or a wrong type; the text
            names the key, and the words that may stand there.
    """
    try:
        document: Any = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:  # ValueError: e.g. a date of month 13
        raise BadSettings(f"the settings are not YAML: {' '.join(str(error).split())}") from error
    try:
        settings = msgspec.convert({} if document is None else document, Settings)
    except msgspec.ValidationError as error:
        raise BadSettings(f"the settings are wrong: {error}{_words(str(error))}") from error
    _check_values(settings)
    return settings


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML takes the last and forgets the first section."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping of keys that are each there once."""
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value} is there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _words(error: str) -> str:
    """What may stand at the place that an error names, where only some words may."""
    place = _AT.search(error)
    kind = msgspec.inspect.type_info(Settings)
    for part in place[1].split(".") if place else ():
        fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
        kind = next((f.type for f in fields if f.name == part), msgspec.inspect.AnyType())
    words: list[str] = []
    for each in kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind]:
        if isinstance(each, msgspec.inspect.EnumType):
            words += [member.value for member in each.cls]
        elif isinstance(each, msgspec.inspect.LiteralType):
            words += map(str, each.values)
    return f": write one of {', '.join(sorted(words))}" if words else ""


def _check_values(settings: Settings) -> None:
    """Refuse values that have the right type and no meaning."""
    limits: list[tuple[str, int, int, int]] = [
        ("defaults.memoryMiB", settings.defaults.memoryMiB, 0, LARGEST),
        ("defaults.cores", settings.defaults.cores, 0, LARGEST),
        ("defaults.gpuCount", settings.defaults.gpuCount, 0, LARGEST),
        ("gates.refusedSeconds", settings.gates.refusedSeconds, 1, LARGEST),
        ("rejections.limit", settings.rejections.limit, 0, LARGEST),
        ("rejections.withinSeconds", settings.rejections.withinSeconds, 1, LARGEST),
        ("rejections.closedSeconds", settings.rejections.closedSeconds, 1, LARGEST),
        ("rejections.longestClosedSeconds", settings.rejections.longestClosedSeconds, 1, LARGEST),
        ("agent.slotsPerCard", settings.agent.slotsPerCard, 1, LARGEST),
        ("agent.reportSeconds", settings.agent.reportSeconds, 1, LONGEST_REPORT_SECONDS),
    ]
    for key, value, least, most in limits:
        if not least <= value <= most:
            raise BadSettings(f"the settings are wrong: {key} must be from {least} to {most}")
    for key, factor in [
        ("agent.memoryScaling", settings.agent.memoryScaling),
        ("agent.coreScaling", settings.agent.coreScaling),
    ]:
        if not 0 < factor <= 100:
            raise BadSettings(f"the settings are wrong: {key} must be above 0, at most 100")
    _check_words(settings)


def _check_words(settings: Settings) -> None:
    """Refuse texts that name nothing."""
    if settings.admission.coreUtilizationPolicy not in CORE_UTILIZATION_POLICIES:
        raise BadSettings(
            "the settings are wrong: admission.coreUtilizationPolicy must be force, disable, "
            "default or empty"
        )
    known = [name.value for name in PolicyName]
    for name in settings.scheduling.cardPolicy.split(","):
        if name.strip() not in ("", *known):
            raise BadSettings(
                f"the settings are wrong: scheduling.cardPolicy has the name {name.strip()!r}; "
                f"known are {', '.join(known)}"
            )
