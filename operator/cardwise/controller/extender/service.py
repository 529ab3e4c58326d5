"""kube-scheduler's questions, answered: /filter, /preempt, /bind.

The door by which a kube-scheduler of ours asks: it calls, and is answered.
"""

import logging
from dataclasses import replace
from typing import Any

from cardwise.controller.clock import Clock
from cardwise.controller.extender.waker import Waker
from cardwise.controller.lease.duty import Duty
from cardwise.controller.lease.tenure import WRITE_SECONDS
from cardwise.controller.placing.binder import Binder
from cardwise.controller.placing.decider import Decider
from cardwise.controller.placing.standings import FEW
from cardwise.controller.telling.teller import Teller
from cardwise.controller.watching.mirror import Mirror
from cardwise.engine.recheck import still_fits
from cardwise.errors import ApiError
from cardwise.ledger import Ledger, PodEntry, Stage
from cardwise.model import Booking, Decision, InvalidRequest, Request
from cardwise.names import Reason
from cardwise.ports import Cluster
from cardwise.settings import Settings
from cardwise.wire import extender, pods
from cardwise.wire.fields import at

_log = logging.getLogger(__name__)
IN_PROGRESS = "bind in progress; ask again"
_SETS, _SETS_SECONDS = 8, 60.0
"""Different sets of nodes that are kept, in so many seconds; one of 5,000 has some 0.3 MB."""


class Scheduler:
    """The extender's three verbs over one ledger."""

    def __init__(  # noqa: PLR0913 - wiring: each collaborator once
        self,
        *,
        ledger: Ledger,
        mirror: Mirror,
        cluster: Cluster,
        decider: Decider,
        binder: Binder,
        teller: Teller,
        waker: Waker,
        duty: Duty,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._mirror = mirror
        self._cluster = cluster
        self._decider = decider
        self._binder = binder
        self._teller = teller
        self._waker = waker
        self._duty = duty
        self._settings = settings
        self._clock = clock
        self._asked = _Asked()

    # /filter --------------------------------------------------------------------------------------

    def filter(self, call: extender.FilterCall) -> dict[str, Any]:
        """Choose the node and hold its cards, or refuse every node with its word."""
        refusal = self._duty.refusal()
        if refusal:
            return extender.filter_error(refusal)
        request = pods.request_of(dict(call.pod), self._settings)
        if request is None:
            return extender.filter_result(call, call.names, {})
        if isinstance(request, InvalidRequest):
            return self._refuse_invalid(call, request)
        if not request.pod.uid:
            # No Pod of an API server: somebody asks by hand. Its name keeps two such Pods apart.
            request = replace(request, pod=request.pod._replace(uid=str(request.pod)))
        entry = self._ledger.entry(request.pod.uid)
        if entry is not None and entry.stage in (Stage.BINDING, Stage.BOOKED):
            return _kept(entry, call)
        decision = self._decider.decide_and_hold(request, call.about)
        self._teller.unknown_policies(request)
        if decision.node is None:
            self._refused(call, decision)
        else:
            self._teller.chosen(decision, self._ledger.view(decision.node))
        self._waker.look()
        kept = [decision.node] if decision.node else []
        # Where one fits, kube-scheduler asks for no word of the others.
        is_told = decision.node is None or len(call.about) <= FEW
        return extender.filter_result(call, kept, decision.refusals if is_told else {})

    def _refused(self, call: extender.FilterCall, decision: Decision) -> None:
        """Remember that the Pod waits, and say why."""
        request, reason = decision.request, decision.reason or Reason.NODE_HAS_NO_CARDS
        news = self._ledger.wait(request.pod, request, reason, self._clock.monotonic())
        self._waker.refused()
        quiet = call.names == (at(dict(call.pod), "status", "nominatedNodeName"),)
        # What is told is made later. Until then a thousand calls may be remembered, so neither the
        # Pod nor its request is: the ledger has that.
        asked = None if quiet else self._asked.kept(call.asked, self._clock.monotonic())
        again = None if asked is None else lambda now: self._decider.decide(now, asked)
        self._teller.refused(decision, reason, news=news, quiet=quiet, again=again)

    def _refuse_invalid(self, call: extender.FilterCall, invalid: InvalidRequest) -> dict[str, Any]:
        """A request that can't be read fits nowhere, whatever the nodes are like."""
        self._ledger.wait(invalid.pod, None, Reason.INVALID_REQUEST, self._clock.monotonic())
        self._teller.invalid(invalid)
        return extender.filter_result(call, [], dict.fromkeys(call.names, Reason.INVALID_REQUEST))

    # /preempt -------------------------------------------------------------------------------------

    def preempt(self, call: extender.PreemptCall) -> dict[str, Any]:
        """Keep only the nodes where the Pod would fit once the victims' bookings are gone."""
        request = pods.request_of(dict(call.pod), self._settings)
        if request is None:
            return extender.preempt_result(call, call.victims)
        if isinstance(request, InvalidRequest) or self._duty.refusal():
            return extender.preempt_result(call, [])
        kept = []
        for node, victims in call.victims.items():
            without = {*victims.uids, request.pod.uid}
            if self._decider.would_fit(request, node, without=without):
                kept.append(node)
        return extender.preempt_result(call, kept)

    # /bind ----------------------------------------------------------------------------------------

    async def bind(self, call: extender.BindCall) -> str:
        """Bind the Pod with its cards; why not, one sentence, or empty when it is bound."""
        refusal = self._duty.refusal()
        if refusal:
            return refusal
        entry = self._ledger.entry(call.uid)
        request = entry.request if entry is not None else None
        if request is None and (entry is None or entry.stage is Stage.WAITING):
            request, why = await self._ask_for(call)
            if request is None:
                return why
            entry = self._ledger.entry(call.uid)  # it may have changed meanwhile
        if entry is not None and entry.stage in (Stage.BINDING, Stage.BOOKED):
            return _standing(entry, call.node)
        if request is None:
            return "the Pod is not known; ask again"
        booking = self._cards_on(call.node, request, entry)
        if booking is None:
            self._waker.look()
            return f"the Pod's cards on {call.node} can't be had any more; ask again"
        error = await self._binder.bind(request, booking)
        self._after_bind(request, booking, error)
        return error

    def _after_bind(self, request: Request, booking: Booking, error: str) -> None:
        """Say what came of it, and wake who waits for what was given back."""
        if error:
            self._teller.not_bound(request.pod, error)
        else:
            self._teller.bound(request, booking, self._ledger.view(booking.node))
        self._waker.look()

    def _cards_on(self, node: str, request: Request, entry: PodEntry | None) -> Booking | None:
        """The held cards where they can still be given, else a decision anew for this node."""
        uid, now = request.pod.uid, self._clock.monotonic()
        held = entry.booking if entry is not None and entry.stage is Stage.HELD else None
        if (
            held is not None
            and held.node == node
            and still_fits(held, self._ledger.view(node, without={uid}))
        ):
            return held
        decision = self._decider.decide_and_hold(request, [node])
        if decision.booking is None:
            reason = decision.reason or Reason.NODE_HAS_NO_CARDS
            self._ledger.wait(request.pod, request, reason, now)
            self._waker.refused()
        else:
            self._teller.chosen(decision, self._ledger.view(node))
        return decision.booking

    async def _ask_for(self, call: extender.BindCall) -> tuple[Request | None, str]:
        """Read a Pod that /filter never saw (a restart lost it) from the API server."""
        try:
            pod = await self._cluster.pod(call.namespace, call.name)
        except ApiError as error:
            return None, f"the Pod can't be read: {error}"
        if pod is None or pods.pod_ref(pod).uid != call.uid:
            return None, "the Pod is gone"
        if pods.bound_node(pod) is not None:
            self._mirror.see_pod(pod)
            entry = self._ledger.entry(call.uid)
            booked = entry is not None and entry.stage is Stage.BOOKED and entry.node == call.node
            if booked or self._bound_plainly(pod, call.node):
                return None, ""  # bound by us before: that is success
            return None, f"the Pod is bound to {pods.bound_node(pod)} already"
        request = pods.request_of(pod, self._settings)
        if isinstance(request, InvalidRequest):
            return None, request.message
        # Reading took time, and SIGTERM may have come: no Binding is begun after it.
        refusal = self._duty.refusal()
        if refusal or request is not None:
            return (None, refusal) if refusal else (request, "")
        if not pods.asks_cards(pod):
            return None, "the Pod asks for no card"
        return None, await self._bind_plainly(pod, call.node)

    def _bound_plainly(self, pod: dict[str, Any], node: str) -> bool:
        """Whether a Pod that asks for no card is bound where kube-scheduler wants it."""
        return pods.bound_node(pod) == node and pods.request_of(pod, self._settings) is None

    async def _bind_plainly(self, pod: dict[str, Any], node: str) -> str:
        """Bind a Pod that names our resources and asks for no card, e.g. ``nvidia.com/gpu: 0``.

        kube-scheduler leaves the Binding to us wherever a resource of ours is named.
        """
        binding = pods.plain_binding(pods.pod_ref(pod), node)
        try:
            await self._cluster.bind(binding, within=WRITE_SECONDS)
        except ApiError as error:
            return f"the Pod asks for no card, and its Binding failed: {error}"
        return ""


class _Asked:
    """Sets of nodes that were asked about, for later: few, each shared by many Pods."""

    def __init__(self) -> None:
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._since = float("-inf")

    def kept(self, asked: frozenset[str], now: float) -> frozenset[str] | None:
        """The same set as it is kept; None: there are too many others to keep this one."""
        if (known := self._sets.get(asked)) is not None:
            return known
        if len(self._sets) >= _SETS:
            if now - self._since < _SETS_SECONDS:
                return None
            self._sets.clear()
        if not self._sets:
            self._since = now
        self._sets[asked] = asked
        return asked


def _kept(entry: PodEntry, call: extender.FilterCall) -> dict[str, Any]:
    """The answer to /filter for a Pod that is being bound, or is bound."""
    if entry.stage is Stage.BINDING:
        return extender.filter_error(IN_PROGRESS)
    if entry.node is not None and entry.node in call.about:
        return extender.filter_result(call, [entry.node], {})
    return extender.filter_error(f"the Pod is bound to {entry.node} already")


def _standing(entry: PodEntry, node: str) -> str:
    """The answer to /bind for a Pod that is being bound, or is bound."""
    if entry.stage is Stage.BINDING:
        return IN_PROGRESS
    return "" if entry.node == node else f"the Pod is bound to {entry.node} already, not to {node}"
