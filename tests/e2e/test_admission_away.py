"""The webhook of a running cluster is killed: what kubectl says, and what goes on.

`test_webhook_down` goes through which Pods wait for it; here it is the real one that goes.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

import build
from callers import Caller
from stage import Json, Stage
from terminal import Terminal

FORGED: Final = "GPU-a,NVIDIA,15360,100:;"
OPTED_OUT: Final = {"hami.io/webhook": "ignore"}


def shared(name: str, **fields: Any) -> Json:
    """A Pod that shares a card, as a user writes it."""
    return build.pod(name, **{"gpumem": 1000, "scheduler": "", **fields})


@pytest.fixture(scope="module")
def jane(theatre: Stage) -> Iterator[Terminal]:
    """A user in a namespace of her own; the webhook was there, and is killed."""
    theatre.clear()
    theatre.webhook.kill()
    yield Terminal(theatre.cp, "alone")
    theatre.mend()


def test_a_pod_without_cards_is_created_at_once(jane: Terminal) -> None:
    began = time.monotonic()
    said = jane.create(shared("cpu", gpus=None, gpumem=None))

    assert (said, said.stderr) == ("pod/cpu created\n", "")
    assert time.monotonic() - began < 5  # the time-out of the webhook


def test_a_pod_with_cards_is_refused_and_told_why(jane: Terminal) -> None:
    said = jane.create(shared("cards"))

    assert said.returncode == 1
    assert said.stderr.startswith(
        'Error from server (InternalError): error when creating "STDIN": Internal error '
        'occurred: failed calling webhook "pods.cardwise.dev": failed to call webhook: Post '
        '"https://cardwise-webhook.cardwise-system.svc:'
    )
    assert said.stderr.endswith("connect: connection refused\n")


def test_the_policies_refuse_what_it_would_have(jane: Terminal) -> None:
    said = jane.create(
        shared("forged", gpus=None, gpumem=None, allocated=FORGED),
        shared("forged-cards", labels=OPTED_OUT, allocated=FORGED),
        shared("pinned", labels=OPTED_OUT, node="node-a"),
    ).stderr.splitlines()

    assert ["cardwise-allocations" in line for line in said] == [True, True, False]
    assert "cardwise-preset-nodes" in said[2]
    assert all("(Forbidden)" in line for line in said)


def test_kube_system_is_not_asked_about(theatre: Stage, jane: Terminal) -> None:
    document = shared("system", namespace="kube-system")

    answer = Caller.administrator(theatre.cp).create_pod(document)

    assert answer.message == ""
    assert answer.body["spec"]["schedulerName"] == "default-scheduler"


def test_it_is_well_again_once_the_webhook_is_there(theatre: Stage, jane: Terminal) -> None:
    theatre.mend()

    assert jane.create(shared("cards")).stderr == ""
