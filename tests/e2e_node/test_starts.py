"""Each container starts with the cards that its Pod's allocation says, and with no others."""

import time
from typing import Any, Final

import pytest

from cardwise import names
from node import starts
from node.pods import FOREVER, SEE, container
from node.stage import SLOTS, Ward


def test_a_container_sees_its_card_and_limits(ward: Ward) -> None:
    ward.book("one", ward.text([(2, 1000, 30)]), [container("main", SEE, gpus=1)])

    seen = ward.saw("one", "main")
    assert seen["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert seen["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert ward.ids("one")["main"] == {f"{ward.card(2)}-0"}, "kubelet's accounts name the card, too"
    assert ward.node.ended("one")["status"]["phase"] == "Succeeded"


def test_two_cards_come_in_the_order_of_the_allocation(ward: Ward) -> None:
    text = ward.text([(3, 1000, 10), (0, 2000, 20)])

    ward.book("two", text, [container("main", SEE, gpus=2)])

    seen = ward.saw("two", "main")
    assert seen["NVIDIA_VISIBLE_DEVICES"] == f"{ward.card(3)},{ward.card(0)}"
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_1"] == "2000m"
    assert seen["CUDA_DEVICE_SM_LIMIT"] == "10"


def test_what_the_author_wrote_does_not_show_other_cards(ward: Ward) -> None:
    cheat = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_DEVICE_MEMORY_LIMIT_0": "99999m"}

    ward.book("cheat", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1, env=cheat)])

    seen = ward.saw("cheat", "main")
    assert seen["NVIDIA_VISIBLE_DEVICES"] == ward.card(1)
    assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"


def test_each_container_has_its_own_cards(ward: Ward) -> None:
    """Init containers that share ids with later ones, a sidecar, one without cards."""
    init = [
        container("first", SEE, gpus=1),
        container("second", SEE, gpus=1),
        container("beside", SEE + FOREVER, gpus=1, sidecar=True),
        container("third", SEE, gpus=2),
    ]
    regular = [
        container("main", SEE + FOREVER, gpus=1),
        container("plain", SEE + FOREVER),
        container("other", SEE + FOREVER, gpus=1),
    ]
    cards = {
        "first": [(0, 1000, 0)],
        "second": [(1, 1100, 0)],
        "beside": [(2, 1200, 0)],
        "third": [(1, 1300, 0), (3, 1301, 0)],
        "main": [(3, 1400, 0)],
        "plain": [],
        "other": [(0, 1500, 0)],
    }

    starts.each_container_has_its_own_cards(ward, cards, regular, init)

    ids = ward.ids("family")
    assert ids["first"] == ids["second"], "the test is of containers that share ids"


def test_a_container_that_crashes_starts_again_with_its_card(ward: Ward) -> None:
    crash = container("main", SEE + "exit 1", gpus=1)

    ward.book("crash", ward.text([(2, 1000, 0)]), [crash], restart="Always")

    for attempt in range(3):
        assert ward.saw("crash", "main", attempt)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)


def test_twenty_at_once_get_each_its_own_card(ward: Ward) -> None:
    """Created in one order, bound in another: nothing but the checkpoint tells whose call it is."""
    starts.twenty_at_once_get_each_its_own_card(ward)


def test_phase_is_success_once_it_started(ward: Ward) -> None:
    ward.book("phase", ward.text([(0, 1000, 0)]), [container("main", FOREVER, gpus=1)])

    ward.cp.wait("the phase", lambda: ward.annotation("phase", names.BIND_PHASE) == "success", 30)


# --- kubelet goes and comes -----------------------------------------------------------------------


def test_kubelet_restarts_while_pods_run(ward: Ward) -> None:
    ward.book("before", ward.text([(3, 1000, 0)]), [container("main", SEE + FOREVER, gpus=1)])
    began = ward.node.running("before")

    ward.restart_kubelet()

    ward.book("after", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1)])
    assert ward.saw("after", "main")["NVIDIA_VISIBLE_DEVICES"] == ward.card(1)
    same = ward.node.get("before")["status"]["containerStatuses"][0]
    assert same["containerID"] == began["status"]["containerStatuses"][0]["containerID"]


def test_kubelet_restarts_between_allocate_and_the_start(ward: Ward) -> None:
    """Slots are given when the Pod is admitted; the container starts when the init one ended."""
    ward.book(
        "slow",
        ward.text([], [(2, 1000, 0)]),
        [container("main", SEE, gpus=1)],
        init=[container("wait", "while ! test -e /tmp/go; do sleep 0.1; done")],
    )
    ward.cp.wait("slots to be given", lambda: "main" in ward.ids("slow"), 30)
    ward.cp.wait("the init container", lambda: ward.init_runs("slow"), 30)

    ward.restart_kubelet()
    ward.touch("slow", "wait", "/tmp/go")

    assert ward.saw("slow", "main", within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)


# --- the agent goes and comes ---------------------------------------------------------------------


def test_the_agent_restarts_while_pods_run(ward: Ward) -> None:
    ward.book("stays", ward.text([(0, 1000, 0)]), [container("main", SEE + FOREVER, gpus=1)])
    began = ward.node.running("stays")

    ward.restart_agent()

    ward.book("next", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1)])
    assert ward.saw("next", "main")["NVIDIA_VISIBLE_DEVICES"] == ward.card(1)
    same = ward.node.get("stays")["status"]["containerStatuses"][0]
    assert same["containerID"] == began["status"]["containerStatuses"][0]["containerID"]


def test_no_pod_fails_while_an_agent_is_rolled_out(ward: Ward) -> None:
    """kubelet fails for good a Pod that comes while it knows no plugin, so the new one comes first.

    Red: a fixed name for the plugin's socket (``serving._serve``).
    """
    came: list[str] = []

    def another() -> None:
        time.sleep(0.2)
        came.append(f"p{len(came):03}")
        ward.book(came[-1], ward.text([(len(came) % 4, 100, 0)]), [container("main", "", gpus=1)])

    ward.roll_out(another)

    ward.offers(SLOTS, within=5)
    for name in came:
        status = ward.node.ended(name, within=60)["status"]
        assert status["phase"] == "Succeeded", (name, len(came), status.get("message"))


def test_a_pod_that_comes_while_there_is_no_agent_has_failed(ward: Ward) -> None:
    """As docs/operations.md says, with kubelet's own words: nothing here can change it."""
    ward.agent.terminate()
    ward.offers(0)

    ward.book("late", ward.text([(0, 1000, 0)]), [container("main", SEE, gpus=1)])

    status = ward.node.ended("late")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "no healthy devices present" in status["message"]
    ward.start_agent()
    ward.offers(SLOTS)


# --- the fence ------------------------------------------------------------------------------------


def test_an_over_booked_card_is_refused(ward: Ward) -> None:
    ward.book("holds", ward.text([(0, 10000, 0)]), [container("main", FOREVER, gpus=1)])
    ward.node.running("holds")

    ward.book("late", ward.text([(0, 10000, 0)]), [container("main", SEE, gpus=1)])

    told = ward.event("late", "CardOverbooked")
    assert "10000 + 10000 MiB are booked of 15360" in told
    assert "default/holds" in told
    assert ward.node.get("late")["status"]["phase"] == "Pending"
    ward.cp.wait("the phase", lambda: ward.annotation("late", names.BIND_PHASE) == "failed", 10)
    ward.node.delete("holds")
    assert ward.saw("late", "main", within=90)["NVIDIA_VISIBLE_DEVICES"] == ward.card(0)


MISMATCHES: Final[list[Any]] = [
    pytest.param(None, "it has no allocation", id="no-allocation"),
    pytest.param("nonsense,NVIDIA:;", "can't be read", id="unreadable"),
    pytest.param("GPU-of-another,NVIDIA,1000,0:;", "no card GPU-of-another", id="not-here"),
    pytest.param(";", "allocation has 0", id="none-for-the-container"),
]


@pytest.mark.parametrize(("text", "sentence"), MISMATCHES)
def test_what_nobody_gave_does_not_start(ward: Ward, text: str | None, sentence: str) -> None:
    ward.book("stray", text, [container("main", SEE, gpus=1)])

    assert sentence in ward.event("stray", "AllocationMismatch")
    time.sleep(1)
    assert not ward.node.printed(ward.node.get("stray"), "main")


def test_a_tampered_allocation_does_not_start_on_a_full_card(ward: Ward) -> None:
    """Two containers' ids, one booking moved by hand to a card that another Pod holds whole."""
    ward.book("owner", ward.text([(1, 15360, 100)]), [container("main", FOREVER, gpus=1)])
    ward.node.running("owner")
    ward.wait_to_be_bound("thief", [container("main", SEE, gpus=1)])
    ward.bind("thief", ward.text([(1, 1, 0)]))

    assert "CardOverbooked" in ward.waiting_message("thief")
    assert not ward.node.printed(ward.node.get("thief"), "main")


# --- what is left ---------------------------------------------------------------------------------


def test_the_spec_of_a_pod_goes_with_it(ward: Ward) -> None:
    made = ward.book("goes", ward.text([(0, 1000, 0)]), [container("main", FOREVER, gpus=1)])
    ward.node.running("goes")
    spec = ward.node.cdi / f"cardwise-{made['metadata']['uid']}.json"
    assert spec.is_file()

    ward.node.delete("goes")
    ward.restart_agent()  # it looks once a minute, and when it starts

    ward.cp.wait("the spec to go", lambda: not spec.exists(), 30)


# --- what is hard ---------------------------------------------------------------------------------


def test_nothing_starts_past_an_agent_that_is_away(ward: Ward) -> None:
    """A kubelet that was restarted calls nobody before a start while it knows no plugin.

    Nor does it take a Pod anew whose containers do not run. One that ran starts again, by the spec
    that was written at its first start; where that is lost, the runtime refuses.
    """
    once = "while ! test -e /tmp/go; do sleep 0.1; done; exit 1"
    made = ward.book(
        "alone",
        ward.text([(2, 1000, 0)]),
        [container("main", SEE + once, gpus=1)],
        restart="Always",
    )
    ward.node.running("alone")
    ward.agent.kill()
    ward.restart_kubelet_alone("alone")
    ward.touch("alone", "main", "/tmp/go")
    assert ward.saw("alone", "main", 1)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    (ward.node.cdi / f"cardwise-{made['metadata']['uid']}.json").unlink()

    ward.touch("alone", "main", "/tmp/go")

    ward.cp.wait(
        "the runtime to refuse",
        lambda: "unresolvable CDI devices" in ward.waiting_message("alone"),
        30,
    )
    ward.start_agent()
    assert ward.saw("alone", "main", 2, within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)


def test_a_pod_that_never_ran_is_not_taken_anew_while_the_agent_is_away(ward: Ward) -> None:
    ward.book("lost", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1)], blocked=True)
    ward.cp.wait("slots to be given", lambda: "main" in ward.ids("lost"), 30)
    ward.agent.kill()
    ward.node.kubelet.kill()

    ward.node.start_kubelet()

    ended = ward.node.ended("lost", within=60)
    assert ended["status"]["reason"] == "UnexpectedAdmissionError"
    assert not ward.node.printed(ended, "main")


def test_a_container_starts_again_while_no_api_server_answers(ward: Ward) -> None:
    once = "while ! test -e /tmp/go; do sleep 0.1; done; exit 1"
    ward.book(
        "cut-off",
        ward.text([(1, 1000, 0)]),
        [container("main", SEE + once, gpus=1)],
        restart="Always",
    )
    found = ward.node.running("cut-off")
    ward.saw("cut-off", "main")

    card = ward.card(1)

    with ward.no_api_server(found, "main", "/tmp/go") as printed:
        assert f"NVIDIA_VISIBLE_DEVICES={card}" in printed(1)


def test_an_agent_starts_while_no_api_server_answers(ward: Ward) -> None:
    """What ran once starts again with its card; nothing new starts before its Pod can be read.

    Red: ``Publisher._read`` that only waits for the API server.
    """
    ward.book(
        "old",
        ward.text([(1, 1000, 0)]),
        [container("main", SEE + "while ! test -e /tmp/go; do sleep 0.1; done; exit 1", gpus=1)],
        restart="Always",
    )
    ward.book(
        "new",
        ward.text([], [(2, 1000, 0)]),
        [container("late", SEE, gpus=1)],
        init=[container("wait", "while ! test -e /tmp/go; do sleep 0.1; done")],
    )
    ward.saw("old", "main")
    ward.cp.wait("the init container", lambda: ward.init_runs("new"), 30)
    old, new = ward.node.running("old"), ward.node.get("new")
    ward.agent.kill()
    complaint = "GPUNode node-a is not published: no answer from the API server"
    complaints, published = ward.agent_said(complaint), ward.agent_said("node-a published")

    with ward.no_api_server(old, "main", "/tmp/go") as printed:
        ward.start_agent()
        assert f"NVIDIA_VISIBLE_DEVICES={ward.card(1)}" in printed(1)
        ward.touch_in(new, "wait", "/tmp/go")
        ward.cp.wait("kubelet to ask", lambda: ward.asked_to_start("late"), 10)
        ward.cp.wait("it to be said", lambda: ward.agent_said(complaint) > complaints, 15)
        assert not ward.node.printed(new, "late")

    assert ward.saw("new", "late", within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(2)
    ward.cp.wait("a report", lambda: ward.agent_said("node-a published") > published, 60)
    assert ward.agent_said(complaint) == complaints + 1, "it is said once"
    ward.offers(SLOTS)


def test_a_pod_whose_sandbox_is_made_anew_runs_its_init_containers_again(ward: Ward) -> None:
    ward.book(
        "anew",
        ward.text([(0, 1000, 0)], [(3, 2000, 0)]),
        [container("main", SEE + FOREVER, gpus=1)],
        init=[container("first", SEE, gpus=1)],
        restart="Always",
    )
    ward.saw("anew", "main")
    assert ward.ids("anew")["first"] == ward.ids("anew")["main"]

    ward.kill_sandbox("anew")

    assert ward.saw("anew", "first", 1, within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(0)
    assert ward.saw("anew", "main", 1, within=60)["NVIDIA_VISIBLE_DEVICES"] == ward.card(3)


def test_kubelet_restarts_when_nothing_of_the_pod_ran_yet(ward: Ward) -> None:
    """It admits the Pod anew; the agent has registered by then."""
    ward.book("blocked", ward.text([(1, 1000, 0)]), [container("main", SEE, gpus=1)], blocked=True)
    ward.cp.wait("slots to be given", lambda: "main" in ward.ids("blocked"), 30)

    ward.restart_kubelet()
    ward.unblock("blocked")

    assert ward.saw("blocked", "main", within=120)["NVIDIA_VISIBLE_DEVICES"] == ward.card(1)
