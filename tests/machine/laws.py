"""What holds after every step, whatever happened.

"Red" names a change of one line in the product that was tried, and broke the law in a few thousand
steps at most.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import ledgers
import oracle
from cardwise.ledger import Stage
from cardwise.model import Booking
from cardwise.names import ALLOCATED, GATE
from machine.gated import gates, is_tight
from oracle_reading import tenant_of

if TYPE_CHECKING:
    from machine.model import Model

Json = dict[str, Any]


def no_card_is_over_its_capacity(model: "Model") -> None:
    """What placed Pods have in the cluster, by the oracle: no MiB, core or slot of a card twice.

    Pinned ones count as bound ones do, and a card with the most that it ever offered: a report may
    shrink below what is used.

    Red: ``locked`` of ``NodeAccount._make_view`` leaves exclusive Pods out; ``_no_memory`` of
    ``engine.candidates`` is always False.
    """
    if model.looked_at == model.cluster.version:
        return
    model.looked_at = model.cluster.version
    found = oracle.violations(model.fleet.physical(), model.cluster.placed())
    assert found == [], found


def every_bound_pod_is_booked(model: "Model") -> None:
    """From the moment of the Binding, or the pin, its cards are counted, whatever the watch shows.

    Red: ``Binder._failed`` calls ``_over`` where the outcome is not known; so does
    ``_look_and_send`` where the GET shows the Pod unbound; ``_settle`` where a repeat is refused at
    once, not after ``_LANDS_SECONDS``; ``Ledger.reconcile`` ends Pods that changed since it began.
    """
    world = model.process.world
    if world is None or not model.process.is_active:
        return
    for pod in tenants(model):
        entry = world.entry(pod)
        assert entry is not None, f"{_name(pod)} is bound, and not in the ledger"
        assert entry.stage in (Stage.BINDING, Stage.BOOKED), f"{_name(pod)} is {entry.stage}"
        assert entry.booking is not None
        assert has(entry.booking) == given(pod), _name(pod)


def the_accounts_add_up(model: "Model") -> None:
    """Every account of the ledger is the sum of its entries, and every view is fresh.

    Red: ``Ledger.hold`` sets ``booking`` without ``_take``; ``Ledger._end`` does not ``_free``; an
    event of an unbound Pod frees its cards.
    """
    if model.process.world is not None:
        ledgers.check(model.process.world.ledger)


def answers_are_true(model: "Model") -> None:
    """/bind says that a Pod is bound only where it is, and always answers.

    Red: ``Binder._failed`` answers "" where the outcome is not found in time; ``Ledger._see_gone``
    ends a Pod whose Binding is out.
    """
    assert model.scheduler.lies == []


def nobody_comes_back(model: "Model") -> None:
    """Late, repeated and re-ordered events bring no booking back whose Pod has ended.

    It takes no list to mend that; but where the word of the end was lost, it does.

    Red: ``Ledger.see`` does not look into ``_ended``; ``Ledger._end`` does not ``_entomb``.
    """
    streams = model.process.streams
    if streams is None or not streams.are_still or model.cluster.listed < streams.began:
        return
    bound = {pod["metadata"]["uid"] for pod in tenants(model)}
    assert set(staged(model, Stage.BOOKED)) - bound <= streams.by_kind["Pod"].lost


def gated_without_cards_or_open_with_them(model: "Model") -> None:
    """One write does it all, so that no crash leaves a Pod between the two.

    Red: ``pin_patch`` leaves the gate, or the affinity, out.
    """
    for pod in model.cluster.alive():
        has_cards = ALLOCATED in pod["metadata"]["annotations"]
        if GATE in gates(pod):
            assert not has_cards, f"{_name(pod)} is gated, and has cards"
        elif pod["metadata"]["uid"] in model.gated:
            assert has_cards, f"{_name(pod)} is let through without cards"
            assert pod["spec"].get("nodeName") or is_tight(pod), f"{_name(pod)} may go elsewhere"


def nothing_died(model: "Model") -> None:
    """No task ended, no event could not be taken, nothing was raised where nobody hears it.

    Red: ``Waker._wake`` catches no ``ApiError``.
    """
    died = model.process.died()
    assert not died, f"a task died of {died[0]!r}"
    assert not model.complaints.heard, "; ".join(model.complaints.heard)


def at_every_write(model: "Model") -> None:
    """The same at once: a watch that shows what was written soon hides what was wrong."""
    try:
        no_card_is_over_its_capacity(model)
        every_bound_pod_is_booked(model)
        gated_without_cards_or_open_with_them(model)
    except AssertionError as broken:
        # Not raised here: whoever wrote would take it for an answer of the API server.
        model.complaints.heard.append(f"at a write: {broken}")


ALWAYS = (
    no_card_is_over_its_capacity,
    every_bound_pod_is_booked,
    the_accounts_add_up,
    answers_are_true,
    nobody_comes_back,
    gated_without_cards_or_open_with_them,
    nothing_died,
)

# What they look at --------------------------------------------------------------------------------


def tenants(model: "Model") -> list[Json]:
    """Every bound or pinned Pod with an allocation, as the cluster has it."""
    return [
        pod
        for pod in model.cluster.placed()
        if pod["spec"].get("nodeName") and ALLOCATED in pod["metadata"]["annotations"]
    ]


def given(pod: Json) -> tuple[str, list[tuple[int, str, int, int]]]:
    """What the cluster says that a Pod has, by the oracle's reading."""
    tenant = tenant_of(pod)
    return tenant.node, sorted((b.position, b.uuid, b.memory, b.cores) for b in tenant.bookings)


def has(booking: Booking) -> tuple[str, list[tuple[int, str, int, int]]]:
    """What the ledger says."""
    return booking.node, sorted(
        (position, share.uuid, share.memory_mib, share.cores)
        for position, shares in enumerate(booking.containers)
        for share in shares
    )


def counted(model: "Model") -> dict[str, tuple[Stage, Booking | None]]:
    """Where every Pod stands, and its cards."""
    world = model.process.world
    entries = world.ledger.entries() if world is not None else ()
    return {entry.pod.uid: (entry.stage, entry.booking) for entry in entries}


def staged(model: "Model", stage: Stage) -> list[str]:
    """UIDs of the Pods that stand there."""
    return [uid for uid, (found, _) in counted(model).items() if found is stage]


class Complaints(logging.Handler):
    """Hears what the product logs as an error, and what is raised with nobody waiting for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []
        self._logger = logging.getLogger("cardwise")
        self._logger.addHandler(self)
        self._level = self._logger.level
        self._logger.setLevel(logging.ERROR)
        loop.set_exception_handler(self._raised)

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(f"{record.getMessage()} {record.exc_info}")

    def _raised(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.heard.append(f"{context.get('message')}: {context.get('exception')!r}")

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        super().close()


def _name(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"{metadata['namespace']}/{metadata['name']} ({metadata['uid']})"
