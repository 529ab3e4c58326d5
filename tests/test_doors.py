"""By which door a Pod comes, and what admission writes for it."""

import copy
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
import test_admission as table
from cardwise.admission import Admission, admit, json_patch, template_warnings
from cardwise.doors import door_of
from cardwise.names import DOOR, GANG, GANG_SIZE, GATE, POD_GROUP_LABEL, Door
from cardwise.settings import Settings, parse
from cardwise.wire.pods import asks_cards, request_of

EXTENDER: Final = Settings()
GATES: Final = parse("scheduling: {door: gates}")
BOTH: Final = parse("scheduling: {door: extender, bothDoors: true}")
BOTH_GATES: Final = parse("scheduling: {door: gates, bothDoors: true}")
EVERY: Final = [EXTENDER, GATES, BOTH, BOTH_GATES]

OURS: Final = {"name": GATE}
KUEUE: Final = {"name": "kueue.x-k8s.io/admission"}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
APART: Final = {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}
CLAIM: Final = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def pod(*, scheduler: str = "default-scheduler", door: str | None = None, **spec: Any) -> Any:
    """A Pod that shares a card, with more fields of its spec."""
    written = {} if door is None else {DOOR: door}
    made = build.pod(gpumem=1000, scheduler=scheduler, annotations=written)
    made["spec"].update(spec)
    return made


def sized(made: Any, size: str) -> Any:
    """The Pod with the size of a gang written on it."""
    made["metadata"]["annotations"][GANG_SIZE] = size
    return made


def gang_pod(**fields: Any) -> Any:
    made = pod(**fields)
    made["metadata"]["annotations"][GANG] = "g"
    return made


def gates_of(admission: Admission) -> list[Any]:
    gates: list[Any] = admission.pod["spec"].get("schedulingGates", [])
    return gates


def scheduler_of(admission: Admission) -> str:
    return str(admission.pod["spec"]["schedulerName"])


# Which door ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        pytest.param(pod(), "EGEG", id="nothing is said"),
        pytest.param(pod(scheduler=""), "EGEG", id="no scheduler"),
        pytest.param(pod(scheduler="hami-scheduler"), "EGEG", id="HAMi's scheduler"),
        pytest.param(pod(scheduler="cardwise-scheduler"), "EGEE", id="our own scheduler"),
        pytest.param(pod(door="gates"), "EGGG", id="gates are asked"),
        pytest.param(pod(door="extender"), "EGEE", id="the extender is asked"),
        pytest.param(pod(door=" gates "), "EGGG", id="with blanks around"),
        pytest.param(pod(door="window"), "EGEG", id="no door at all"),
        pytest.param(pod(door="Gates"), "EGEG", id="case matters"),
        pytest.param(
            pod(door="gates", scheduler="cardwise-scheduler"),
            "EGGG",
            id="the annotation goes before our scheduler's name",
        ),
        pytest.param(pod(scheduler="other"), "----", id="another scheduler"),
        pytest.param(pod(scheduler="other", door="gates"), "-GGG", id="another one, by gates"),
        pytest.param(pod(scheduler="other", door="extender"), "----", id="another, by extender"),
        pytest.param(pod(**APART), "EGEE", id="what gates can't check"),
        pytest.param(pod(door="gates", **APART), "EGEE", id="although gates are asked"),
        pytest.param(
            pod(scheduler="other", door="gates", **APART), "-GGG", id="although, of another one"
        ),
        pytest.param(pod(**CLAIM), "EGEE", id="a claim"),
        pytest.param(pod(door="gates", **CLAIM), "EGGG", id="a claim, and gates are asked"),
        pytest.param(
            pod(volumes=[{"name": "x", "ephemeral": {"volumeClaimTemplate": {}}}]),
            "EGEE",
            id="a claim of its own",
        ),
        pytest.param(pod(volumes=[{"name": "x", "emptyDir": {}}]), "EGEG", id="another volume"),
        pytest.param(gang_pod(), "EGGG", id="one of a gang"),
        pytest.param(gang_pod(scheduler="cardwise-scheduler"), "EGGG", id="of our scheduler"),
        pytest.param(gang_pod(door="extender"), "EGEE", id="a gang, but the extender is asked"),
        pytest.param(gang_pod(**APART), "EGEE", id="a gang that gates can't check"),
        pytest.param(
            build.pod(labels={POD_GROUP_LABEL: "g"}, scheduler=""), "EGGG", id="by its label"
        ),
        pytest.param({}, "EGEG", id="an empty object"),
    ],
)
def test_the_door(asked: Any, chosen: str) -> None:
    letters = {Door.EXTENDER: "E", Door.GATES: "G", None: "-"}

    assert "".join(letters[door_of(asked, settings)] for settings in EVERY) == chosen


# What is written ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "kept"),
    [
        ("", ""),
        ("default-scheduler", "default-scheduler"),
        ("hami-scheduler", "default-scheduler"),
        ("cardwise-scheduler", "default-scheduler"),
    ],
)
def test_the_door_of_gates_leaves_the_scheduler_to_the_cluster(scheduler: str, kept: str) -> None:
    admission = admit(pod(scheduler=scheduler), GATES)

    assert gates_of(admission) == [OURS]
    assert scheduler_of(admission) == kept
    assert admission.warnings == ()


def test_another_schedulers_pod_is_gated_where_it_asks_for_it() -> None:
    admission = admit(pod(scheduler="other", door="gates"), GATES)

    assert gates_of(admission) == [OURS]
    assert scheduler_of(admission) == "other"
    assert admission.warnings == ()


def test_another_scheduler_is_told_of_the_way_by_gates() -> None:
    admission = admit(pod(scheduler="other"), GATES)

    assert gates_of(admission) == []
    assert admission.warnings == (
        'spec.schedulerName is "other", so Cardwise neither changes nor places this Pod; leave the '
        "name out, or annotate cardwise.dev/door: gates, to have it placed",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, [OURS], id="none"),
        pytest.param([], [OURS], id="an empty list"),
        pytest.param([KUEUE], [KUEUE, OURS], id="another's: ours is the last"),
        pytest.param([OURS], [OURS], id="ours already"),
        pytest.param([OURS, KUEUE], [OURS, KUEUE], id="ours already, before another's"),
    ],
)
def test_the_gate_is_added_once_and_others_stay(before: Any, after: Any) -> None:
    assert gates_of(admit(pod(schedulingGates=before), GATES)) == after


@pytest.mark.parametrize("settings", [EXTENDER, BOTH])
def test_the_extender_door_has_no_gate(settings: Settings) -> None:
    """Nobody would remove it. It is there where another webhook led the Pod to this door."""
    admission = admit(pod(schedulingGates=[OURS, KUEUE]), settings)

    assert gates_of(admission) == [KUEUE]
    assert scheduler_of(admission) == "cardwise-scheduler"


def test_the_patch_of_a_gated_pod_is_one_addition() -> None:
    asked = pod()

    assert json_patch(asked, admit(asked, GATES).pod) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [OURS]}
    ]


def test_the_gate_goes_when_another_webhook_takes_the_cards_away() -> None:
    gated = admit(pod(), GATES).pod
    gated["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0"}}

    admission = admit(gated, GATES)

    assert gates_of(admission) == []
    assert admission.matched


def test_a_gate_on_a_pod_that_is_none_of_our_business_stays() -> None:
    opted_out = build.pod(labels={"hami.io/webhook": "ignore"})
    cardless = build.pod(gpus=0, scheduler="other")
    for asked in (opted_out, cardless):
        asked["spec"]["schedulingGates"] = [OURS]
        assert admit(asked, GATES) == Admission(pod=asked, matched=False)


# Warnings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "settings", "warnings"),
    [
        pytest.param(pod(door="gates"), BOTH, (), id="a door that is installed"),
        pytest.param(pod(door="extender"), EXTENDER, (), id="the only door"),
        pytest.param(
            pod(door="window"),
            BOTH,
            ('cardwise.dev/door: "window" has no effect; write extender or gates',),
            id="an unknown value",
        ),
        pytest.param(
            pod(door="gates"),
            EXTENDER,
            (
                'cardwise.dev/door: "gates" has no effect, because only the door extender is '
                "installed in this cluster",
            ),
            id="a door that is not installed",
        ),
        pytest.param(
            pod(door="extender"),
            GATES,
            (
                'cardwise.dev/door: "extender" has no effect, because only the door gates is '
                "installed in this cluster",
            ),
            id="the extender, where it is not installed",
        ),
        pytest.param(pod(**APART), EXTENDER, (), id="the extender checks everything"),
        pytest.param(pod(**APART), BOTH_GATES, (), id="it goes to the extender by itself"),
        pytest.param(
            pod(**APART),
            GATES,
            (
                "spec.affinity.podAntiAffinity is not checked by the door gates, so the Pod will "
                "wait with the event NeedsExtenderDoor; leave it out",
            ),
            id="what gates can't check",
        ),
        pytest.param(
            pod(door="gates", **APART),
            BOTH,
            (
                'cardwise.dev/door: "gates" has no effect, because spec.affinity.podAntiAffinity '
                "needs the door extender",
            ),
            id="gates were asked, and can't check it",
        ),
        pytest.param(pod(**CLAIM), GATES, (), id="a claim may be bound already"),
        pytest.param(gang_pod(), BOTH, (), id="a gang goes by gates"),
        pytest.param(
            gang_pod(),
            EXTENDER,
            (
                "cardwise.dev/gang has no effect at the door extender: the Pods are placed one by "
                "one",
            ),
            id="a gang at the extender",
        ),
        pytest.param(
            sized(gang_pod(), "three"),
            BOTH,
            (
                'cardwise.dev/gang-size: "three" is no number of Pods, so the gang waits; write a '
                "whole number from 1 to 10000",
            ),
            id="a size that is none",
        ),
        pytest.param(
            sized(pod(door="gates"), "3"),
            BOTH,
            ('cardwise.dev/gang-size: "3" has no effect without cardwise.dev/gang',),
            id="a size without a gang",
        ),
        pytest.param(sized(gang_pod(), "3"), BOTH, (), id="a gang and its size go by gates"),
    ],
)
def test_the_warnings_about_doors(asked: Any, settings: Settings, warnings: Any) -> None:
    admission = admit(asked, settings)

    assert admission.denial is None
    assert admission.warnings == warnings
    assert all(len(warning) < 256 for warning in warnings)


@pytest.mark.parametrize("key", [DOOR, GANG, GANG_SIZE])
def test_a_door_or_a_gang_beside_the_template_is_told(key: str) -> None:
    (warning,) = template_warnings(table.workload("Job", {key: "x"}, build.pod()))

    assert warning.startswith(f"Job w: annotation {key} has no effect")


# Rules --------------------------------------------------------------------------------------------


def with_spec(pod: Any, door: str | None, spec: dict[str, Any]) -> Any:
    made = copy.deepcopy(pod)
    if door is not None:
        made["metadata"]["annotations"][DOOR] = door
    made["spec"].update(copy.deepcopy(spec))
    return made


def with_gang(pod: Any, gang: dict[str, str]) -> Any:
    made = copy.deepcopy(pod)
    made["metadata"]["annotations"].update(gang)
    return made


gates = st.sampled_from([{}, *({"schedulingGates": g} for g in ([KUEUE], [OURS], [KUEUE, OURS]))])
rules = st.sampled_from([{}, APART, CLAIM])
doors = st.sampled_from([None, "gates", "extender", "window"])
gangs = st.sampled_from([{}, {}, {GANG: "g"}])
pods = st.builds(
    lambda pod, door, gang, gate, rule: with_spec(with_gang(pod, gang), door, {**gate, **rule}),
    table.pods,
    doors,
    gangs,
    gates,
    rules,
)
every = st.sampled_from(EVERY)


def without_door(admission: Admission) -> Any:
    """What admission made of a Pod, but for what a door writes."""
    made = copy.deepcopy(admission.pod)
    for key in ("schedulerName", "schedulingGates"):
        made["spec"].pop(key, None)
    return made


@given(pods, every)
def test_admission_is_idempotent_at_every_door(pod: Any, settings: Settings) -> None:
    first = admit(pod, settings)
    again = admit(first.pod, settings)

    assert again.pod == first.pod
    assert admit(table.stored(first.pod), settings).pod == table.stored(first.pod)


@given(pods, every, every)
def test_what_a_door_wrote_is_no_obstacle_at_another(
    pod: Any, one: Settings, two: Settings
) -> None:
    """As when the settings change between two calls for one Pod, or another webhook adds a rule."""
    there = door_of(admit(pod, one).pod, two)
    led = admit(admit(pod, one).pod, two)

    if led.denial is None and asks_cards(pod) and there is not None:
        cards = request_of(led.pod, two) is not None
        assert (OURS in gates_of(led)) == (cards and there is Door.GATES)


@given(pods)
def test_all_but_the_door_is_the_same_at_every_door(pod: Any) -> None:
    by_door = [
        admission
        for settings in EVERY
        if door_of(pod, settings) is not None
        for admission in [admit(pod, settings)]
    ]

    assert len({admission.denial for admission in by_door}) <= 1
    assert all(without_door(each) == without_door(by_door[0]) for each in by_door)


@given(pods, every)
def test_gates_of_others_are_never_touched(pod: Any, settings: Settings) -> None:
    def others(thing: Any) -> list[Any]:
        return [gate for gate in thing["spec"].get("schedulingGates", []) if gate != OURS]

    admission = admit(pod, settings)

    assert others(admission.pod) == others(pod)
    assert gates_of(admission).count(OURS) <= 1
    door = door_of(pod, settings)
    if admission.denial is None and asks_cards(pod) and door is not None:
        cards = request_of(admission.pod, settings) is not None
        assert (OURS in gates_of(admission)) == (cards and door is Door.GATES)


@given(hostile.spoilt(pods), every)
def test_no_pod_gives_a_traceback_at_any_door(pod: Any, settings: Settings) -> None:
    for sentence in (*admit(pod, settings).warnings, admit(pod, settings).denial or "-"):
        assert sentence
        assert sentence.encode()
