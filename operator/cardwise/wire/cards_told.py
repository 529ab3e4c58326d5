"""What stands in parentheses behind a card's word: who holds it, what is free, which model it is.

One short function a word, in a table, so that a new word is one line.
"""

from collections.abc import Callable, Sequence

from cardwise.model import CardState, CardVerdict, NodeView
from cardwise.names import Reason

_CARDS_TOLD = 8
_TENANTS_TOLD = 4


def shared(details: Sequence[str]) -> str:
    """Put what there is of details into one pair of parentheses."""
    there = dict.fromkeys(detail for detail in details if detail)
    return f" ({'; '.join(there)})" if there else ""


class Teller:
    """Tells of one node's cards what a word alone does not say."""

    def __init__(
        self,
        view: NodeView,
        *,
        namespace: str,
        name_tenants: bool,
        mutex: bool,
        first_asking: bool,
    ) -> None:
        """Look at a node.

        Args:
            view: the node before the Pod.
            namespace: the Pod's own: its tenants are named in any case.
            name_tenants: whether tenants of other namespaces are named, too.
            mutex: whether the Pod's chain has it.
            first_asking: whether the verdicts are of the first container that asks.
        """
        self._cards = {card.index: card for card in view.state.cards}
        self._tenants = {
            card.index: names for card, names in zip(view.state.cards, view.tenants, strict=False)
        }
        self._namespace = namespace
        self._name_tenants = name_tenants
        self._mutex = mutex
        self._before = "" if first_asking else " before this Pod"

    def detail(self, reason: Reason, verdicts: Sequence[CardVerdict]) -> str:
        """What is worth knowing of the cards that were refused with one word."""
        indexes = [verdict.index for verdict in verdicts if verdict.index in self._cards]
        tell = _TELL.get(reason, Teller._which)
        return tell(self, indexes) if indexes else ""

    def _which(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda _: "")

    def _held_by(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, self._tenants_of)

    def _slots(self, indexes: Sequence[int]) -> str:
        cards = self._cards
        return self._listed(indexes, lambda i: f"{cards[i].used_slots}/{cards[i].slots} slots")

    def _model(self, indexes: Sequence[int]) -> str:
        return self._listed(indexes, lambda i: _model_of(self._cards[i]))

    def _memory(self, indexes: Sequence[int]) -> str:
        free = [
            max(0, card.memory_mib - card.used_memory_mib)
            for card in (self._cards[index] for index in indexes)
        ]
        return f"largest free {max(free)} MiB, total free {sum(free)} MiB{self._before}"

    def _cores(self, indexes: Sequence[int]) -> str:
        free = [
            max(0, card.cores - card.used_cores)
            for card in (self._cards[index] for index in indexes)
        ]
        return f"most free cores {max(free)} %{self._before}"

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
        if not names and self._mutex:
            # An empty card is refused under mutex only where the Pod's own containers took it.
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


def _model_of(card: CardState) -> str:
    return f"{card.model} in mode {card.mode}".strip()


def _numa_of(card: CardState) -> str:
    return "NUMA node unknown" if card.numa is None else f"NUMA node {card.numa}"


_TELL: dict[Reason, Callable[[Teller, Sequence[int]], str]] = {
    Reason.CARD_TYPE: Teller._model,  # noqa: SLF001 - the table of the class above
    Reason.SLOTS: Teller._slots,  # noqa: SLF001
    Reason.MEMORY: Teller._memory,  # noqa: SLF001
    Reason.CORES: Teller._cores,  # noqa: SLF001
    Reason.EXCLUSIVE: Teller._held_by,  # noqa: SLF001
    Reason.NUMA: Teller._numa,  # noqa: SLF001
}
