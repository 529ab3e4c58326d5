"""Any order of calls, events and lists: no card is lost, forgotten, or given out twice.

A small API server stands beside the ledger. Pods are bound there by the ledger's Bindings and by
others; its events reach the ledger late, twice, out of order, or never; its lists are old when they
arrive. After every step the accounts are what the entries add up to (``ledgers.check``), and at the
end, one fresh list makes the ledger what the server is.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cardwise.ledger import HOLD_SECONDS, Ledger, Sighting, Stage
from cardwise.model import Booking, Card, PodRef, QuotaBound
from cardwise.names import Reason
from ledgers import booking, card, check, pod, report, request

NODES = {"n1": ("a", "b"), "n2": ("c",)}
UUIDS = ("a", "b", "c")
NAMES = tuple(f"p{number}" for number in range(4))
PLACES = st.sampled_from([(node, uuid) for node, uuids in NODES.items() for uuid in uuids])


def cardless(told: Sighting) -> bool:
    """Whether it shows a Pod bound without an allocation."""
    return told.node is not None and not (told.gone or told.booking or told.unreadable)


@dataclass
class Served:
    """A Pod as the API server has it."""

    pod: PodRef
    now: Sighting
    """What it shows."""
    told: list[Sighting]
    """All that it ever showed: the events."""
    ours: Booking | None = None
    """What our Binding gave it, for as long as nobody meddles with its annotation."""
    shown: list[Booking] = field(default_factory=list)
    """Every booking that it ever showed."""

    @property
    def is_bound(self) -> bool:
        return self.now.node is not None and not self.now.gone

    def show(self, **change: object) -> None:
        self.now = replace(self.now, version=self.now.version + 1, **change)  # type: ignore[arg-type]
        self.told.append(self.now)
        if self.now.booking is not None:
            self.shown.append(self.now.booking)


class Life(RuleBasedStateMachine):
    """The ledger, the API server, and what is on the way between them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.served: dict[str, Served] = {}
        self.sent: dict[str, Booking] = {}
        """Bindings on their way, by UID."""
        self.answers: dict[str, bool] = {}
        """Outcomes on their way back."""
        self.list: tuple[list[Sighting], float] | None = None
        """A list on its way, and when it was asked for."""
        self.known: dict[str, Sighting] = {}
        """The newest that the ledger was told of each Pod."""
        self.now = 0.0

    @initialize()
    def report_all(self) -> None:
        # One slot a card: whoever is given a used card is given it twice.
        for node, uuids in NODES.items():
            cards = [card(uuid, slots=1) for uuid in uuids]
            self.ledger.apply_gpunode(report(node, *cards), 0.0)

    def some(self, data: st.DataObject, what: dict[str, object] | list[str]) -> str:
        return data.draw(st.sampled_from(sorted(what)))

    def alive(self, *, is_bound: bool) -> list[str]:
        return [
            uid for uid, it in self.served.items() if not it.now.gone and it.is_bound is is_bound
        ]

    # kube-scheduler and we ------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), namespace=st.sampled_from(["default", "others"]))
    def create(self, name: str, namespace: str) -> None:
        who = pod(name, namespace)
        if who.uid not in self.served:
            first = Sighting(pod=who, version=1)
            self.served[who.uid] = Served(who, first, [first])

    @precondition(lambda self: self.served)
    @rule(data=st.data(), place=PLACES, exclusive=st.booleans(), fits=st.booleans())
    def filter(
        self, data: st.DataObject, place: tuple[str, str], exclusive: bool, fits: bool
    ) -> None:
        """Hold a card that is free but for this Pod's own hold, or refuse."""
        who = self.served[self.some(data, self.served)].pod
        entry = self.ledger.entry(who.uid)
        if entry is not None and entry.stage in (Stage.BINDING, Stage.BOOKED):
            return
        node, uuid = place
        view = self.ledger.view(node, without={who.uid})
        free = {
            seen for seen, it in zip(view.uuids, view.state.cards, strict=True) if not it.used_slots
        }
        if fits and view.problem is None and uuid in free:
            booked = booking(node, uuid, exclusive=exclusive)
            self.ledger.hold(request(who), booked, self.now)
        else:
            self.ledger.wait(who, request(who), Reason.MEMORY, self.now)

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.ledger.drop_hold(self.some(data, self.served), self.now)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def send_binding(self, data: st.DataObject) -> None:
        uid = self.some(data, self.held())
        self.sent[uid] = self.ledger.begin_binding(uid, self.now)

    def held(self) -> list[str]:
        return [it.pod.uid for it in self.ledger.entries() if it.stage is Stage.HELD]

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def receive_binding(self, data: st.DataObject) -> None:
        self.receive(self.some(data, self.sent))

    def receive(self, uid: str) -> None:
        """The API server binds a Pod that is there and unbound, in one write."""
        booked, it = self.sent.pop(uid), self.served[uid]
        takes = uid in self.alive(is_bound=False)
        if takes:
            it.show(node=booked.node, booking=booked)
            it.ours = booked
        self.answers[uid] = takes

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answer_binding(self, data: st.DataObject) -> None:
        uid = self.some(data, self.answers)
        self.ledger.end_binding(uid, self.now, bound=self.answers.pop(uid))
        self.unlearn(uid)

    @rule(name=st.sampled_from(NAMES), steps=st.integers(1, 5))
    def go_on(self, name: str, steps: int) -> None:
        """The usual way of a Pod: created, held, sent, received, answered."""
        uid = pod(name).uid
        for _ in range(steps):
            if uid not in self.served:
                self.create(name, "default")
            elif uid in self.answers:
                self.ledger.end_binding(uid, self.now, bound=self.answers.pop(uid))
            elif uid in self.sent:
                self.receive(uid)
            elif uid in self.held():
                self.sent[uid] = self.ledger.begin_binding(uid, self.now)
            elif uid in self.alive(is_bound=False) and (free := self.free()):
                entry = self.ledger.entry(uid)
                if entry is None or entry.stage is Stage.WAITING:
                    who = self.served[uid].pod
                    self.ledger.hold(request(who), booking(*free[0]), self.now)

    def free(self) -> list[tuple[str, str]]:
        return [
            (view.name, uuid)
            for view in self.ledger.views(sorted(NODES))
            for uuid, it in zip(view.uuids, view.state.cards, strict=True)
            if view.problem is None and not it.used_slots
        ]

    # Others ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.alive(is_bound=False))
    @rule(data=st.data(), place=PLACES, how=st.sampled_from(["cards", "no cards", "garbled"]))
    def bind_by_others(self, data: st.DataObject, place: tuple[str, str], how: str) -> None:
        uid = self.some(data, self.alive(is_bound=False))
        self.served[uid].show(node=place[0], **self.allocation(place, how))

    @precondition(lambda self: self.alive(is_bound=True))
    @rule(data=st.data(), uuid=st.sampled_from(UUIDS), how=st.sampled_from(["cards", "garbled"]))
    def meddle(self, data: st.DataObject, uuid: str, how: str) -> None:
        """Somebody garbles an allocation, or mends it."""
        it = self.served[self.some(data, self.alive(is_bound=True))]
        it.ours = None
        assert it.now.node is not None
        it.show(**self.allocation((it.now.node, uuid), how))

    @precondition(lambda self: self.alive(is_bound=True))
    @rule(data=st.data())
    def take_annotation_away(self, data: st.DataObject) -> None:
        it = self.served[self.some(data, self.alive(is_bound=True))]
        it.show(**self.allocation(("", ""), "no cards"))

    @staticmethod
    def allocation(place: tuple[str, str], how: str) -> dict[str, object]:
        return {
            "booking": booking(*place, memory=500) if how == "cards" else None,
            "unreadable": "it is garbled" if how == "garbled" else None,
        }

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        it = self.served[self.some(data, self.served)]
        if not it.now.gone:
            it.show(gone=True, booking=None, unreadable=None)

    # The watch ------------------------------------------------------------------------------------

    @precondition(lambda self: self.served)
    @rule(data=st.data(), newest=st.booleans())
    def event(self, data: st.DataObject, newest: bool) -> None:
        """Any event: the newest, one again, or an old one."""
        it = self.served[self.some(data, self.served)]
        told = it.told[-1] if newest else data.draw(st.sampled_from(it.told))
        self.ledger.see(told, self.now)
        self.learn(told)

    def learn(self, told: Sighting) -> None:
        uid = told.pod.uid
        known = self.known.get(uid)
        if known is not None and (known.gone or told.version < known.version):
            return
        self.known[uid] = told
        self.unlearn(uid)

    def unlearn(self, uid: str) -> None:
        """Where the ledger keeps nothing, it can't tell an older event from a newer one."""
        known = self.known.get(uid)
        if known is not None and cardless(known) and self.ledger.entry(uid) is None:
            del self.known[uid]

    @rule()
    def ask_for_a_list(self) -> None:
        lines = [it.now for it in self.served.values() if not it.now.gone]
        self.list = lines, self.now

    @precondition(lambda self: self.list)
    @rule()
    def take_the_list(self) -> None:
        assert self.list is not None
        lines, began = self.list
        self.list = None
        older = [it for it in lines if it.node and not self.is_younger(it.pod.uid, began)]
        self.ledger.reconcile(lines, began, self.now)
        for line in older:
            self.learn(line)

    def is_younger(self, uid: str, began: float) -> bool:
        entry = self.ledger.entry(uid)
        return entry is not None and entry.stage is Stage.BOOKED and entry.changed >= began

    # Nodes and quotas -----------------------------------------------------------------------------

    @rule(
        node=st.sampled_from(sorted(NODES)),
        cards=st.lists(
            st.builds(
                card,
                st.sampled_from(UUIDS),
                memory=st.sampled_from([9000, 15360]),
                cores=st.sampled_from([100, 200]),
                healthy=st.booleans(),
                slots=st.just(1),
            ),
            max_size=3,
            unique_by=lambda it: it.uuid,
        ),
        cordoned=st.frozensets(st.sampled_from(UUIDS)),
        beat=st.sampled_from("12"),
    )
    def apply_gpunode(
        self, node: str, cards: list[Card], cordoned: frozenset[str], beat: str
    ) -> None:
        own = [card for card in cards if card.uuid in NODES[node]]  # a card is in one machine
        if own:
            self.ledger.apply_gpunode(report(node, *own, cordoned=cordoned, beat=beat), self.now)
        else:
            self.ledger.remove_gpunode(node, self.now)

    @rule(
        node=st.sampled_from(sorted(NODES)),
        offers=st.booleans(),
        cordoned=st.frozensets(st.sampled_from(UUIDS)),
        there=st.booleans(),
    )
    def apply_node(self, node: str, offers: bool, cordoned: frozenset[str], there: bool) -> None:
        if there:
            self.ledger.apply_node(node, offers_cards=offers, cordoned=cordoned)
        else:
            self.ledger.remove_node(node)

    @rule(seconds=st.sampled_from([0, 100, HOLD_SECONDS]))
    def look_at_the_clock(self, seconds: int) -> None:
        self.now += seconds
        self.ledger.expire_holds(self.now)
        self.ledger.age_reports(self.now)

    @rule(
        namespace=st.sampled_from(["default", "others"]),
        memory=st.none() | st.integers(0, 5000),
        cores=st.none() | st.integers(0, 50),
    )
    def set_bound(self, namespace: str, memory: int | None, cores: int | None) -> None:
        self.ledger.set_bound(namespace, QuotaBound(memory_mib=memory, cores=cores))

    # What always holds ----------------------------------------------------------------------------

    @invariant()
    def accounts_add_up(self) -> None:
        self.now += 1.0
        check(self.ledger)

    @invariant()
    def what_we_gave_is_never_forgotten(self) -> None:
        """From the Binding to the Pod's end its cards are counted, whatever the watch shows."""
        given = {uid: it.ours for uid, it in self.served.items() if it.ours and not it.now.gone}
        for uid, booked in {**self.sent, **given}.items():
            entry = self.ledger.entry(uid)
            assert entry is not None
            if uid in given:
                assert entry.booking == booked
            else:
                assert entry.booking in [booked, *self.served[uid].shown, None]

    @invariant()
    def a_pod_has_what_the_newest_word_of_it_says(self) -> None:
        for uid, told in self.known.items():
            entry = self.ledger.entry(uid)
            on_its_way = uid in self.sent or uid in self.answers
            # A list without it is a word, too: see only_what_ended_is_taken_for_ended.
            is_gone = told.gone or uid in self.ledger._ended
            if is_gone and not on_its_way:
                assert entry is None or entry.stage in (Stage.WAITING, Stage.HELD)
            elif not is_gone and told.booking is not None:
                assert entry is not None
                assert entry.stage is (Stage.BINDING if on_its_way else Stage.BOOKED)
                assert entry.booking == told.booking
            if not (is_gone and on_its_way):
                closes = told.unreadable is not None and not is_gone
                assert self.closed_by(uid) == ([told.node] if closes else [])

    def closed_by(self, uid: str) -> list[str]:
        accounts = [(node, self.ledger.account(node)) for node in NODES]
        return [node for node, it in accounts if it is not None and it.is_closed_by(uid)]

    @invariant()
    def only_what_ended_is_taken_for_ended(self) -> None:
        """Nothing of such a Pod would ever be believed again."""
        assert all(self.served[uid].now.gone for uid in self.ledger._ended)

    @invariant()
    def no_card_is_given_out_twice(self) -> None:
        given = Counter(
            it.ours.containers[0][0].uuid
            for it in self.served.values()
            if it.ours is not None and not it.now.gone
        )
        assert all(times == 1 for times in given.values())

    def teardown(self) -> None:
        """Once all outcomes are known, one fresh list makes the ledger what the server is."""
        for uid in list(self.sent):
            self.receive(uid)
        for uid, is_bound in self.answers.items():
            self.ledger.end_binding(uid, self.now, bound=is_bound)
        lines = [it.now for it in self.served.values() if not it.now.gone]
        self.ledger.reconcile(lines, self.now + 1, self.now + 2)
        # A hold whose Pod ended unseen is the one thing that a list leaves: until it is too old.
        self.ledger.expire_holds(self.now + 2 * HOLD_SECONDS)
        check(self.ledger)
        for it in self.served.values():
            self.is_as_on_the_server(it)

    def is_as_on_the_server(self, it: Served) -> None:
        entry = self.ledger.entry(it.pod.uid)
        if it.now.booking is not None:
            assert entry is not None
            assert (entry.stage, entry.booking) == (Stage.BOOKED, it.now.booking)
        elif not it.is_bound:
            assert entry is None or entry.stage is Stage.WAITING
        assert self.closed_by(it.pod.uid) == ([it.now.node] if it.now.unreadable else [])


@pytest.mark.timeout(900)
def test_any_order_of_calls_events_and_lists() -> None:
    twice = 2 * settings.default.max_examples
    run_state_machine_as_test(Life, settings=settings(max_examples=twice, stateful_step_count=50))
