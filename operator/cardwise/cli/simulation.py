"""Place the Pods of some documents, one after another, as the cluster would.

Pure: the same admission, ledger and engine as in the controller and the webhook, without a clock
(no report is stale) and without holds (what is placed is booked at once). How it is printed is
another module's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cardwise.admission import admit, unknown_policies
from cardwise.cli import complaints, daemonsets
from cardwise.cli.answering import answered
from cardwise.cli.documents import Document
from cardwise.cli.placements import Placement, Simulation, shortened
from cardwise.engine.decide import Memo
from cardwise.errors import BadAllocation, BadDocument, BadGPUNode
from cardwise.ledger import Ledger, Sighting
from cardwise.model import Booking, Decision, GPUNode, InvalidRequest, PodRef, QuotaBound, Request
from cardwise.names import (
    GPUNODE_KIND,
    NODE_REGISTER,
    RESOURCES,
    SCHEDULER_NAME,
    TAKEN_OVER_SCHEDULERS,
    Reason,
)
from cardwise.noderules import Needs, NodeBook, load_of
from cardwise.settings import Settings
from cardwise.wire.account import ClusterSize
from cardwise.wire.cordons import misspelt_cordon
from cardwise.wire.fields import at, quoted, text
from cardwise.wire.gpunodes import cordoned_by_annotation, gpunode_of, offers_cards
from cardwise.wire.pods import asks_cards, booking_of, bound_node, is_finished, request_of
from cardwise.wire.quotas import bound_of, merge, warnings_of
from cardwise.wire.registered import gpunode_document, is_registered, trouble_of

_NO_GPUNODE = (
    "no GPUNode is given, so no node has a card: kubectl get gpunodes -o yaml prints a cluster's, "
    "cardwise-agent --print a machine's"
)
_NO_POD = "it has no replicas, is suspended, or is a DaemonSet and no node is given"
_FROM_HAMI = f"its cards are read from {NODE_REGISTER}, as with the setting migration.hamiNodes"
_NO_TIME = 0.0
"""What the ledger is told the time is: nothing ages here."""


def simulate(
    documents: Iterable[Document],
    settings: Settings,
    *,
    admission: bool = True,
    trace: bool = False,
) -> Simulation:
    """Place every Pod that asks for cards, in order, each seeing the earlier ones.

    Args:
        documents: all objects; nodes, quotas and tenants count wherever they stand.
        settings: as the controller and the webhook would have them.
        admission: False leaves the webhook out.
        trace: True tells of every node, however many.

    Raises:
        BadDocument: a GPUNode that the schema would refuse.
    """
    cluster = _Cluster(settings)
    waiting = [document for document in documents if not cluster.take(document)]
    cluster.complete()
    placements = [
        placement if trace else shortened(placement)
        for document in cluster.made(waiting)
        if (placement := cluster.place(document, admission=admission)) is not None
    ]
    if placements and not cluster.has_gpunodes:
        cluster.notes.append(_NO_GPUNODE)
    return Simulation(placements=tuple(placements), notes=tuple(cluster.notes))


class _Cluster:
    """The cluster that the documents describe, while Pods are placed on it."""

    def __init__(self, settings: Settings) -> None:
        self.notes: list[str] = []
        self._settings = settings
        self._ledger = Ledger()
        self._memo = Memo()
        # Documents tell of nodes as far as their writer cared to.
        self._node_book = NodeBook(untold_is_no_bound=True, ignored=RESOURCES)
        self._bounds: dict[str, list[QuotaBound]] = {}
        self._names: dict[str, None] = {}
        self._registered: dict[str, Document] = {}
        """By name: Nodes whose cards HAMi's device plugin says."""
        self._reported: dict[str, Document] = {}
        """By node: the GPUNode, or the Node of HAMi's, that says its cards."""
        self._misspelt: dict[str, str] = {}
        """By node: an annotation that is nearly the one that closes cards, mostly none."""
        self._tenants: list[tuple[Document, Booking]] = []
        self._size = ClusterSize(largest_card_mib=0, most_cards=0)

    @property
    def has_gpunodes(self) -> bool:
        """Whether any node's cards are said, by a GPUNode or by HAMi's registration."""
        return bool(self._reported)

    # What is there --------------------------------------------------------------------------------

    def take(self, document: Document) -> bool:
        """Take an object into the cluster; False for a Pod that is still to be placed."""
        if not document.is_known:
            hint = f"; {document.kind_meant} is" if document.kind_meant else ""
            self._note(document, f"skipped, its kind is not read{hint}")
            return True
        body = dict(document.body)
        match document.kind:
            case "Pod":
                return self._take_pod(document, body)
            case "Node":
                self._take_node(document, body)
            case "ResourceQuota":
                self._bounds.setdefault(document.namespace, []).append(bound_of(body))
                self.notes += warnings_of(body)
            case kind if kind == GPUNODE_KIND:
                self._take_gpunode(document, body)
            case _:
                self._note(document, f"it stands for no Pod: {_NO_POD}")
        return True

    def complete(self) -> None:
        """Put the quotas into force, and look for the tenants' cards: all are known now."""
        for namespace, bounds in self._bounds.items():
            self._ledger.set_bound(namespace, merge(bounds))
        for name, document in self._registered.items():
            self._take_registered(name, document)
        reported = set(self._ledger.gpunode_names())
        for document, booking in self._tenants:
            there = self._ledger.view(booking.node).uuids
            held = dict.fromkeys(share.uuid for shares in booking.containers for share in shares)
            for uuid in held if booking.node in reported else ():
                if uuid not in there:
                    self._note(document, f"node {booking.node} has no card {uuid}, which it holds")
        self._complain()

    def _complain(self) -> None:
        """Tell of cordons that close no card, and of cards that the tenants over-book."""
        for name, document in self._reported.items():
            for sentence in complaints.of_cards(self._ledger, name, self._misspelt.get(name, "")):
                self._note(document, sentence)

    def _take_gpunode(self, document: Document, body: dict[str, Any]) -> None:
        try:
            report = gpunode_of(body)
        except BadGPUNode as error:
            raise BadDocument(f"{document.where}: {error}") from error
        self._report(report, document)

    def _report(self, report: GPUNode, document: Document) -> None:
        self._reported[report.name] = document
        self._ledger.apply_gpunode(report, _NO_TIME)
        self._names[report.name] = None
        self._size = _grown(self._size, report)

    def _take_registered(self, name: str, document: Document) -> None:
        """Read a node's cards from HAMi's annotations, where it has no GPUNode."""
        account = self._ledger.account(name)
        if account is not None and account.report is not None:
            return
        built = gpunode_document(dict(document.body), "")
        trouble = trouble_of(built)
        if trouble:
            self._note(document, f"no card is read from HAMi's registration: {trouble}")
        else:
            self._note(document, _FROM_HAMI)
        self._report(gpunode_of(built), document)

    def _take_node(self, document: Document, body: dict[str, Any]) -> None:
        name = document.name
        if is_registered(body):
            self._registered[name] = document
        self._names[name] = None
        self._misspelt[name] = misspelt_cordon(body)
        self._node_book.apply_node(body)
        self._ledger.apply_node(
            name, offers_cards=offers_cards(body), cordoned=cordoned_by_annotation(body)
        )

    def _take_pod(self, document: Document, body: dict[str, Any]) -> bool:
        """Take a bound Pod; what is finished holds nothing."""
        if is_finished(body):
            return True
        node = bound_node(body)
        if node is None:
            return False
        ref = _ref(document)
        self._node_book.take(ref.uid, node, load_of(body))
        try:
            booking = booking_of(body, init_shrink=self._settings.scheduling.initShrink)
        except BadAllocation as error:
            self._note(document, f"its allocation can't be read: {error}")
            unreadable = Sighting(pod=ref, version=0, node=node, unreadable=str(error))
            self._ledger.see(unreadable, _NO_TIME)
            return True
        if booking is None and asks_cards(body):
            self._note(document, "bound, but it has no allocation, so it holds no card")
        if booking is not None:
            self._tenants.append((document, booking))
        self._ledger.see(Sighting(pod=ref, version=0, node=node, booking=booking), _NO_TIME)
        return True

    # What is placed -------------------------------------------------------------------------------

    def made(self, waiting: list[Document]) -> list[Document]:
        """The Pods that there are: a DaemonSet has none where selector or taints keep it away."""
        there = [document for document in waiting if daemonsets.is_made(document, self._node_book)]
        self.notes += daemonsets.without_pods(waiting, there)
        return there

    def place(self, document: Document, *, admission: bool) -> Placement | None:
        """Place one Pod; None for one that is not ours to place."""
        pod = dict(document.body)
        scheduler = text(at(pod, "spec", "schedulerName"))
        if asks_cards(pod) and scheduler not in (SCHEDULER_NAME, *TAKEN_OVER_SCHEDULERS):
            self._note(document, f"skipped, its scheduler is {quoted(scheduler)}")
            return None
        ref, warnings = _ref(document), document.warnings
        if admission:
            admitted = admit(pod, self._settings)
            warnings += admitted.warnings
            if admitted.denial is not None:
                return _invalid(ref, admitted.denial, warnings)
            pod = admitted.pod
        request = request_of(pod, self._settings)
        if request is None:
            self._note(document, "skipped, it asks for no card")
            return None
        if isinstance(request, InvalidRequest):
            return _invalid(ref, request.message, warnings)
        # The webhook has told these, where it was asked.
        if not admission:
            warnings += (*unknown_policies(request), *request.warnings)
        names = [document.only_node] if document.only_node else list(self._names)
        return self._placed(replace(request, pod=ref), Needs(pod), warnings, names)

    def _placed(
        self, request: Request, needs: Needs, warnings: tuple[str, ...], names: Sequence[str]
    ) -> Placement:
        refusals = self._node_book.refusals(needs, names)
        placement = answered(
            request,
            {view.name: view for view in self._ledger.views(names)},
            refusals,
            ledger=self._ledger,
            memo=self._memo,
            size=self._size,
            name_tenants=self._settings.events.nameTenants,
            warnings=warnings,
        )
        if placement.decision is not None:
            self._book(placement.decision, needs)
        return placement

    def _book(self, decision: Decision, needs: Needs) -> None:
        node, booking = decision.node, decision.booking
        if node is None or booking is None:
            return
        sighting = Sighting(pod=decision.request.pod, version=0, node=node, booking=booking)
        self._ledger.see(sighting, _NO_TIME)
        self._node_book.take(decision.request.pod.uid, node, needs.load)

    def _note(self, document: Document, what: str) -> None:
        self.notes.append(f"{document.where}: {document.title}: {what}")


def _ref(document: Document) -> PodRef:
    """A Pod by a UID of our own: files leave it out, or copy it from Pod to Pod."""
    return PodRef(document.namespace, document.name, f"{document.namespace}/{document.name}")


def _invalid(pod: PodRef, message: str, warnings: tuple[str, ...]) -> Placement:
    return Placement(
        pod=pod, reason=Reason.INVALID_REQUEST.value, message=message, warnings=warnings
    )


def _grown(size: ClusterSize, report: GPUNode) -> ClusterSize:
    largest = max((card.memory_mib for card in report.cards), default=0)
    return ClusterSize(
        largest_card_mib=max(size.largest_card_mib, largest),
        most_cards=max(size.most_cards, len(report.cards)),
    )
