"""How the cards of a machine are joined, by what each of them tells of its own ends.

Separate from the library's calls, because here is no library: two cards may disagree, one may have
fallen silent, and what holds then is a rule (docs/placement.md section 5).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from cardwise.model import Link
from cardwise.ports import CardReading

SWITCH = "switch"
"""As an end: an NVSwitch, through which a card reaches all others."""


class Joins:
    """The pairs of one machine, as they were last told."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Link] = {}
        """By UUID."""

    def links(
        self,
        cards: Sequence[CardReading],
        ends: Mapping[int, Sequence[str]],
        path: Callable[[int, int], str],
    ) -> tuple[tuple[Link, ...] | None, tuple[str, ...]]:
        """Join every pair of cards.

        Args:
            cards: by index, sorted.
            ends: by card index, where each active NVLink leads: a PCI address in capitals, or
                ``SWITCH``. A card in trouble is left out: its links stay as they were, so that its
                illness does not look like another machine.
            path: the PCIe common ancestor of two cards; empty where it is unknown.

        Returns:
            the links, None where there are pairs and nothing is known of any; and a sentence for
            each pair whose cards disagree.
        """
        links: list[Link] = []
        doubts: list[str] = []
        for one, other in combinations(cards, 2):
            pair = (one.index, other.index)
            if ends.keys() >= set(pair):
                there, back = _straight(ends, one, other), _straight(ends, other, one)
                if there != back:
                    doubts.append(
                        f"card {one.index} tells of {there} NVLinks to card {other.index}, which"
                        f" tells of {back}: the smaller number holds"
                    )
                switched = min(ends[index].count(SWITCH) for index in pair)
                self._known[one.uuid, other.uuid] = Link(
                    first=one.index,
                    second=other.index,
                    nvlinks=min(there, back) or switched,
                    path=path(*pair),
                )
            known = self._known.get((one.uuid, other.uuid))
            if known is None or (known.first, known.second) != pair:
                known = Link(first=one.index, second=other.index)
            links.append(known)
        told = not links or any(link.path or link.nvlinks for link in links)
        return (tuple(links) if told else None), tuple(doubts)


def _straight(ends: Mapping[int, Sequence[str]], one: CardReading, other: CardReading) -> int:
    """How many NVLinks ``one`` tells of to ``other``."""
    bus = other.pci_bus_id.upper()
    return ends[one.index].count(bus) if bus else 0
