"""Which cards can take a request: checks 1 to 10 of docs/placement.md section 3."""

import pytest

from cardwise.engine.candidates import Sight, refusal
from cardwise.model import Ask, CardState, Signature
from cardwise.names import Reason
from states import ask, card, sight, signature


@pytest.mark.parametrize(
    ("shown", "question", "want"),
    [
        pytest.param(card(), signature(), None, id="an idle card takes it"),
        pytest.param(
            card(healthy=False), signature(), Reason.CARD_NOT_HEALTHY, id="1: an unhealthy card"
        ),
        pytest.param(
            card(cordoned=True), signature(), Reason.CARD_CORDONED, id="2: a cordoned card"
        ),
        pytest.param(
            card(),
            signature(use_types=["v100", "t4"]),
            None,
            id="3: the model contains one of the words, whatever its case",
        ),
        pytest.param(
            card(),
            signature(use_types=["v100"]),
            Reason.CARD_TYPE,
            id="3: it contains none of them",
        ),
        pytest.param(
            card(),
            signature(nouse_types=["v100", "tesla"]),
            Reason.CARD_TYPE,
            id="3: it contains a word that is not wanted",
        ),
        pytest.param(
            card(), signature(nouse_types=["v100"]), None, id="3: it contains no unwanted word"
        ),
        pytest.param(
            card(model="NVIDIA A100"),
            signature(use_types=["a10"], nouse_types=["a100"]),
            Reason.CARD_TYPE,
            id="3: words are substrings, and the unwanted one wins",
        ),
        pytest.param(
            card(model="NVIDIA A10"),
            signature(use_types=["a10"], nouse_types=["a100"]),
            None,
            id="3: wanted, and not unwanted",
        ),
        pytest.param(
            card(model=""), signature(use_types=["t4"]), Reason.CARD_TYPE, id="3: an unnamed model"
        ),
        pytest.param(card(mode="mps"), signature(), None, id="3: a Pod that names no mode"),
        pytest.param(card(mode="mps"), signature(modes=["mps", "mig"]), None, id="3: a mode named"),
        pytest.param(
            card(), signature(modes=["mps"]), Reason.CARD_TYPE, id="3: another mode than named"
        ),
        pytest.param(
            card(mode="mig"), signature(), Reason.CARD_TYPE, id="3: mig is not placed yet"
        ),
        pytest.param(
            card(mode="mig"),
            signature(modes=["mig"]),
            Reason.CARD_TYPE,
            id="3: not when named either",
        ),
        pytest.param(
            card(tenants=10, used_mib=0), signature(), Reason.SLOTS, id="5: every slot is taken"
        ),
        pytest.param(card(tenants=9, used_mib=0), signature(), None, id="5: one slot is left"),
        pytest.param(
            card(tenants=5, used_mib=0, slots=4), signature(), Reason.SLOTS, id="5: slots were cut"
        ),
        pytest.param(card(slots=0), signature(), Reason.SLOTS, id="5: a card that offers no slot"),
        pytest.param(
            card(tenants=1, used_mib=1),
            signature(policy="mutex"),
            Reason.EXCLUSIVE,
            id="6: one tiny tenant excludes a card under mutex",
        ),
        pytest.param(card(), signature(policy="mutex"), None, id="6: mutex takes an empty card"),
        pytest.param(
            card(tenants=1),
            signature(policy="binpack"),
            None,
            id="6: without mutex a tenant is fine",
        ),
        pytest.param(
            card(used_mib=14360), signature(), None, id="7: exactly the memory that is free"
        ),
        pytest.param(card(used_mib=14361), signature(), Reason.MEMORY, id="7: one MiB is missing"),
        pytest.param(
            card(tenants=1, used_mib=1),
            signature(ask(memory=0)),
            Reason.MEMORY,
            id="7: the whole card's memory, and one MiB is used",
        ),
        pytest.param(
            card(memory=15359), signature(ask(memory=0, percent=50)), None, id="7: a percentage"
        ),
        pytest.param(
            card(memory=100, used_mib=200),
            signature(ask(memory=0, percent=0)),
            None,
            id="7: an over-booked card has nothing free, not less than nothing",
        ),
        pytest.param(
            card(used_cores=70), signature(ask(cores=30)), None, id="8: exactly what is free"
        ),
        pytest.param(
            card(used_cores=71),
            signature(ask(cores=30)),
            Reason.CORES,
            id="8: one percent is missing",
        ),
        pytest.param(
            card(cores=150),
            signature(ask(cores=100)),
            None,
            id="8: all cores of an idle scaled card",
        ),
        pytest.param(
            card(cores=150, used_cores=50),
            signature(ask(cores=100)),
            Reason.CORES,
            id="8: 100 asks all 150 that coreScaling made",
        ),
        pytest.param(
            card(cores=50), signature(ask(cores=100)), None, id="8: 100 asks the 50 that there are"
        ),
        pytest.param(
            card(cores=50), signature(ask(cores=60)), Reason.CORES, id="8: 60 is more than there is"
        ),
        pytest.param(
            card(used_cores=120), signature(ask(cores=1)), Reason.CORES, id="8: cores were cut"
        ),
        pytest.param(
            card(tenants=1),
            signature(ask(cores=100)),
            Reason.EXCLUSIVE,
            id="9: whole cores beside a tenant that uses none",
        ),
        pytest.param(
            card(tenants=1), signature(ask(cores=99)), None, id="9: 99 percent beside that tenant"
        ),
        pytest.param(
            card(tenants=1, exclusive=True),
            signature(),
            Reason.EXCLUSIVE,
            id="9: an exclusive Pod holds the card",
        ),
        pytest.param(
            card(tenants=1),
            signature(exclusive=True),
            Reason.EXCLUSIVE,
            id="9: an exclusive Pod beside a tenant",
        ),
        pytest.param(card(), signature(exclusive=True), None, id="9: an exclusive Pod alone"),
        pytest.param(
            card(used_cores=100), signature(), Reason.COMPUTE, id="10: all cores are given out"
        ),
        pytest.param(card(used_cores=99), signature(), None, id="10: one percent is left"),
        pytest.param(
            card(cores=150, used_cores=100), signature(), None, id="10: a scaled card has some left"
        ),
        pytest.param(card(cores=0), signature(), Reason.COMPUTE, id="10: a card without cores"),
    ],
)
def test_refusal(shown: CardState, question: Signature, want: Reason | None) -> None:
    """Section 3, table."""
    assert refusal(sight(shown, question=question)) is want


@pytest.mark.parametrize(
    ("own", "asked", "question", "want"),
    [
        pytest.param(
            {"slots": 1}, ask(), signature(policy="mutex"), Reason.EXCLUSIVE,
            id="6: its own earlier containers are tenants too",
        ),
        pytest.param(
            {"slots": 1}, ask(cores=100), signature(), Reason.EXCLUSIVE,
            id="9: whole cores beside an own container",
        ),
        pytest.param(
            {"slots": 1}, ask(), signature(exclusive=True), None,
            id="9: containers of an exclusive Pod may share with each other",
        ),
        pytest.param(
            {"slots": 1, "memory_mib": 14361}, ask(), signature(), Reason.MEMORY,
            id="7: own memory counts",
        ),
        pytest.param(
            {"slots": 1, "cores": 71}, ask(cores=30), signature(), Reason.CORES,
            id="8: own cores count",
        ),
        pytest.param(
            {"slots": 1, "cores": 100}, ask(), signature(), Reason.COMPUTE, id="10: own cores count"
        ),
        pytest.param({"slots": 10}, ask(), signature(), Reason.SLOTS, id="5: own slots count"),
    ],
)  # fmt: skip
def test_refusal_beside_own_containers(
    own: dict[str, int], asked: Ask, question: Signature, want: Reason | None
) -> None:
    """Section 7: each container sees what the earlier ones took."""
    assert refusal(sight(card(), asked, question, **own)) is want


EVERYTHING = card(
    healthy=False,
    cordoned=True,
    mode="mig",
    tenants=10,
    used_mib=15360,
    used_cores=100,
    exclusive=True,
)


def blocked() -> Sight:
    """A card and a request that fail every check."""
    seen = sight(EVERYTHING, ask(cores=1), signature(policy="mutex"))
    seen.allowed = seen.quota_fits = False
    return seen


def test_a_card_counts_under_the_first_check_that_fails() -> None:
    """Section 3: in this order. Each step mends what was told, and the next check speaks."""
    told: list[Reason | None] = []
    seen = blocked()

    def mend(**fields: object) -> None:
        values = {name: getattr(seen.card, name) for name in CardState.__dataclass_fields__}
        mended = Sight(CardState(**{**values, **fields}), seen.ask, seen.signature, seen.own)
        mended.allowed, mended.quota_fits = seen.allowed, seen.quota_fits
        told.append(refusal(mended))
        seen.card = mended.card

    mend()
    mend(healthy=True)
    mend(cordoned=False)
    mend(mode="hami-core")
    seen.allowed = True
    mend()
    mend(slots=11)
    seen.signature = signature()
    mend()
    seen.quota_fits = True
    mend()
    mend(memory_mib=20_000)
    mend(cores=200)
    seen.ask = ask(cores=0)
    mend(exclusive=False, cores=100)
    mend(cores=101)

    assert told == [
        Reason.CARD_NOT_HEALTHY,
        Reason.CARD_CORDONED,
        Reason.CARD_TYPE,
        Reason.CARD_UUID,
        Reason.SLOTS,
        Reason.EXCLUSIVE,
        Reason.QUOTA,
        Reason.MEMORY,
        Reason.CORES,
        Reason.EXCLUSIVE,
        Reason.COMPUTE,
        None,
    ]


def test_free_room_is_never_less_than_nothing() -> None:
    seen = sight(card(used_mib=20_000, used_cores=130))

    assert (seen.free_memory_mib, seen.free_cores) == (0, 0)


def test_a_sight_adds_own_use_to_that_of_other_pods() -> None:
    seen = sight(card(tenants=2, used_cores=20), slots=1, memory_mib=500, cores=5)

    assert (seen.used_slots, seen.used_memory_mib, seen.used_cores) == (3, 2500, 25)
    assert (seen.free_memory_mib, seen.free_cores, seen.memory_mib) == (12860, 75, 1000)
