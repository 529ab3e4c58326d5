"""The controller, put together."""

import socket
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from cardwise.controller.activity import Activity
from cardwise.controller.clock import Clock
from cardwise.controller.extender.service import Scheduler
from cardwise.controller.extender.waker import Waker
from cardwise.controller.followers.bypassed import Bypassed
from cardwise.controller.followers.classes import Classes
from cardwise.controller.followers.cordons import Cordons
from cardwise.controller.followers.hami import HamiNodes, MemoryShelf, Shelf, StoredShelf
from cardwise.controller.followers.owners import Owners
from cardwise.controller.followers.rejected import RejectedPods
from cardwise.controller.followers.strangers import Strangers
from cardwise.controller.followers.unreadable import Unreadable
from cardwise.controller.gates.door import GatesDoor
from cardwise.controller.lease.duty import Duty
from cardwise.controller.lease.elector import Elector
from cardwise.controller.lease.tenure import Election, Tenure
from cardwise.controller.placing.binder import Binder
from cardwise.controller.placing.decider import Decider
from cardwise.controller.reports.metrics import Metrics
from cardwise.controller.shadow import Shadow
from cardwise.controller.telling.notes import Notes
from cardwise.controller.telling.recorder import Recorder
from cardwise.controller.telling.teller import Teller
from cardwise.controller.telling.usage import UsageWriter
from cardwise.controller.watching.mirror import Mirror
from cardwise.controller.watching.watch import Health, Watchman
from cardwise.controller.webhook.keeper import CertificateKeeper
from cardwise.controller.webhook.selftest import SelfTest
from cardwise.doors import installed_doors
from cardwise.ledger import HOLD_SECONDS, Ledger
from cardwise.model import Condition, PodRef
from cardwise.names import Door, EventReason
from cardwise.ports import Cluster
from cardwise.settings import Settings


@dataclass(slots=True)
class Controller:
    """Every part of the controller over one ledger, wired but not running."""

    cluster: Cluster
    settings: Settings
    own_pod: PodRef | None = None
    election: Election | None = None
    """None: there is no other replica."""
    webhook_certificates: bool = False
    """Whether the webhook's certificates are made and renewed here."""
    webhook_self_test: bool = False
    """Whether it is tested here that the API server reaches the webhook."""
    instance: str = field(default_factory=socket.gethostname)
    clock: Clock = field(default_factory=Clock)
    ledger: Ledger = field(default_factory=Ledger)
    duty: Duty = field(init=False)
    mirror: Mirror = field(init=False)
    recorder: Recorder = field(init=False)
    teller: Teller = field(init=False)
    waker: Waker = field(init=False)
    decider: Decider = field(init=False)
    binder: Binder = field(init=False)
    scheduler: Scheduler = field(init=False)
    classes: Classes = field(init=False)
    bypassed: Bypassed = field(init=False)
    strangers: Strangers = field(init=False)
    self_test: SelfTest = field(init=False)
    metrics: Metrics = field(init=False)
    health: Health = field(init=False)
    watchman: Watchman = field(init=False)
    rejected: RejectedPods = field(init=False)
    owners: Owners = field(init=False)
    cordons: Cordons = field(init=False)
    unreadable: Unreadable = field(init=False)
    usage: UsageWriter = field(init=False)
    activity: Activity | None = field(init=False)
    gates_door: GatesDoor | None = field(init=False)
    elector: Elector | None = field(init=False)
    hami_nodes: HamiNodes = field(init=False)
    shadow: Shadow | None = field(init=False)

    def __post_init__(self) -> None:
        tenure = Tenure(self.election.identity, self.clock) if self.election else None
        self.duty = Duty(tenure)
        self.recorder = Recorder(self.cluster, self.clock, self.duty, self.instance)
        self.teller = Teller(self.ledger, self.recorder, self.settings)
        self.mirror = Mirror(
            self.ledger,
            self.settings,
            self.clock,
            changed=self._look,
            unreadable=self.teller.unreadable,
        )
        self.waker = Waker(
            self.ledger,
            self.cluster,
            self.clock,
            self.duty,
            lambda: self.mirror.node_names,
            grew=self._grew,
        )
        self.decider = Decider(self.ledger, self.clock)
        self.binder = Binder(self.ledger, self.mirror, self.cluster, self.duty, self.clock)
        self.scheduler = Scheduler(
            ledger=self.ledger,
            mirror=self.mirror,
            cluster=self.cluster,
            decider=self.decider,
            binder=self.binder,
            teller=self.teller,
            waker=self.waker,
            duty=self.duty,
            settings=self.settings,
            clock=self.clock,
        )
        self.classes = Classes(self.cluster, self.teller)
        self.bypassed = Bypassed(self.teller, self.settings, self.clock)
        self.mirror.followers.append(self.bypassed)
        self.strangers = Strangers(self.ledger, self.teller, self.clock)
        self.mirror.followers.append(self.strangers)
        notes = Notes(self.cluster, self.duty, self.clock, self.instance)
        self.self_test = SelfTest(self.cluster, self.duty, self.clock, notes)
        self.metrics = Metrics(
            self.ledger,
            repairs=lambda: self.mirror.repairs,
            states=lambda: self.decider.states,
            conflicts=lambda: self.classes.conflicts,
            unmanaged=lambda: self.strangers.unmanaged,
            active=lambda: not self.duty.refusal(),
            bypassed=lambda: len(self.bypassed),
            reachable=lambda: self.self_test.reachable,
        )
        self.teller.on_decision = self.metrics.decided
        self.health = Health(self.duty, self.clock, own_pod=self.own_pod)
        self.watchman = Watchman(
            ledger=self.ledger,
            mirror=self.mirror,
            cluster=self.cluster,
            health=self.health,
            clock=self.clock,
            changed=self._look,
            classes=self.classes,
            hold_expired=self._hold_expired,
        )
        self.rejected = self._rejected(notes)
        self.owners = Owners(self.ledger, self.clock, notes)
        self.cordons = Cordons(self.ledger, self.clock, notes)
        self.unreadable = Unreadable(self.ledger, self.clock)
        self.mirror.followers += [self.rejected, self.owners, self.cordons]
        self.hami_nodes = self._hami_nodes()
        self.shadow = self._shadow()
        self.gates_door = self._door_of_gates() if Door.GATES in self.doors else None
        self.usage = UsageWriter(self.ledger, self.cluster, self.duty, self._conditions)
        self.mirror.gpunode_followers.append(self.usage.see_gpunode)
        self.activity = self._activity(tenure, self.election)
        self.elector = self._elector(self.election)

    @property
    def doors(self) -> tuple[Door, ...]:
        """The doors that are installed; a shadow has none."""
        return () if self.settings.scheduling.shadow else installed_doors(self.settings)

    def _hami_nodes(self) -> HamiNodes:
        shelf: Shelf = StoredShelf(self.cluster)
        if self.settings.scheduling.shadow:
            shelf = memory = MemoryShelf(self.mirror.see_gpunode)
            self.mirror.unstored = memory.documents
        nodes = HamiNodes(
            shelf,
            self.duty,
            self.clock,
            enabled=self.settings.migration.hamiNodes,
            seconds=self.settings.agent.reportSeconds,
        )
        self.mirror.followers.append(nodes)
        self.mirror.gpunode_followers.append(nodes.see_gpunode)
        return nodes

    def _shadow(self) -> Shadow | None:
        if not self.settings.scheduling.shadow:
            return None
        shadow = Shadow(
            ledger=self.ledger,
            memo=self.decider.memo,
            settings=self.settings,
            clock=self.clock,
            before=self.hami_nodes.write_some,
            counted=self.metrics.shadowed,
        )
        self.mirror.followers.append(shadow)
        return shadow

    def _rejected(self, notes: Notes) -> RejectedPods:
        return RejectedPods(
            cluster=self.cluster,
            ledger=self.ledger,
            clock=self.clock,
            settings=self.settings.rejections,
            notes=notes,
            counted=self.metrics.rejected,
            changed=self._look,
        )

    def _door_of_gates(self) -> GatesDoor:
        return GatesDoor(
            ledger=self.ledger,
            mirror=self.mirror,
            cluster=self.cluster,
            decider=self.decider,
            binder=self.binder,
            teller=self.teller,
            recorder=self.recorder,
            duty=self.duty,
            settings=self.settings,
            clock=self.clock,
            metrics=self.metrics,
            changed=self._look,
        )

    def _activity(self, tenure: Tenure | None, election: Election | None) -> Activity | None:
        if tenure is None or election is None:
            return None
        return Activity(
            tenure=tenure,
            lease=(election.namespace, election.name),
            ledger=self.ledger,
            mirror=self.mirror,
            cluster=self.cluster,
            clock=self.clock,
            began=self._begin,
        )

    def _elector(self, election: Election | None) -> Elector | None:
        """Where no kube-scheduler runs beside us that would compete for the Lease."""
        if election is None or Door.EXTENDER in self.doors:
            return None
        return Elector(
            cluster=self.cluster,
            lease=(election.namespace, election.name),
            host=election.identity,
            clock=self.clock,
            stuck=self.duty.stuck,
        )

    def _conditions(self, node: str) -> tuple[Condition, ...]:
        """What the controller has to say of a node, on its GPUNode."""
        sources = (self.owners, self.cordons, self.unreadable)
        return tuple(each for source in sources for each in source.conditions(node))

    def _begin(self) -> None:
        """This replica has become active: what the other one left undone is not known."""
        self.waker.begin()
        self.usage.begin()
        if self.gates_door is not None:
            self.gates_door.begin()

    def _hold_expired(self, pod: PodRef) -> None:
        self.metrics.hold_expired()
        if not self.ledger.has_ended(pod.uid):
            minutes = HOLD_SECONDS // 60
            note = (
                f"kube-scheduler did not bind the Pod within {minutes} min of its decision; the"
                " cards held for it are free again"
            )
            self.teller.warn(pod, EventReason.HOLD_EXPIRED, note)

    def _look(self) -> None:
        self.waker.look()
        if self.gates_door is not None:
            self.gates_door.look()

    def _grew(self) -> None:
        if self.gates_door is not None:
            self.gates_door.grew()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """What runs for as long as the controller does; none of them ends by itself."""
        running = [self.watchman.audit(), self.watchman.tick(), self.hami_nodes.run()]
        if self.shadow is not None:  # of all that runs, nothing that writes
            return [*running, self.shadow.run()]
        running += [
            self.recorder.run(),
            self.usage.run(),
            self.rejected.run(),
            self.owners.run(),
            self.cordons.run(),
        ]
        if Door.EXTENDER in self.doors:
            running.append(self.waker.run())
        if self.gates_door is not None:
            running += self.gates_door.tasks()
        if self.activity is not None:
            running.append(self.activity.run())
        if self.elector is not None:
            running.append(self.elector.run())
        if self.own_pod is not None:
            running.append(self.watchman.beat(self.own_pod))
        return running + self._for_webhook()

    def _for_webhook(self) -> list[Coroutine[Any, Any, None]]:
        running = []
        if self.webhook_certificates:
            running.append(CertificateKeeper(self.cluster, self.duty, self.clock).run())
        if self.webhook_self_test:
            running.append(self.self_test.run())
        return running
