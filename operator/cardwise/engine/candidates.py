"""Which cards can take a request: checks 1 to 10 of docs/placement.md section 3.

Each check is one line of a table, in the law's order; a card counts under the first that fails.
``mutex`` stands among them because the law gives it a row of its own there (6), so that a card that
is both taken and full is told as taken.
"""

from collections.abc import Callable
from typing import TypeAlias

from cardwise.model import WHOLE_CORES, Ask, CardState, CardUse, Signature
from cardwise.names import MODE_MIG, Reason


class Sight:
    """One card as one container of a Pod sees it: the card, what is used of it, what is asked."""

    __slots__ = (
        "allowed", "ask", "card", "free_cores", "free_memory_mib", "memory_mib", "own",
        "quota_fits", "score", "signature", "used_cores", "used_memory_mib", "used_slots",
    )  # fmt: skip

    def __init__(self, card: CardState, ask: Ask, signature: Signature, own: CardUse) -> None:
        """See a card.

        Args:
            card: the card, with what other Pods use of it.
            ask: what the container wants.
            signature: the whole Pod's request.
            own: what the Pod's own earlier containers use, as this container sees it (section 7).
        """
        self.card = card
        self.ask = ask
        self.signature = signature
        self.own = own
        self.used_slots = card.used_slots + own.slots
        self.used_memory_mib = card.used_memory_mib + own.memory_mib
        self.used_cores = card.used_cores + own.cores
        # An over-booked card (its memory shrank, say) has nothing free, never less than nothing.
        self.free_memory_mib = max(0, card.memory_mib - self.used_memory_mib)
        self.free_cores = max(0, card.cores - self.used_cores)
        self.memory_mib = ask.memory_on(card.memory_mib)
        self.allowed = True
        self.quota_fits = True
        self.score = 0


Check: TypeAlias = Callable[[Sight], bool]
"""Whether a card is refused."""


def _unhealthy(sight: Sight) -> bool:
    return not sight.card.healthy


def _cordoned(sight: Sight) -> bool:
    return sight.card.cordoned


def _wrong_type(sight: Sight) -> bool:
    """Model against use/nouse-gputype, mode against vgpu-mode; a card in mig mode never fits."""
    card, signature = sight.card, sight.signature
    if card.mode == MODE_MIG or (signature.modes and card.mode not in signature.modes):
        return True
    if not (signature.use_types or signature.nouse_types):
        return False
    model = card.model.lower()
    if signature.use_types and not any(word in model for word in signature.use_types):
        return True
    return any(word in model for word in signature.nouse_types)


def _wrong_uuid(sight: Sight) -> bool:
    return not sight.allowed


def _no_slot(sight: Sight) -> bool:
    return sight.used_slots >= sight.card.slots


def _taken(sight: Sight) -> bool:
    """``mutex``: one tiny tenant excludes a card, the Pod's own earlier containers too."""
    return sight.signature.policy.mutex and sight.used_slots > 0


def _over_quota(sight: Sight) -> bool:
    return not sight.quota_fits


def _no_memory(sight: Sight) -> bool:
    return sight.free_memory_mib < sight.memory_mib


def _no_cores(sight: Sight) -> bool:
    """A whole card's cores are all that the card has, whatever ``coreScaling`` made of them."""
    ask, card = sight.ask, sight.card
    return sight.free_cores < (card.cores if ask.cores >= WHOLE_CORES else ask.cores)


def _locked(sight: Sight) -> bool:
    """Whole cores beside a tenant, or an exclusive Pod on either side (check 9)."""
    if sight.ask.cores >= WHOLE_CORES and sight.used_slots > 0:
        return True
    if sight.card.exclusive:
        return True
    return sight.signature.exclusive and sight.card.used_slots > 0


def _no_compute(sight: Sight) -> bool:
    return sight.ask.cores == 0 and sight.used_cores >= sight.card.cores


CHECKS: tuple[tuple[Reason, Check], ...] = (
    (Reason.CARD_NOT_HEALTHY, _unhealthy),
    (Reason.CARD_CORDONED, _cordoned),
    (Reason.CARD_TYPE, _wrong_type),
    (Reason.CARD_UUID, _wrong_uuid),
    (Reason.SLOTS, _no_slot),
    (Reason.EXCLUSIVE, _taken),
    (Reason.QUOTA, _over_quota),
    (Reason.MEMORY, _no_memory),
    (Reason.CORES, _no_cores),
    (Reason.EXCLUSIVE, _locked),
    (Reason.COMPUTE, _no_compute),
)


def refusal(sight: Sight) -> Reason | None:
    """Why the card can't take the container, or None when it can."""
    for reason, refuses in CHECKS:
        if refuses(sight):
            return reason
    return None
