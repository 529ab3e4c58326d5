"""Cards that fall ill, get well and go, with Pods on them: agent, controller and scheduler."""

import time
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from cardwise.names import USE_UUID, CardEvent, Reason
from stage import Stage

CARDS: Final = [{"uuid": f"GPU-{name}", "index": index} for index, name in enumerate("ab")]


class Profile:
    """What the driver of a node says; each change is seen at the next look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.says(*CARDS)

    def says(self, *cards: dict[str, Any]) -> None:
        listed = [{"memoryMiB": 15360, **card} for card in cards]
        status = {"cards": listed}
        document = {"kind": "GPUNode", "metadata": {"name": "any"}, "status": status}
        new = self.path.with_suffix(".new")
        new.write_text(yaml.safe_dump(document))
        new.rename(self.path)


@pytest.fixture
def profile(stage: Stage, tmp_path: Path) -> Profile:
    written = Profile(tmp_path / "profile.yaml")
    stage.node("node-a", written.path)
    return written


def told(stage: Stage) -> list[str]:
    """Our events under the Node, oldest first."""
    events = stage.cp.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    ours = [each for each in events if each["reportingController"] == "cardwise.dev/agent"]
    return [each["reason"] for each in sorted(ours, key=lambda each: each["eventTime"])]


def use(stage: Stage) -> dict[str, list[str]]:
    """Who is on each card, as the GPUNode tells."""
    return {each["uuid"]: each["tenants"] for each in stage.usage("node-a")}


def slots(stage: Stage) -> str:
    """Of all reported cards: used/all."""
    (gpunode,) = stage.gpunodes()
    return str(gpunode["status"]["summary"]["slots"])


def closed(stage: Stage) -> list[str]:
    """The unhealthy cards, as the GPUNode tells."""
    (gpunode,) = stage.gpunodes()
    return [card["uuid"] for card in gpunode["status"]["cards"] if not card["healthy"]]


def of(name: str, stage: Stage) -> str:
    return f"{stage.namespace}/{name}"


def test_a_sick_card_takes_no_new_pod_and_keeps_its_tenants(stage: Stage, profile: Profile) -> None:
    stage.pod("before", gpumem=1000, annotations={USE_UUID: "GPU-a"})
    stage.placed("before")
    earlier = len(told(stage))

    profile.says({**CARDS[0], "healthy": False}, CARDS[1])
    stage.cp.wait("the event", lambda: told(stage)[earlier:] == [CardEvent.UNHEALTHY], 20)
    # The event is posted first: the controller goes by the GPUNode.
    stage.cp.wait("the GPUNode to tell", lambda: closed(stage) == ["GPU-a"], 20)
    time.sleep(1)  # and the controller's watch
    stage.pod("after", gpus=2, gpumem=1000)
    stage.pending("after", Reason.CARD_NOT_HEALTHY)
    stage.cp.wait(
        "its tenant to be named", lambda: use(stage)["GPU-a"] == [of("before", stage)], 20
    )
    profile.says(*CARDS)

    stage.placed_at("after", within=60)
    both = [CardEvent.UNHEALTHY, CardEvent.HEALTHY]
    stage.cp.wait("the second event", lambda: told(stage)[earlier:] == both, 20)


def test_tenants_of_a_card_that_vanished_are_counted_and_named_under_its_uuid(
    stage: Stage, profile: Profile
) -> None:
    stage.pod("on-a", gpumem=1000, annotations={USE_UUID: "GPU-a"})
    stage.pod("on-b", gpumem=2000, annotations={USE_UUID: "GPU-b"})
    assert (stage.placed("on-a"), stage.placed("on-b")) == (0, 1)

    tenants = {"GPU-a": [of("on-a", stage)], "GPU-b": [of("on-b", stage)]}
    profile.says({**CARDS[1], "index": 0})  # the other moves up

    stage.cp.wait("the summary to count one card", lambda: slots(stage) == "1/10", 30)
    assert use(stage) == tenants
    stage.pod("alone", gpumem=1000, policy="mutex")
    stage.pending("alone", Reason.EXCLUSIVE)

    profile.says(*CARDS)  # it is plugged in again
    stage.cp.wait("the summary to count both", lambda: slots(stage) == "2/20", 30)
    assert use(stage) == tenants
