"""Served for real, and asked as kubelet and Prometheus ask."""

import asyncio
import socket

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cardwise.agent.health import Change
from cardwise.agent.metrics import Metrics
from cardwise.agent.probe import Report, probe
from cardwise.agent.server import listen
from cardwise.model import NodeOverrides
from cardwise.names import CardEvent
from cardwise.ports import CardReading, Readings, Xid
from cardwise.settings import Agent
from controlplane.launcher import free_port

pytestmark = pytest.mark.looptime(False)

CARDS = (
    CardReading(uuid="GPU-a", index=0, name="Tesla T4", memory_mib=15360),
    CardReading(uuid="GPU-b", index=1, name="Tesla T4", memory_mib=15360, trouble="Xid 79"),
)


def metrics(*, report: Report | None = None, failures: int = 0) -> Metrics:
    return Metrics("node-a", report=lambda: report, failures=lambda: failures)


def samples(body: str) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels, in the order of the labels' names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def ask(path: str, *, not_ready: str = "", hopeless: str = "") -> tuple[int, str]:
    port = free_port()
    counted = metrics()
    runner = await listen(
        ("127.0.0.1", port),
        not_ready=lambda: not_ready,
        hopeless=lambda: hopeless,
        metrics=counted.render,
        content_type=counted.CONTENT_TYPE,
    )
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.status, await response.text()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "said", "want"),
    [
        pytest.param("/readyz", {}, (200, "ok\n"), id="ready"),
        pytest.param("/readyz", {"not_ready": "not yet"}, (503, "not yet\n"), id="not ready"),
        pytest.param("/livez", {"not_ready": "not yet"}, (200, "ok\n"), id="not ready is alive"),
        pytest.param("/livez", {"hopeless": "old"}, (503, "old\n"), id="hopeless"),
        pytest.param("/healthz", {"hopeless": "old"}, (503, "old\n"), id="by its other name"),
        pytest.param("/", {}, (404, "404: Not Found"), id="nothing else"),
    ],
)
async def test_probes(path: str, said: dict[str, str], want: tuple[int, str]) -> None:
    assert await ask(path, **said) == want


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    status, body = await ask("/metrics")

    assert status == 200
    assert samples(body)["cardwise_report_failures_total",] == 0


async def test_an_address_that_is_taken_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address already in use"):
            await listen(
                taken.getsockname(),
                not_ready=str,
                hopeless=str,
                metrics=bytes,
                content_type="text/plain",
            )
    await asyncio.sleep(0)


def test_what_is_counted() -> None:
    report = probe("node-a", Readings(cards=CARDS), Agent(), NodeOverrides())
    counted = metrics(report=report, failures=3)
    for _ in range(2):
        with counted.probing():
            pass
    counted.changed(Change(event=CardEvent.UNHEALTHY, card=CARDS[1]))
    counted.changed(Change(event=CardEvent.DRIVER_FAILED))
    counted.read(Readings(xids=(Xid(uuid="GPU-b", number=79), Xid(uuid="GPU-b", number=79))))
    counted.started("started")
    counted.started("CardOverbooked")

    told = samples(counted.render().decode())

    assert told.pop(("cardwise_probe_seconds_sum",)) >= 0
    assert told == {
        ("cardwise_probe_seconds_count",): 2,
        ("cardwise_card_changes_total", "GPU-b", "node-a", "CardUnhealthy"): 1,
        ("cardwise_card_changes_total", "", "node-a", "DriverFailed"): 1,
        ("cardwise_card_xids_total", "GPU-b", "node-a", "79"): 2,
        ("cardwise_card_healthy", "0", "NVIDIA-Tesla T4", "GPU-a", "node-a"): 1,
        ("cardwise_card_healthy", "1", "NVIDIA-Tesla T4", "GPU-b", "node-a"): 0,
        ("cardwise_report_failures_total",): 3,
        ("cardwise_starts_total", "node-a", "started"): 1,
        ("cardwise_starts_total", "node-a", "CardOverbooked"): 1,
    }


def test_before_the_first_report_no_card_is_told_of() -> None:
    assert not any(
        name[0] == "cardwise_card_healthy" for name in samples(metrics().render().decode())
    )
