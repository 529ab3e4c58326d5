"""Numbers for node states."""

from cardwise.ledger.states import States
from states import card, idle, state


def test_equal_states_have_one_number_and_others_have_others() -> None:
    states = States()
    numbers = [states.number(it) for it in (idle(1), idle(2), idle(1), state(card(0)), idle(3))]
    assert numbers == [1, 2, 1, 1, 3]
    assert len(states) == 3


def test_a_full_table_starts_afresh_and_uses_no_number_twice() -> None:
    states = States(limit=2)
    numbers = [states.number(idle(cards)) for cards in (1, 2, 1, 3, 1, 2)]
    assert numbers == [1, 2, 1, 3, 4, 5]
    assert len(states) == 1


def test_fifty_thousand_states_are_kept() -> None:
    assert States()._limit == 50_000
