"""Say what was decided: log lines and events, the same account in both."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Set

from cardwise import policy
from cardwise.controller.telling.recorder import Recorder
from cardwise.engine.idle import hopeless
from cardwise.gangs import as_not_placed
from cardwise.ledger import Ledger, Stage
from cardwise.model import (
    Booking,
    Decision,
    InvalidRequest,
    NodeView,
    PodRef,
    Request,
    Signature,
)
from cardwise.names import (
    WEBHOOK_IGNORE,
    WEBHOOK_LABEL,
    EventReason,
    NodeReason,
    Reason,
    WaitReason,
)
from cardwise.settings import Settings
from cardwise.wire.account import (
    ClusterSize,
    QuotaAccount,
    allocated_message,
    card_lines,
    pending_message,
)

_log = logging.getLogger("cardwise.decisions")
_Again = Callable[[Request], Decision]
_NODES_LOGGED = 20
_QUESTIONS_KNOWN = 16
"""A question may name ten thousand cards, so few are kept."""
_BYPASSED = (
    "This Pod did not pass Cardwise's admission, so it gets no cards: the webhook was away "
    f"when it was created, or its namespace is exempt (kube-system, or the label {WEBHOOK_LABEL}: "
    f"{WEBHOOK_IGNORE}). Create the Pod anew in a namespace that is not."
)
_OF_WAITING = (
    *Reason,
    *NodeReason,
    EventReason.NEEDS_EXTENDER_DOOR,
    EventReason.GANG_INCOMPLETE,
    EventReason.VOLUME_NOT_READY,
    EventReason.KEPT_BACK,
)


class Teller:
    """Tells people about decisions; it changes nothing."""

    def __init__(self, ledger: Ledger, recorder: Recorder, settings: Settings) -> None:
        self._ledger = ledger
        self._recorder = recorder
        self._settings = settings
        self._size_known = -1, ClusterSize(largest_card_mib=0, most_cards=0)
        self._hopeless_known: tuple[int, dict[Signature, Reason | None]] = (-1, {})
        self.on_decision: Callable[[str, str], None] = lambda _result, _reason: None
        """Called with a result and its reason, for the metrics."""

    def chosen(self, decision: Decision, view: NodeView) -> None:
        """A node was chosen: one line a candidate card."""
        self.on_decision("fits", "")
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", "\n".join(card_lines(decision, view)))

    def refused(
        self,
        decision: Decision,
        reason: Reason,
        *,
        news: bool,
        quiet: bool,
        again: _Again | None,
    ) -> None:
        """No node fits.

        Args:
            decision: with the outcome of every node.
            reason: the leading reason.
            news: the Pod did not wait for this reason before.
            quiet: post no event (kube-scheduler asked about the nominated node alone).
            again: decides anew, once the event is written; None: it tells of this decision.
        """
        self.on_decision("refused", reason)
        self._log_refusal(decision, reason, news=news)
        pod = decision.request.pod
        if quiet:
            return
        if again is not None:
            self._post_refusal(pod, reason, again)
        elif self._recorder.wants(pod, reason):
            self._recorder.post(pod, reason, self._account(decision, reason))

    def _post_refusal(self, pod: PodRef, reason: Reason, again: _Again) -> None:
        if self._recorder.wants(pod, reason):
            self._recorder.post(pod, reason, lambda: self._by_now(pod, reason, again))

    def _by_now(self, pod: PodRef, reason: Reason, again: _Again) -> str:
        """What to tell of a refusal by now; empty where the Pod does not wait for this any more."""
        entry = self._ledger.entry(pod.uid)
        if entry is None or entry.stage is not Stage.WAITING or entry.request is None:
            return ""
        decision = again(entry.request)
        if decision.node is not None:
            return ""  # kube-scheduler is about to ask again
        now = decision.reason or Reason.NODE_HAS_NO_CARDS
        if now is reason:
            return self._account(decision, reason)
        self._post_refusal(pod, now, again)
        return ""

    def account(
        self,
        decision: Decision,
        reason: WaitReason,
        others: Mapping[str, str],
        *,
        tried: Set[str] = frozenset(),
    ) -> str:
        """Log a refusal that is news, and return what to tell the Pods that it is the answer for.

        Args:
            decision: with the outcome of every candidate.
            reason: the leading reason.
            others: the nodes with cards that are no candidates, and why.
            tried: ``namespace/name`` of the Pods of its gang for which cards are held meanwhile, to
                see whether all fit.
        """
        self.on_decision("refused", reason)
        self._log_refusal(decision, reason, news=True)
        return self._account(decision, reason, what="nodes", others=others, tried=tried)

    def waits(self, pod: PodRef, reason: WaitReason, message: Callable[[], str]) -> None:
        """A Pod waits, and why; said once a minute at most, and made only then."""
        if self._recorder.wants(pod, reason):
            self._recorder.post(pod, reason, message())

    def _account(
        self,
        decision: Decision,
        reason: WaitReason,
        *,
        what: str = "candidate nodes",
        others: Mapping[str, str] | None = None,
        tried: Set[str] = frozenset(),
    ) -> str:
        return pending_message(
            decision,
            _Views(self._ledger, decision.outcomes, tried),
            what=what,
            name_tenants=self._settings.events.nameTenants,
            quota=self._quota(decision.request) if reason is Reason.QUOTA else None,
            cluster=self._size(),
            hopeless=self._hopeless(decision.request.signature),
            others=others,
            preemption_note=decision.request.priority > 0,
        )

    def invalid(self, invalid: InvalidRequest) -> None:
        """The request can't be read."""
        self.on_decision("invalid", Reason.INVALID_REQUEST)
        if self._recorder.wants(invalid.pod, Reason.INVALID_REQUEST):
            self._recorder.post(invalid.pod, Reason.INVALID_REQUEST, invalid.message)

    def unknown_policies(self, request: Request) -> None:
        """Names in the chain had no effect: say which, and which was meant."""
        if not request.unknown_policies:
            return
        if self._recorder.wants(request.pod, EventReason.UNKNOWN_POLICY):
            note = " ".join(_unknown(name) for name in request.unknown_policies)
            note += f" In force: {request.signature.policy}."
            self._recorder.post(request.pod, EventReason.UNKNOWN_POLICY, note)

    def bound(self, request: Request, booking: Booking, view: NodeView) -> None:
        """The Pod has its cards."""
        self._recorder.forget(request.pod.uid, _OF_WAITING)
        self._recorder.post(
            request.pod,
            EventReason.CARDS_ALLOCATED,
            allocated_message(request, booking, view),
            warning=False,
        )

    def not_bound(self, pod: PodRef, error: str) -> None:
        """The Binding, or the pin, came to nothing."""
        self._recorder.post(pod, EventReason.BINDING_FAILED, error)

    def unreadable(self, pod: PodRef, why: str) -> None:
        """A placed Pod's allocation can't be read: its node is closed until it is mended."""
        note = f"This Pod's node takes no new Pod with cards until its annotation is mended: {why}"
        self._recorder.post(pod, EventReason.UNREADABLE_ALLOCATION, note)

    def class_takes(self, pod: PodRef, sentence: str) -> None:
        """A DeviceClass takes our resource name: kube-scheduler refuses the Pod by itself."""
        if self._recorder.wants(pod, EventReason.CLASS_TAKES_OUR_RESOURCE):
            self._recorder.post(pod, EventReason.CLASS_TAKES_OUR_RESOURCE, sentence)

    def bypassed(self, pod: PodRef) -> None:
        """A Pod waits that never passed our admission."""
        if self._recorder.wants(pod, EventReason.WEBHOOK_BYPASSED):
            self._recorder.post(pod, EventReason.WEBHOOK_BYPASSED, _BYPASSED)

    def warn(self, pod: PodRef, reason: EventReason, note: str) -> None:
        """Something about the Pod that nobody decided; said once a minute at most."""
        if self._recorder.wants(pod, reason):
            self._recorder.post(pod, reason, note)

    def _log_refusal(self, decision: Decision, reason: WaitReason, *, news: bool) -> None:
        """At debug level every node, every time; else up to 20 nodes when the reason is new."""
        debug = _log.isEnabledFor(logging.DEBUG)
        if not debug and not (news and _log.isEnabledFor(logging.INFO)):
            return
        pod, count = decision.request.pod, len(decision.outcomes)
        _log.info("pod=%s fits on none of %d nodes: %s", pod, count, reason)
        names = list(decision.outcomes)[: None if debug else _NODES_LOGGED]
        lines = [line for name in names for line in card_lines(decision, self._ledger.view(name))]
        if lines:
            _log.info("%s", "\n".join(lines))

    def _quota(self, request: Request) -> QuotaAccount:
        namespace = request.pod.namespace
        return QuotaAccount(
            namespace=namespace,
            bound=self._ledger.bound(namespace),
            used=self._ledger.quota_use(namespace),
        )

    def _size(self) -> ClusterSize:
        """The largest card and node, summed up anew only when what is offered changed."""
        offers, size = self._size_known
        if offers != self._ledger.offers:
            names = self._ledger.gpunode_names()
            nodes = [view.state.cards for view in self._ledger.views(names)]
            size = ClusterSize(
                largest_card_mib=max((c.memory_mib for cards in nodes for c in cards), default=0),
                most_cards=max((len(cards) for cards in nodes), default=0),
            )
            self._size_known = self._ledger.offers, size
        return size

    def _hopeless(self, signature: Signature) -> Reason | None:
        """Why a Pod would fit nowhere even without tenants, until what is offered changes."""
        offers, known = self._hopeless_known
        if offers != self._ledger.offers:
            known = {}
            self._hopeless_known = self._ledger.offers, known
        if signature not in known:
            while len(known) >= _QUESTIONS_KNOWN:
                del known[next(iter(known))]
            names = self._ledger.gpunode_names()
            known[signature] = hopeless(signature, self._ledger.views(names))
        return known[signature]


class _Views(Mapping[str, NodeView]):
    """The nodes of a decision, looked up as they are told of: a message tells of a few."""

    def __init__(
        self, ledger: Ledger, names: Collection[str], tried: Set[str] = frozenset()
    ) -> None:
        self._ledger = ledger
        self._names = names
        self._tried = tried

    def __getitem__(self, name: str) -> NodeView:
        view = self._ledger.view(name)
        return as_not_placed(view, self._tried) if self._tried else view

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _unknown(name: str) -> str:
    near = policy.nearest(name)
    hint = f" Did you mean {near}?" if near else ""
    return f"Policy name {name[:60]!r} is not known and has no effect.{hint}"
