"""Admission when something is off: other webhooks, new certificates, calls that nobody sends."""

import asyncio
import base64
import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import build
from callers import Answer, Caller
from cardwise import names
from cardwise.controller.clock import Clock
from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling.notes import Notes
from cardwise.controller.webhook.keeper import CertificateKeeper
from cardwise.controller.webhook.selftest import SelfTest
from cardwise.kube import connect
from cardwise.kube.cluster import KubeCluster
from controlplane.launcher import ControlPlane
from injector import LABEL, Injector
from installation import CONFIGURATION, SYSTEM
from stage import Json, Stage
from terminal import Terminal
from webhooks import Authority, review, trusting


def shared(name: str, **fields: Any) -> Json:
    """A Pod that shares a card, as a user writes it."""
    return build.pod(name, **{"gpumem": 1000, "scheduler": "", **fields})


# Other webhooks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("added", "defaulted", "shares"),
    [
        pytest.param(
            build.container("mesh"),
            None,
            [None, "1000", None, None],
            id="a container without cards",
        ),
        pytest.param(
            build.container("mesh", gpumem=500),
            "mesh:nvidia.com/gpu=1",
            [None, "1000", "500", None],
            id="a container with cards, which is given their number",
        ),
    ],
)
def test_what_another_webhook_adds_after_ours_has_its_place_in_the_allocation(
    stage: Stage, added: Json, defaulted: str | None, shares: list[str | None]
) -> None:
    stage.node("node-a", "t4x4")
    with Injector(stage.cp, build.container("prepare"), added):
        stage.cp.wait("the other webhook", lambda: injected(stage), 20)
        stage.create(shared("p", labels={LABEL: "on"}))

        stage.placed_at("p")

    pod = stage.get("p")
    assert [each["name"] for each in pod["spec"]["initContainers"]] == ["prepare"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["app", "mesh"]
    annotations = pod["metadata"]["annotations"]
    assert annotations.get(names.DEFAULTED) == defaulted
    written = [share.split(",") for share in annotations[names.ALLOCATED].split(";")]
    assert [share[2] if len(share) > 2 else None for share in written] == shares


def injected(stage: Stage) -> bool:
    probe = shared("probe", labels={LABEL: "on"}, namespace=stage.namespace)
    answer = Caller.administrator(stage.cp).create_pod(probe, dry_run=True)
    return len(answer.body["spec"]["containers"]) == 2


# Certificates -------------------------------------------------------------------------------------


class Stream:
    """Pods with cards, created one after the other by some threads; inside of a ``with``."""

    def __init__(self, cp: ControlPlane, namespace: str, threads: int = 6) -> None:
        self.answers: list[Answer] = []
        self._caller = Caller.person(cp, "jane")
        self._namespace = namespace
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._flow, args=(n,)) for n in range(threads)]

    def _flow(self, lane: int) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            pod = shared(f"p{lane}-{number}", namespace=self._namespace)
            self.answers.append(self._caller.create_pod(pod))

    def __enter__(self) -> "Stream":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()


async def keep_certificates(stage: Stage, ends: threading.Event) -> None:
    """Do what a controller does, as it is in a hurry: it looks every second, not every minute."""
    client = await connect(str(stage.account))
    try:
        keeper = CertificateKeeper(KubeCluster(client), Duty(), Clock(), round_seconds=1)
        keeping = asyncio.create_task(keeper.run())
        await asyncio.to_thread(ends.wait)
        keeping.cancel()
    finally:
        await client.close()


@contextlib.contextmanager
def certificates_kept(stage: Stage) -> Iterator[None]:
    ends = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(keep_certificates(stage, ends)))
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def served(stage: Stage) -> bytes:
    """The certificate that a new connection to the webhook is given."""
    host, _, port = stage.installation.webhook_address.partition(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def bundle_of(stage: Stage) -> bytes:
    """Whom the API server trusts."""
    webhook, *_ = stage.cp.request("GET", CONFIGURATION)["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


def authorities(stage: Stage) -> int:
    """How many CAs the API server trusts."""
    return bundle_of(stage).count(b"BEGIN CERTIFICATE")


def test_a_new_authority_under_a_stream_of_creations_loses_none(stage: Stage) -> None:
    Terminal(stage.cp, stage.namespace)  # gives jane her rights
    before, webhook = served(stage), stage.webhook.pid
    trusted = authorities(stage)

    with Stream(stage.cp, stage.namespace) as stream, certificates_kept(stage):
        stage.patch(f"{SYSTEM}/secrets/cardwise-webhook-ca", {"data": {"ca.key": ""}})

        def renewed() -> bool:
            stage.installation.bring_certificate()
            return served(stage) != before

        stage.cp.wait("another certificate to be served", renewed, 60)
        many = len(stream.answers) + 50
        stage.cp.wait("more Pods to be created", lambda: len(stream.answers) > many, 60)

    assert {answer.message for answer in stream.answers} == {""}
    assert {each.body["spec"]["schedulerName"] for each in stream.answers} == {names.SCHEDULER_NAME}
    assert len(stream.answers) > 100
    assert authorities(stage) == trusted + 1
    assert stage.webhook.pid == webhook


def test_a_lost_certificate_is_made_again_and_the_configuration_is_left_as_it_is(
    stage: Stage,
) -> None:
    before = served(stage)
    configuration = stage.cp.request("GET", CONFIGURATION)["metadata"]["resourceVersion"]
    # What happens in a cluster all the time is no reason to write either.
    stage.cp.kubectl("create", "namespace", f"{stage.namespace}-more")

    stage.cp.request("DELETE", f"{SYSTEM}/secrets/cardwise-webhook-tls")
    stage.controller.terminate()
    stage.start_controller()

    def renewed() -> bool:
        stage.installation.bring_certificate()
        return served(stage) != before

    stage.cp.wait("another certificate to be served", renewed, 30)
    stage.admits()
    after = stage.cp.request("GET", CONFIGURATION)["metadata"]["resourceVersion"]
    assert after == configuration


def test_a_wrong_authority_is_told_by_kubectl_and_mended(stage: Stage) -> None:
    jane = Terminal(stage.cp, stage.namespace)
    bundle = base64.b64encode(Authority().bundle).decode()
    webhooks = stage.cp.request("GET", CONFIGURATION)["webhooks"]
    for webhook in webhooks:
        webhook["clientConfig"]["caBundle"] = bundle
    stage.patch(CONFIGURATION, {"webhooks": webhooks})

    def said() -> bool:
        return "certificate signed by unknown authority" in jane.create(shared("p")).stderr

    stage.cp.wait("the API server to distrust the webhook", said, 20)
    assert asyncio.run(self_tested(stage)) is False
    described = stage.cp.kubectl("describe", "mutatingwebhookconfiguration", "cardwise-webhook")
    assert "WebhookUnreachable" in described
    assert "certificate signed by unknown authority" in described
    stage.controller.terminate()
    stage.start_controller()

    stage.admits()
    assert asyncio.run(self_tested(stage)) is True


async def self_tested(stage: Stage) -> bool | None:
    """What the controller's test of the webhook finds; it tells at once what it tells in 30 s."""
    client = await connect(str(stage.account))
    try:
        cluster, duty, clock = KubeCluster(client), Duty(), Clock()
        notes = Notes(cluster, duty, clock, "test")
        test = SelfTest(cluster, duty, clock, notes, patience_seconds=0)
        await test.look()
        return test.reachable
    finally:
        await client.close()


# Whoever reaches the webhook ----------------------------------------------------------------------


@pytest.fixture
def tenant(stage: Stage) -> Json:
    """A Pod with 15000 MiB of the only card."""
    stage.node("node-a", 1)
    stage.create(shared("tenant", gpumem=15000))
    stage.placed("tenant")
    stage.settled()
    return stage.get("tenant")


def post(stage: Stage, path: str, body: Json) -> tuple[int, Json]:
    """Talk to the webhook past the API server."""
    host, _, port = stage.installation.webhook_address.partition(":")
    context = trusting(bundle_of(stage))
    context.check_hostname = False  # it is the Service's
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(text) if answer.status == 200 else {}


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "DELETE", "object": None},
        {"operation": "UPDATE"},
        {"uid": "made-up"},
        {"operation": "CREATE", "subResource": "binding"},
    ],
    ids=str,
)
def test_a_made_up_review_changes_nothing(stage: Stage, tenant: Json, changes: Json) -> None:
    usage = stage.usage("node-a")
    forged = {**tenant, "metadata": {**tenant["metadata"], "annotations": {}}}

    status, answer = post(stage, "/mutate", {**review(forged, **changes)})

    assert status == 200
    assert answer["response"]["allowed"] is True or "spec.nodeName" in str(answer)
    assert stage.get("tenant") == tenant
    stage.create(shared("late", gpumem=1000))
    stage.pending("late", names.Reason.MEMORY)
    assert stage.usage("node-a") == usage


@pytest.mark.parametrize("path", ["/", "/bind", "/filter", "/validate", "/metrics"])
def test_the_webhook_has_no_other_door(theatre: Stage, path: str) -> None:
    assert post(theatre, path, {})[0] == 404
