"""Cardwise installed as a cluster has it: every process of ours in its Pod, under a real kubelet.

The image of images/build.sh, the manifests as they are shipped, tokens that kubelet brings, the
webhook by its Service. One story, told in order: each test goes on where the one before it ended.
"Red" is the change of a line, of the manifests where it does not say, that was seen to make the
test fail.
"""

import time
from collections.abc import Iterator

import pytest

import audit
from cardwise import names
from node import ground, installed
from node.installed import Installed
from node.pods import FOREVER, SEE


@pytest.fixture(scope="module")
def ward() -> Iterator[Installed]:
    """One installation of the overlay ``default`` for all tests."""
    if reason := ground.why_not() or installed.why_not():
        pytest.skip(f"NO PODS OF CARDWISE ON THIS MACHINE: {reason}")
    with Installed.raised("default") as raised:
        raised.cp.kubectl(
            "create", "clusterrolebinding", "jane", "--clusterrole=edit", "--user=jane"
        )
        yield raised


def test_every_pod_is_ready(ward: Installed) -> None:
    """Red: ``--metrics-listen=127.0.0.1:9395`` in base/agent.yaml, where kubelet can't ask."""
    ward.ready(4)
    assert installed.starts(ward.ours()) == 0


def test_a_users_pods_share_a_card_and_one_that_does_not_gets_the_other(ward: Installed) -> None:
    """Red: base/agent.yaml without the mount of /var/run/cdi."""
    cards = {card.uuid for card in ward.machine.cards}
    ward.create("shared", "binpack", SEE + FOREVER)
    shared = ward.printed("shared")
    ward.create("exclusive", "mutex,binpack", SEE + FOREVER)
    exclusive = ward.printed("exclusive")

    assert {shared["NVIDIA_VISIBLE_DEVICES"], exclusive["NVIDIA_VISIBLE_DEVICES"]} == cards
    for name, seen in (("shared", shared), ("exclusive", exclusive)):
        pod = ward.node.get(name)
        card = seen["NVIDIA_VISIBLE_DEVICES"]
        assert pod["spec"]["schedulerName"] == "cardwise-scheduler", "the webhook's Pod wrote it"
        assert pod["metadata"]["annotations"][names.ALLOCATED] == f"{card},NVIDIA,1000,0:;"
        assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"


def test_another_waits_and_its_user_sees_why(ward: Installed) -> None:
    """In an event of ours: kube-scheduler's repeats the word.

    Red: ``Teller.refused`` that returns before it posts.
    """
    ward.create("waiting", "mutex,binpack", SEE + FOREVER)

    def told() -> bool:
        said = str(ward.cp.kubectl("describe", "pod", "waiting", "--as=jane"))
        ours = [line.split() for line in said.splitlines() if "cardwise.dev/controller" in line]
        return any("ExclusiveDeviceAllocateConflict" in words for words in ours)

    ward.cp.wait("the event", told, 30)
    assert "nodeName" not in ward.node.get("waiting")["spec"]


@pytest.mark.parametrize(
    "workload", ["daemonset/cardwise-agent", "deployment/cardwise-scheduler"], ids=str
)
def test_pods_go_on_while_a_workload_of_ours_is_rolled_out(ward: Installed, workload: str) -> None:
    """Those that run, and those that come meanwhile.

    Red, of the agent: base/agent.yaml with ``maxUnavailable: 10%`` and no ``maxSurge``. Of the
    controller: a ``hostPort`` in base/controller.yaml, for which two have no room on the node.
    """
    users = [ward.node.get(name) for name in ("shared", "exclusive")]
    came: list[str] = []

    def another() -> None:
        came.append(f"{workload.rpartition('-')[2]}-{len(came)}")
        ward.create(came[-1], "binpack", "exit 0")
        time.sleep(0.3)

    ward.restart(workload, another)

    ward.ready(4)
    for before in users:
        after = ward.node.get(before["metadata"]["name"])
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["status"]["containerStatuses"] == before["status"]["containerStatuses"]
        assert after["metadata"]["annotations"][names.BIND_PHASE] == names.BIND_PHASE_SUCCESS
    for name in came:
        status = ward.node.ended(name, 60)["status"]
        assert status["phase"] == "Succeeded", (name, len(came), status.get("message"))


def test_afterwards_the_next_is_placed(ward: Installed) -> None:
    """Red: ``handlers._handler`` that takes each event for ``deleted=False``."""
    free = ward.printed("exclusive")["NVIDIA_VISIBLE_DEVICES"]

    ward.node.delete("exclusive")

    assert ward.printed("waiting")["NVIDIA_VISIBLE_DEVICES"] == free


def test_the_agent_has_the_limit_of_the_manifest_and_stays_far_below(ward: Installed) -> None:
    """Red: another limit of memory in base/agent.yaml."""
    most, limit = ward.memory("cardwise-agent")

    assert limit == 512
    assert most < limit / 2


def test_by_the_door_of_gates_a_pod_is_placed_and_runs(ward: Installed) -> None:
    """Red: components/gates/rbac.yaml without the right to patch Pods."""
    assert installed.starts(ward.ours()) == 0
    ward.move_to_gates()
    ward.ready(4, 180)

    made = ward.create("gated", "binpack", SEE + FOREVER)

    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
    card = ward.printed("gated")["NVIDIA_VISIBLE_DEVICES"]
    pod = ward.node.get("gated")
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["metadata"]["annotations"][names.ALLOCATED] == f"{card},NVIDIA,1000,0:;"


def test_nothing_of_ours_ended_or_was_refused(ward: Installed) -> None:
    """Red: base/rbac.yaml without the controller's right to create events, which by the other door
    kube-scheduler's role has too.
    """
    assert installed.starts(ward.ours()) == 0
    assert audit.refused(ward.cp) == set(), "a right was missing"
