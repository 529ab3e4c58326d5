"""Every event in every stage of a Pod's life: where it stands then, and which cards it has."""

import pytest

from ledgers import (
    ELSEWHERE,
    LATER,
    STAGES,
    THERE,
    A,
    B,
    P,
    Step,
    at,
    bound,
    cardless,
    check,
    gone,
    hold,
    refuse,
    told,
    unbound,
    unreadable,
)

# What happens: the rows. Those of a list follow in test_reconcile.py.
EVENTS: dict[str, Step] = {
    "refused": refuse,
    "held again": lambda it: hold(it, A, now=9.0),
    "held on another card": lambda it: hold(it, B, now=9.0),
    "hold dropped": lambda it: it.drop_hold(P.uid, 9.0),
    "holds expire": lambda it: it.expire_holds(LATER),
    "Binding sent": lambda it: it.begin_binding(P.uid, 9.0),
    "Binding succeeded": lambda it: it.end_binding(P.uid, 9.0, bound=True),
    "Binding failed": lambda it: it.end_binding(P.uid, 9.0, bound=False),
    "seen unbound": lambda it: it.see(unbound(version=6), 9.0),
    "seen bound": lambda it: it.see(bound(A, version=6), 9.0),
    "seen with another card": lambda it: it.see(bound(B, version=6), 9.0),
    "seen on another node": lambda it: it.see(bound(ELSEWHERE, version=6), 9.0),
    "seen without cards": lambda it: it.see(cardless(version=6), 9.0),
    "seen garbled": lambda it: it.see(unreadable(version=6), 9.0),
    "garbled on another node": lambda it: it.see(unreadable(THERE, version=6), 9.0),
    "seen gone": lambda it: it.see(gone(version=6), 9.0),
    "an old event of its cards": lambda it: it.see(bound(B, version=4), 9.0),
    "an old event of its end": lambda it: it.see(gone(version=4), 9.0),
}

NEVER = "the caller's mistake"
PAST_HOLDING = ["binding", "binding, seen bound", "binding, seen without cards",
                "binding, seen gone", "booked", "garbled", "booked, then garbled"]  # fmt: skip

# Where it stands then, its cards, the nodes that it closes, what was seen while its Binding is out,
# and "+" where room grew. A stage that is left out: nothing changes.
WANT: dict[str, dict[str, str]] = {
    "refused": {"not known": "waiting", "held": "waiting +"},
    "held again": {
        "not known": "held, a",
        "waiting": "held, a",
        **dict.fromkeys(PAST_HOLDING, NEVER),
        # A /filter that was under way when the end was seen: "holds expire" gives it up.
        "gone": "held, a",
    },
    "held on another card": {
        "not known": "held, b",
        "waiting": "held, b",
        "held": "held, b +",
        **dict.fromkeys(PAST_HOLDING, NEVER),
        "gone": "held, b",
    },
    "hold dropped": {"held": "waiting +"},
    "holds expire": {"held": "waiting +"},
    "Binding sent": {
        **dict.fromkeys(["not known", "waiting", *PAST_HOLDING, "gone"], NEVER),
        "held": "binding, a",
    },
    "Binding succeeded": {
        **dict.fromkeys(["not known", "gone"], NEVER),
        "binding": "booked, a",
        "binding, seen bound": "booked, a",
        "binding, seen without cards": "booked, a",
        "binding, seen gone": "gone +",
    },
    "Binding failed": {
        **dict.fromkeys(["not known", "gone"], NEVER),
        "binding": "waiting +",
        # The API server said "bound already", say. What the Pod itself shows is the truth.
        "binding, seen bound": "booked, a",
        "binding, seen without cards": "not known +",
        "binding, seen gone": "gone +",
    },
    "seen unbound": {},
    "seen bound": {
        "not known": "booked, a",
        "waiting": "booked, a",
        "held": "booked, a",
        "binding": "binding, a, bound",
        "binding, seen without cards": "binding, a, bound",
        "garbled": "booked, a +",
        "booked, then garbled": "booked, a +",
    },
    "seen with another card": {
        "not known": "booked, b",
        "waiting": "booked, b",
        "held": "booked, b +",
        "binding": "binding, b, bound +",
        "binding, seen bound": "binding, b, bound +",
        "binding, seen without cards": "binding, b, bound +",
        "booked": "booked, b +",
        "garbled": "booked, b +",
        "booked, then garbled": "booked, b +",
    },
    "seen on another node": {
        "not known": "booked, c",
        "waiting": "booked, c",
        "held": "booked, c +",
        "binding": "binding, c, bound +",
        "binding, seen bound": "binding, c, bound +",
        "binding, seen without cards": "binding, c, bound +",
        "booked": "booked, c +",
        "garbled": "booked, c +",
        "booked, then garbled": "booked, c +",
    },
    "seen without cards": {
        "waiting": "not known",
        "held": "not known +",
        "binding": "binding, a, without cards",
        "garbled": "not known +",
        "booked, then garbled": "booked, a +",
    },
    "seen garbled": {
        "not known": "booked, n1 closed",
        "waiting": "booked, n1 closed",
        "held": "booked, a, n1 closed",
        "binding": "binding, a, n1 closed, bound",
        "binding, seen bound": "binding, a, n1 closed, bound",
        "binding, seen without cards": "binding, a, n1 closed, bound",
        "booked": "booked, a, n1 closed",
    },
    "garbled on another node": {
        "not known": "booked, n2 closed",
        "waiting": "booked, n2 closed",
        "held": "booked, n2 closed +",
        "binding": "binding, n2 closed, bound +",
        "binding, seen bound": "binding, n2 closed, bound +",
        "binding, seen without cards": "binding, n2 closed, bound +",
        "booked": "booked, n2 closed +",
        "garbled": "booked, n2 closed +",
        "booked, then garbled": "booked, n2 closed +",
    },
    "seen gone": {
        "not known": "gone",
        "waiting": "gone",
        "held": "gone +",
        "binding": "binding, a, gone",
        "binding, seen bound": "binding, a, bound, gone",
        "binding, seen without cards": "binding, a, without cards, gone",
        "booked": "gone +",
        "garbled": "gone +",
        "booked, then garbled": "gone +",
    },
    # /filter and /bind know no version: until an event was seen, none is old.
    "an old event of its cards": {
        "not known": "booked, b",
        "waiting": "booked, b",
        "held": "booked, b +",
        "binding": "binding, b, bound +",
    },
    "an old event of its end": {
        "not known": "gone",
        "waiting": "gone",
        "held": "gone +",
        "binding": "binding, a, gone",
    },
}


@pytest.mark.parametrize("where", STAGES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_stage(where: str, event: str) -> None:
    ledger = at(where)
    before = told(ledger)
    want = WANT[event].get(where, before)
    if want == NEVER:
        with pytest.raises((AssertionError, KeyError)):
            EVENTS[event](ledger)
        want = before
    else:
        EVENTS[event](ledger)
    assert told(ledger) == want
    check(ledger)


@pytest.mark.parametrize("where", STAGES)
@pytest.mark.parametrize("event", [name for name in EVENTS if name.startswith(("seen", "garbled"))])
def test_an_event_that_is_told_twice_counts_once(where: str, event: str) -> None:
    ledger = at(where)
    EVENTS[event](ledger)
    once = told(ledger).removesuffix(" +")
    ledger.grew = False
    EVENTS[event](ledger)
    assert told(ledger) == once
    check(ledger)


def test_the_table_has_every_event() -> None:
    assert set(WANT) == set(EVENTS)
