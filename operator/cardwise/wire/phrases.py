"""Short phrases that events, logs and the command line share: what is asked, a score, a list.

Separate from the account, which says what came of a request: these need no decision. People and
scripts read them, so each phrase is made in one place.
"""

from collections.abc import Sequence

from cardwise.model import WHOLE_CORES, Ask, CardState, Policy, Request, Signature
from cardwise.names import NOUSE_TYPE, NOUSE_UUID, USE_TYPE, USE_UUID, VGPU_MODE

MESSAGE_BYTES = 1024
"""What the API server takes as the message of an event."""
_CONTAINERS_TOLD = 4
_MEMBERS_TOLD = 2
"""Of a list of models or cards: a UUID takes 40 bytes."""


def fitted(text: str, tail: str = "", limit: int = MESSAGE_BYTES) -> str:
    """Cut a text so that it and its tail take at most ``limit`` bytes of UTF-8.

    Args:
        text: cut at a character's boundary, with ``…`` in place of what is lost.
        tail: what must not be lost.
        limit: in bytes; larger than the tail.
    """
    room = limit - len(_utf8(tail))
    raw = _utf8(text)
    if len(raw) > room:
        raw = raw[: room - len("…".encode())]
        return raw.decode("utf-8", "ignore") + "…" + tail
    return raw.decode() + tail


def _utf8(text: str) -> bytes:
    """The bytes of a text; half a surrogate pair, which JSON can carry, becomes ``?``."""
    return text.encode("utf-8", "replace")


def score_text(millionths: int) -> str:
    """Print a score: 1651042 is ``1.651042``."""
    return f"{millionths // 1_000_000}.{millionths % 1_000_000:06d}"


def cards_text(count: int) -> str:
    """Print a number of cards."""
    return f"{count} card" if count == 1 else f"{count} cards"


def given_text(card: CardState) -> str:
    """Say what is given out of a card: ``2/10 slots, 2000/15360 MiB, 0/100 % cores``."""
    return (
        f"{card.used_slots}/{card.slots} slots, {card.used_memory_mib}/{card.memory_mib} MiB,"
        f" {card.used_cores}/{card.cores} % cores"
    )


def beyond_size(uuid: str, card: CardState) -> str:
    """Say of an over-booked card how much is given out of it, and how that comes about."""
    return (
        f"GPU {card.index} ({uuid}) is given out beyond its size: {given_text(card)}. Somebody"
        " wrote allocations past Cardwise, or the card offers less than it did"
    )


def ask_text(signature: Signature, names: Sequence[str] = ()) -> str:
    """Say what a Pod asks for: ``2 cards with 50 % of their memory and 30 % cores``.

    Args:
        signature: its asks; containers that ask for no card are not told of.
        names: the containers' names, parallel to ``signature.asks``; told when several ask.
    """
    asking = [(number, ask) for number, ask in enumerate(signature.asks) if ask.count > 0]
    if not asking:
        return "no card"
    if len(asking) == 1:
        return _one_ask(asking[0][1])
    told = [
        f"{container_text(number, names)}: {_one_ask(ask)}"
        for number, ask in asking[:_CONTAINERS_TOLD]
    ]
    if len(asking) > _CONTAINERS_TOLD:
        told.append(f"{len(asking) - _CONTAINERS_TOLD} more containers")
    return ", ".join(told)


def container_text(number: int, names: Sequence[str]) -> str:
    """Name a container, or count it from 1 where its name is not known."""
    return names[number] if number < len(names) else f"container {number + 1}"


def policy_text(policy: Policy) -> str:
    """Write a chain as the names that are in force."""
    return str(policy) or ",".join(policy.keys)


def terms_text(request: Request) -> str:
    """The terms of a placement: its chain, and what else binds it."""
    signature = request.signature
    terms = [f"policy {policy_text(signature.policy)}"]
    if signature.exclusive:
        terms.append("exclusive")
    if signature.numa_bind:
        terms.append("numa-bind")
    terms += [
        f"{key.rpartition('/')[2]} {_members(members)}"
        for key, members in (
            (USE_TYPE, signature.use_types),
            (NOUSE_TYPE, signature.nouse_types),
            (USE_UUID, sorted(signature.use_uuids)),
            (NOUSE_UUID, sorted(signature.nouse_uuids)),
            (VGPU_MODE, sorted(signature.modes)),
        )
        if members
    ]
    return ", ".join(terms)


def _members(members: Sequence[str]) -> str:
    """A list in a sentence that commas divide: ``a|b`` is ``a`` or ``b``."""
    told = list(members[:_MEMBERS_TOLD])
    if len(members) > _MEMBERS_TOLD:
        told.append(f"{len(members) - _MEMBERS_TOLD} more")
    return "|".join(told)


def _one_ask(ask: Ask) -> str:
    one = ask.count == 1
    its = "its" if one else "their"
    if ask.memory_mib:
        memory = f"{ask.memory_mib} MiB"
    elif ask.memory_percent >= 100:
        memory = f"all {its} memory"
    else:
        memory = f"{ask.memory_percent} % of {its} memory"
    cores = ""
    if ask.cores >= WHOLE_CORES:
        cores = f" and all {its} cores"
    elif ask.cores:
        cores = f" and {ask.cores} % cores"
    each = " each" if ask.memory_mib and not one else ""
    return f"{cards_text(ask.count)} with {memory}{cores}{each}"
