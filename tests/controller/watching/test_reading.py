"""A Pod is read once for each of its versions, and what is remembered is what would be read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.controller.watching.reading import Reading
from cardwise.ledger import Ledger, Sighting

Json = dict[str, Any]
A, B = build.allocation("GPU-n1-a"), build.allocation("GPU-n1-b")


def shown(version: int | str, name: str = "p", **more: Any) -> Json:
    fields = {"gpumem": 1000, "node": "n1", "allocated": A, **more}
    return build.pod(name, resource_version=str(version), **fields)


def reading(ledger: Ledger | None = None) -> Reading:
    return Reading(ledger or Ledger(), init_shrink=False, unreadable=lambda _pod, _why: None)


def test_a_pod_that_has_not_changed_is_not_read_again() -> None:
    # Red: nothing is remembered.
    it = reading()

    assert it.read(shown(5)) is it.read(shown(5), listed=True)


@pytest.mark.parametrize(
    ("first", "second", "deleted"),
    [
        pytest.param(shown(5), shown(6, allocated=B), False, id="a newer version"),
        pytest.param(shown(5), shown(4, allocated=B), False, id="an older version, come late"),
        pytest.param(shown(5), shown(6, allocated="?"), False, id="one that can't be read"),
        pytest.param(shown(5), shown(6, phase="Failed"), False, id="its end"),
        pytest.param(shown(5), shown(5), True, id="its deletion, as it was last"),
        pytest.param(shown("x"), shown("x", allocated=B), False, id="versions that are no numbers"),
        pytest.param(shown(5), shown(5, "q", allocated=B), False, id="another Pod"),
        pytest.param(shown(5, allocated="?"), shown(5, allocated="?"), False, id="not readable"),
        pytest.param(shown(5, node=None), shown(6), False, id="one that has been bound since"),
    ],
)
def test_what_may_say_something_else_is_read(first: Json, second: Json, deleted: bool) -> None:
    it = reading()
    it.read(first)

    assert it.read(second, deleted=deleted) == reading().read(second, deleted=deleted)


VERSIONS = [
    [shown(1, node=None, allocated=None), shown(2), shown(3, phase="Running"), shown(4)],
    [shown(1, "q", allocated=B), shown(2, "q", allocated="?"), shown(3, "q", phase="Succeeded")],
]
"""Two Pods, as they were one after the other."""


@given(
    st.lists(
        st.tuples(st.sampled_from(VERSIONS), st.integers(0, 3), st.booleans(), st.booleans()),
        max_size=20,
    )
)
def test_in_whatever_order_pods_are_shown_it_is_read_what_they_say(
    shows: list[tuple[list[Json], int, bool, bool]],
) -> None:
    it, uids = reading(), set()
    for versions, number, deleted, forgets in shows:
        pod = versions[min(number, len(versions) - 1)]
        uids.add(pod["metadata"]["uid"])

        assert it.read(pod, deleted=deleted) == reading().read(pod, deleted=deleted)
        it.keep(set() if forgets else uids)


def test_of_a_booking_one_copy_is_kept() -> None:
    # Red: what was read is remembered beside what the ledger has, which is equal.
    ledger = Ledger()
    first = reading(ledger).read(shown(5))
    assert isinstance(first, Sighting)
    ledger.see(first, 0)

    again = reading(ledger).read(shown(6))

    assert isinstance(again, Sighting)
    assert again.booking is first.booking


def test_of_pods_that_are_gone_nothing_is_kept() -> None:
    # Red: `read` keeps what was deleted, or `keep` keeps all.
    it = reading()
    for name in ("deleted", "finished", "vanished", "stays"):
        it.read(shown(5, name))

    it.read(shown(5, "deleted"), deleted=True)
    it.read(shown(6, "finished", phase="Succeeded"))
    it.keep({"uid-default-stays", "uid-default-finished"})

    assert list(it._known) == ["uid-default-stays"]
