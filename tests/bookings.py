"""Who has which card, as the controller's metrics say and as the API server says."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from stage import Stage, node_of, uuids

Shares = set[tuple[str, str, str]]
"""Node, Pod and card of every share."""


def samples(stage: Stage, name: str, url: str | None = None) -> list[tuple[dict[str, str], float]]:
    """A metric of the controller, or of another one at ``url``: labels and values."""
    asked = f"{url or stage.reports_url}/metrics"
    with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - http
        families = list(text_string_to_metric_families(answer.read().decode()))
    return [(s.labels, s.value) for f in families for s in f.samples if s.name == name]


def in_ledger(stage: Stage, url: str | None = None) -> Shares:
    """What the ledger counts: what is booked, being bound, or held."""
    return {
        (labels["node"], f"{labels['namespace']}/{labels['pod']}", labels["device_uuid"])
        for labels, _ in samples(stage, "hami_vgpu_memory_allocated_bytes", url)
    }


def in_cluster(stage: Stage) -> Shares:
    """What the placed Pods say that are not at their end."""
    return {
        (pod["spec"]["nodeName"], f"{stage.namespace}/{pod['metadata']['name']}", uuid)
        for pod in stage.placed_pods()
        if pod["metadata"]["namespace"] == stage.namespace
        and pod["status"]["phase"] not in ("Succeeded", "Failed")
        for uuid in uuids(pod)
    }


def refused(stage: Stage) -> list[str]:
    """The Pods of this test that wait and were answered that they must.

    Of Pods behind our gate none is told before all are: only the controller's count tells.
    """
    waiting = {name: pod for name, pod in stage.pods().items() if node_of(pod) is None}
    if not stage.gates:
        return [name for name, pod in waiting.items() if pod["status"].get("conditions")]
    counted = sum(value for _, value in samples(stage, "cardwise_pending_pods"))
    return list(waiting) if counted == len(waiting) else []


def agree(stage: Stage) -> bool:
    """Whether both say the same now."""
    return in_ledger(stage) == in_cluster(stage)
