"""Whether the API server reaches the webhook is tested, and told where it does not."""

from typing import Any

import pytest

from cardwise.admission import admit
from cardwise.controller.lease.duty import Duty
from cardwise.controller.telling.notes import Notes
from cardwise.controller.webhook.certificates import WEBHOOK
from cardwise.controller.webhook.selftest import SelfTest
from cardwise.names import Door
from cardwise.settings import Scheduling, Settings
from controllers import World, background, loop_clock, passing
from fakes.cluster import FakeCluster, Fault, refused, unanswered

Json = dict[str, Any]
DISTRUSTED = refused(
    500,
    'Internal error occurred: failed calling webhook "self-test.cardwise.dev": failed to call '
    "webhook: tls: failed to verify certificate: x509: certificate signed by unknown authority",
)
ONLY_GATES = Settings(scheduling=Scheduling(door=Door.GATES))


class Ground:
    """A cluster with a webhook, and the test of it."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.cluster = FakeCluster()
        self.cluster.put(configuration())
        self.cluster.webhook = self.admitted
        duty, clock = Duty(), loop_clock()
        self.test = SelfTest(self.cluster, duty, clock, Notes(self.cluster, duty, clock, "test"))

    def admitted(self, document: Json) -> Json:
        pod = admit(document["template"], self.settings).pod
        return {**document, "template": pod}

    def fails(self, times: int, fault: Fault = DISTRUSTED) -> None:
        self.cluster.fail("dry_run_pod_template", *[fault] * times)

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["note"]) for each in self.cluster.objects["Event"].values()]


def configuration() -> Json:
    return {
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK, "uid": "uid-of-it"},
        "webhooks": [],
    }


@pytest.mark.parametrize(
    "settings",
    [pytest.param(Settings(), id="extender"), pytest.param(ONLY_GATES, id="gates")],
)
async def test_a_webhook_that_leads_to_a_door_is_reached(settings: Settings) -> None:
    ground = Ground(settings)

    assert await ground.test.look() == 30.0

    assert ground.test.reachable is True
    assert ground.events() == []


async def test_what_keeps_the_api_server_from_it_is_told_within_a_minute() -> None:
    ground = Ground()
    async with background(ground.test.run()):
        await passing(1.0)
        ground.fails(100)
        await passing(30.0)
        assert ground.test.reachable is False
        assert ground.events() == [], "it may be on its way up"
        await passing(30.0)

    [(reason, note)] = ground.events()
    assert reason == "WebhookUnreachable"
    assert note.startswith("Pods with cards can't be created, the webhook is not reached: ")
    assert note.endswith("x509: certificate signed by unknown authority")
    [event] = ground.cluster.objects["Event"].values()
    assert event["type"] == "Warning"
    assert event["regarding"]["uid"] == "uid-of-it", "kubectl describe looks for it"


async def test_that_it_is_reached_again_is_told_once() -> None:
    ground = Ground()
    ground.fails(5)
    async with background(ground.test.run()):
        await passing(600.0)

    assert [reason for reason, _ in ground.events()] == ["WebhookUnreachable", "WebhookReachable"]
    assert ground.test.reachable is True


async def test_a_short_absence_is_nothing_to_tell() -> None:
    ground = Ground()
    ground.fails(3)
    async with background(ground.test.run()):
        await passing(600.0)

    assert ground.events() == []


async def test_what_lasts_is_told_again_before_the_event_is_forgotten() -> None:
    ground = Ground()
    ground.fails(10_000)
    async with background(ground.test.run()):
        await passing(3_600.0)

    assert len(ground.events()) == 2


async def test_an_api_server_that_does_not_ask_it_is_told() -> None:
    ground = Ground()
    ground.cluster.webhook = lambda template: template
    async with background(ground.test.run()):
        await passing(60.0)

    [(reason, note)] = ground.events()
    assert reason == "WebhookUnreachable"
    assert "the API server did not ask it" in note
    assert "apply the manifests again" in note


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(unanswered(), id="no answer"),
        pytest.param(refused(403), id="forbidden"),
        pytest.param(refused(500, "etcd has no leader"), id="another error of the API server"),
    ],
)
async def test_what_tells_nothing_of_the_webhook_is_not_held_against_it(fault: Fault) -> None:
    ground = Ground()
    ground.fails(100, fault)
    async with background(ground.test.run()):
        await passing(300.0)

    assert ground.test.reachable is None
    assert ground.events() == []


async def test_without_a_configuration_there_is_nothing_to_write_an_event_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ground = Ground()
    ground.cluster.remove("MutatingWebhookConfiguration", WEBHOOK)
    ground.cluster.webhook = lambda template: template
    async with background(ground.test.run()):
        await passing(60.0)

    assert ground.events() == []
    assert "the API server did not ask it" in caplog.text


async def test_an_event_that_is_not_taken_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ground = Ground()
    ground.cluster.fail("create_event", refused(403))
    ground.fails(5)
    async with background(ground.test.run()):
        await passing(600.0)

    assert [reason for reason, _ in ground.events()] == ["WebhookReachable"]
    said = (
        "event WebhookUnreachable of MutatingWebhookConfiguration cardwise-webhook was not written"
    )
    assert said in caplog.text


async def test_the_metric_is_what_the_last_test_found() -> None:
    world = await World(configuration()).load()
    controller, shown = world.controller, []
    world.cluster.webhook = lambda template: template
    for webhook in (None, lambda template: template, Ground().admitted):
        if webhook is not None:
            world.cluster.webhook = webhook
            await controller.self_test.look()
        lines = controller.metrics.render().decode().splitlines()
        shown += [it for it in lines if it.startswith("cardwise_webhook_reachable ")]

    assert [line.split()[1] for line in shown] == ["NaN", "0.0", "1.0"]
