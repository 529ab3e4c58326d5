"""Nodes and quotas: what is offered, what is bounded, and what is used of both."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from cardwise.engine.usage import quota_use
from cardwise.journal import Journal
from cardwise.ledger.nodes import NodeAccount
from cardwise.ledger.room import room_grew
from cardwise.ledger.states import States
from cardwise.model import Booking, CardUse, GPUNode, NodeView, PodRef, QuotaBound, QuotaRoom
from cardwise.names import Reason

STALE_SECONDS = 180
"""A GPUNode whose heartbeat did not change for this long is not trusted any more."""


class Accounts:
    """Every node's and every namespace's account."""

    def __init__(self) -> None:
        self._states = States()
        self._nodes: dict[str, NodeAccount] = {}
        self._bounds: dict[str, QuotaBound] = {}
        self._quota_use: dict[str, dict[str, CardUse]] = {}
        self.grew = False
        """Room grew since the owner last set this to False: waiting Pods should be asked again.

        Likewise where a node turned out to have cards that were not known of."""
        self.touched: set[str] = set()
        """Nodes whose cards or tenants changed since the owner last emptied this."""
        self.removed: set[str] = set()
        """Nodes whose GPUNode went since the owner last emptied this, back again or not."""
        self.journal = Journal()
        """By when a decision may have seen another node there."""
        self.offers = 0
        """Counts changes of what nodes offer: who sums it up need do so only when this changed."""

    # Nodes ----------------------------------------------------------------------------------------

    def apply_gpunode(self, report: GPUNode, now: float) -> None:
        """Take a GPUNode as it is reported now."""
        account = self._account(report.name)
        before = account.view(self._states)
        if account.set_report(report, now):
            self._recount_quota(account)
            self._compare(before, account)
            self.touched.add(report.name)
            self.offers += 1

    def remove_gpunode(self, name: str, now: float) -> None:
        """The GPUNode is gone; its tenants stay counted by card UUID."""
        if (account := self._nodes.get(name)) is not None:
            account.set_report(None, now)
            self._recount_quota(account)
            self.touched.add(name)
            self.removed.add(name)
            self.offers += 1
            self._forget_if_empty(account)

    def apply_node(
        self, name: str, *, offers_cards: bool, cordoned: frozenset[str], boot_id: str = ""
    ) -> None:
        """Take what a Node object says of cards, and of its machine's last start."""
        account = self._account(name)
        before = account.view(self._states)
        if account.set_node(offers_cards=offers_cards, cordoned=cordoned, boot_id=boot_id):
            self._compare(before, account)
            if _is_found_out(before, account.view(self._states)):
                self.grew = True  # no room; but who waits was told another word, and keeps it
        self._forget_if_empty(account)

    def remove_node(self, name: str) -> None:
        """The Node object is gone."""
        if (account := self._nodes.get(name)) is not None:
            account.set_node(offers_cards=False, cordoned=frozenset())
            self._forget_if_empty(account)

    def age_reports(self, now: float) -> list[str]:
        """Close nodes whose agent fell silent; their names.

        Args:
            now: the same clock as in ``apply_gpunode``, running only while the watch lives.
        """
        silent = [
            account
            for account in self._nodes.values()
            if account.report is not None
            and not account.stale
            and now - account.report_seen > STALE_SECONDS
        ]
        for account in silent:
            account.set_stale()
        return [account.name for account in silent]

    def close_node(self, name: str, why: str) -> None:
        """Send no Pod to a node where kubelet rejects them, until `open_node`."""
        self._account(name).set_rejects(why)

    def open_node(self, name: str) -> None:
        """Send Pods there again."""
        if (account := self._nodes.get(name)) is not None and account.rejects:
            before = account.view(self._states)
            account.set_rejects("")
            self._compare(before, account)
            self._forget_if_empty(account)

    def excuse_reports(self, seconds: float, now: float) -> None:
        """Make every report younger by what the watch was silent: nobody can say who reported."""
        for account in self._nodes.values():
            account.report_seen = min(now, account.report_seen + seconds)

    def gpunode_names(self) -> list[str]:
        """Every node with a GPUNode, sorted."""
        return sorted(name for name, account in self._nodes.items() if account.report is not None)

    def __contains__(self, name: object) -> bool:
        """Whether a node of this name has or offers cards, or has tenants."""
        return name in self._nodes

    @property
    def is_bare(self) -> bool:
        """Whether no node has or offers cards, or has tenants."""
        return not self._nodes

    @property
    def node_count(self) -> int:
        """How many nodes have or offer cards, or have tenants."""
        return len(self._nodes)

    def node_names(self) -> list[str]:
        """Every node that has or offers cards, or has tenants; in no order."""
        return list(self._nodes)

    def views(self, names: Iterable[str]) -> Iterator[NodeView]:
        """The nodes of these names as a decision sees them; one nobody knows has no cards."""
        nodes = self._nodes
        for name in names:
            account = nodes.get(name)
            view = account.made if account is not None else None
            yield self.view(name) if view is None else view

    def view(self, name: str, *, without: Collection[str] = ()) -> NodeView:
        """One node as a decision sees it, as if the Pods ``without`` (UIDs) were gone."""
        account = self._nodes.get(name)
        if account is None:
            return NodeView(name=name, problem=Reason.NODE_HAS_NO_CARDS)
        return account.view(self._states, without=without)

    def account(self, name: str) -> NodeAccount | None:
        """What is known of a node, for those who report on it; they do not change it."""
        return self._nodes.get(name)

    # Quotas ---------------------------------------------------------------------------------------

    def set_bound(self, namespace: str, bound: QuotaBound) -> None:
        """Take a namespace's bound (no bound in it: the quota is lifted)."""
        before = self.bound(namespace)
        if bound == QuotaBound():
            self._bounds.pop(namespace, None)
        else:
            self._bounds[namespace] = bound
        if _is_raised(before.memory_mib, bound.memory_mib) or _is_raised(before.cores, bound.cores):
            self.grew = True

    def bound(self, namespace: str) -> QuotaBound:
        """A namespace's bound."""
        return self._bounds.get(namespace, QuotaBound())

    def quota_use(self, namespace: str, *, without: Collection[str] = ()) -> CardUse:
        """What a namespace's Pods hold, as its quota counts it (slots are left out)."""
        memory = cores = 0
        for uid, use in self._quota_use.get(namespace, {}).items():
            if uid not in without:
                memory += use.memory_mib
                cores += use.cores
        return CardUse(0, memory, cores)

    def room(self, namespace: str, *, without: Collection[str] = ()) -> QuotaRoom | None:
        """What a namespace may still take; None where nothing bounds it."""
        bound = self._bounds.get(namespace)
        if bound is None:
            return None
        use = self.quota_use(namespace, without=without)
        return QuotaRoom(
            None if bound.memory_mib is None else bound.memory_mib - use.memory_mib,
            None if bound.cores is None else bound.cores - use.cores,
        )

    def bounded_namespaces(self) -> Mapping[str, QuotaBound]:
        """Every namespace with a bound."""
        return self._bounds

    # Cards ----------------------------------------------------------------------------------------

    def _charge(self, pod: PodRef, booking: Booking) -> None:
        """Count a Pod's cards on their node and in its namespace."""
        account = self._account(booking.node)
        account.book(pod, booking)
        self.touched.add(booking.node)
        # The cards count for an exclusive Pod alone: of any other the quota counts what is booked.
        cards = account.cards() if booking.exclusive else ()
        use = quota_use(booking, {card.uuid: card for card in cards})
        self._quota_use.setdefault(pod.namespace, {})[pod.uid] = use

    def _discharge(self, pod: PodRef, node: str) -> None:
        """Stop counting a Pod's cards, and whatever it closed."""
        if (account := self._nodes.get(node)) is not None:
            if account.release(pod.uid):
                self.grew = True
                self.touched.add(node)
            self._reopen(pod, node)
            self._forget_if_empty(account)
        if (used := self._quota_use.get(pod.namespace)) is not None:
            used.pop(pod.uid, None)
            if not used:
                del self._quota_use[pod.namespace]

    def _hand_over(self, pod: PodRef, node: str, *, done: bool) -> None:
        """A Pod is to be handed its cards, or has been: some nodes do so one Pod at a time."""
        account = self._account(node)
        before = account.view(self._states) if account.by_hami else None
        account.set_handing(pod.uid, handing=not done)
        if before is not None:
            self._compare(before, account)

    def _reopen(self, pod: PodRef, node: str) -> None:
        """A Pod does not close its node any more, if it did."""
        account = self._nodes.get(node)
        if account is not None and account.clear_unreadable(pod.uid):
            self.grew = True
            self.touched.add(node)
            self._forget_if_empty(account)

    def _recount_quota(self, account: NodeAccount) -> None:
        """A node's cards changed: what exclusive Pods count there may have changed, too."""
        cards = {card.uuid: card for card in account.cards()}
        for pod, booking in account.bookings():
            if booking.exclusive:
                uses = self._quota_use[pod.namespace]
                before, after = uses[pod.uid], quota_use(booking, cards)
                uses[pod.uid] = after
                if after.memory_mib < before.memory_mib or after.cores < before.cores:
                    self.grew = True

    def _compare(self, before: NodeView, account: NodeAccount) -> None:
        if room_grew(before, account.view(self._states)):
            self.grew = True

    def _account(self, name: str) -> NodeAccount:
        account = self._nodes.get(name)
        if account is None:
            account = self._nodes[name] = NodeAccount(name, self.journal.touch)
        return account

    def _forget_if_empty(self, account: NodeAccount) -> None:
        if account.is_empty:
            self._nodes.pop(account.name, None)
            self.journal.touch(account.name)
            self.journal.forget(self._nodes)


def _is_found_out(before: NodeView, after: NodeView) -> bool:
    """Whether a node that was taken for one without cards has some that nobody reports."""
    return (before.problem, after.problem) == (Reason.NODE_HAS_NO_CARDS, Reason.NODE_NOT_REPORTED)


def _is_raised(before: int | None, after: int | None) -> bool:
    """Whether a bound leaves more than before; None is no bound."""
    return before is not None and (after is None or after > before)
