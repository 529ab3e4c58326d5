"""What stands in parentheses behind a card's word: who holds it, what is free, which model it is.

One short function a word, in a table, so that a new word is one line.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from cardwise.model import CardState, CardVerdict, NodeView
from cardwise.names import Reason

_CARDS_TOLD = 8
_TENANTS_TOLD = 4
_FULL_CARDS_TOLD = 3
"""Cards that are too full, with who holds them: those that come nearest to what is asked."""


def shared(details: Sequence[str]) -> str:
    """Put what there is of details into one pair of parentheses."""
    there = dict.fromkeys(detail for detail in details if detail)
    return f" ({'; '.join(there)})" if there else ""


class CardDetails:
    """What one node's cards have to say beyond the word that each was refused with."""

    def __init__(
        self,
        view: NodeView,
        *,
        namespace: str,
        name_tenants: bool,
        first_asking: bool,
    ) -> None:
        """Look at a node.

        Args:
            view: the node before the Pod.
            namespace: the Pod's own: its tenants are named in any case.
            name_tenants: whether tenants of other namespaces are named, too.
            first_asking: whether the verdicts are of the first container that asks.
        """
        self._cards = {card.index: card for card in view.state.cards}
        self._tenants = {
            card.index: names for card, names in zip(view.state.cards, view.tenants, strict=False)
        }
        self._troubles = {
            card.index: why for card, why in zip(view.state.cards, view.troubles, strict=False)
        }
        self._namespace = namespace
        self._name_tenants = name_tenants
        self._first_asking = first_asking
        self._before = "" if first_asking else " before this Pod"

    def of(self, reason: Reason, verdicts: Sequence[CardVerdict]) -> str:
        """What is worth knowing of the cards that were refused with one word."""
        indexes = [verdict.index for verdict in verdicts if verdict.index in self._cards]
        told = {
            Reason.CARD_NOT_HEALTHY: self._trouble,
            Reason.CARD_TYPE: self._model,
            Reason.SLOTS: self._slots,
            Reason.MEMORY: self._memory,
            Reason.CORES: self._cores,
            Reason.EXCLUSIVE: self._held_by,
            Reason.COMPUTE: self._held_by,
            Reason.TOPOLOGY: _nothing,  # it is about sets, and the engine says which
            Reason.NUMA: self._numa,
        }
        return told.get(reason, self._which)(indexes) if indexes else ""

    def _which(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda _: "")

    def _trouble(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda i: self._troubles.get(i, ""))

    def _held_by(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, self._tenants_of)

    def _slots(self, indexes: Sequence[int]) -> str:
        cards = self._cards
        told = self._listed(indexes, lambda i: f"{cards[i].used_slots}/{cards[i].slots} slots")
        return told + self._before

    def _model(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda i: _model_of(self._cards[i]))

    def _memory(self, indexes: Sequence[int]) -> str:
        free = {i: max(0, card.memory_mib - card.used_memory_mib) for i, card in self._of(indexes)}
        text = f"largest free {max(free.values())} MiB, total free {sum(free.values())} MiB"
        return f"{text}{self._of_those(free)}{self._before}{self._holders(free)}"

    def _of_those(self, told: Collection[int]) -> str:
        """Which cards a sum is of, where it is not the node's: others may have room, too."""
        if len(told) == len(self._cards):
            return ""
        return f" on these {len(told)} cards" if len(told) > 1 else " on this card"

    def _cores(self, indexes: Sequence[int]) -> str:
        free = {i: max(0, card.cores - card.used_cores) for i, card in self._of(indexes)}
        return f"most free cores {max(free.values())} %{self._before}{self._holders(free)}"

    def _of(self, indexes: Sequence[int]) -> list[tuple[int, CardState]]:
        return [(index, self._cards[index]) for index in indexes]

    def _holders(self, free: Mapping[int, int]) -> str:
        """Who holds the cards that come nearest to what is asked; nothing where nobody does."""
        held = [index for index in free if self._tenants.get(index)]
        nearest = sorted(held, key=lambda index: (-free[index], index))[:_FULL_CARDS_TOLD]
        if not nearest:
            return ""
        more = "; …" if len(held) > len(nearest) else ""
        return f"; {self._listed(nearest, self._tenants_of)}{more}"

    def _numa(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda i: _numa_of(self._cards[i]))

    def _tenants_of(self, index: int) -> str:
        names = self._tenants.get(index, ())
        own = f"{self._namespace}/"
        named = [name for name in names if self._name_tenants or name.startswith(own)]
        hidden = len(names) - len(named)
        texts = named[:_TENANTS_TOLD]
        if len(named) > _TENANTS_TOLD:
            texts.append(f"{len(named) - _TENANTS_TOLD} more")
        if hidden:
            texts.append(f"{hidden} of other namespaces")
        if not names and not self._first_asking:
            # A card without tenants is told as taken only where the Pod's own containers took it.
            texts.append("an earlier container of this Pod")
        lock = " (exclusive)" if self._cards[index].exclusive else ""
        return ", ".join(texts) + lock

    def _listed(self, indexes: Sequence[int], tell: Callable[[int], str]) -> str:
        texts = []
        for index in indexes[:_CARDS_TOLD]:
            text = tell(index)
            texts.append(f"GPU {index}: {text}" if text else f"GPU {index}")
        if len(indexes) > _CARDS_TOLD:
            texts.append("…")
        return "; ".join(texts)


def _nothing(_: Sequence[int]) -> str:
    return ""


def _model_of(card: CardState) -> str:
    return f"{card.model} in mode {card.mode}".strip()


def _numa_of(card: CardState) -> str:
    return "NUMA node unknown" if card.numa is None else f"NUMA node {card.numa}"
