"""The control plane under the other end-to-end tests, by itself: no part of Cardwise runs."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.launcher import (
    ApiError,
    ControlPlane,
    ControlPlaneError,
    KubectlError,
    free_port,
    standing_ground,
)

NODE = "node-a"


@pytest.fixture(scope="module")
def cp() -> Iterator[ControlPlane]:
    with ControlPlane.start(audit=True) as plane:
        standing_ground(plane)
        plane.add_node(NODE, gpus=4, labels={"zone": "z1"})
        # Nobody listens there: what is scheduled nevertheless was not asked about.
        plane.start_scheduler(extender_url=f"http://127.0.0.1:{free_port()}")
        yield plane


def pod(name: str, **resources: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "cardwise-scheduler", "containers": [container]},
    }


def phase(cp: ControlPlane, name: str) -> str:
    return cp.kubectl("get", "pod", name, "-o=jsonpath={.status.phase}")


def gone(cp: ControlPlane, path: str) -> bool:
    try:
        cp.request("GET", path)
    except ApiError as error:
        return error.status == 404
    return False


def test_a_fake_node_is_ready_and_untainted(cp: ControlPlane) -> None:
    cp.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=10s")

    node = cp.request("GET", f"/api/v1/nodes/{NODE}")

    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["status"]["allocatable"]["pods"] == "250"
    assert node["metadata"]["labels"]["zone"] == "z1"
    assert "taints" not in node["spec"]


def test_kwok_takes_the_node_over(cp: ControlPlane) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"

    cp.wait("KWOK to renew the node's lease", lambda: cp.request("GET", lease), 20)


def test_a_pod_without_cards_runs_and_goes_though_no_extender_answers(cp: ControlPlane) -> None:
    cp.apply([pod("cpu-only", cpu="1")])
    cp.wait("the Pod to run", lambda: phase(cp, "cpu-only") == "Running", 20)

    assert cp.kubectl("get", "pod", "cpu-only", "-o=jsonpath={.spec.nodeName}") == NODE

    cp.kubectl("delete", "pod", "cpu-only", "--wait=false")
    cp.wait("the Pod to go", lambda: gone(cp, "/api/v1/namespaces/default/pods/cpu-only"), 20)


def test_a_pod_with_cards_waits_while_no_extender_answers(cp: ControlPlane) -> None:
    cp.apply([pod("with-card", **{"nvidia.com/gpu": "1"})])

    def said() -> str:
        events = "--field-selector=involvedObject.name=with-card,reason=FailedScheduling"
        return cp.kubectl("get", "events", events, "-o=jsonpath={.items[*].message}")

    assert "connection refused" in cp.wait("the scheduler to say why", said, 20)
    assert phase(cp, "with-card") == "Pending"
    cp.kubectl("delete", "pod", "with-card", "--grace-period=0", "--force")


def test_a_namespace_goes_with_all_that_is_in_it(cp: ControlPlane) -> None:
    cp.kubectl("create", "namespace", "short-lived")
    cp.kubectl("create", "configmap", "something", "-n=short-lived")
    cp.kubectl("delete", "namespace", "short-lived", "--wait=false")

    cp.wait("the namespace to go", lambda: gone(cp, "/api/v1/namespaces/short-lived"), 60)


MAY = [
    ("cardwise-controller", "create pods/binding", "default"),
    ("cardwise-controller", "patch nodes", ""),
    ("cardwise-controller", "list gpunodes.cardwise.dev", ""),
    ("cardwise-controller", "patch gpunodes.cardwise.dev/status", ""),
    ("cardwise-controller", "write allocations.cardwise.dev", "default"),
    ("cardwise-controller", "list deviceclasses.resource.k8s.io", ""),
    ("cardwise-controller", "create events.events.k8s.io", "default"),
    ("cardwise-controller", "patch pods", "cardwise-system"),
    ("cardwise-agent", "create gpunodes.cardwise.dev", ""),
    ("cardwise-agent", "patch gpunodes.cardwise.dev/status", ""),
    ("cardwise-agent", "get nodes", ""),
    ("cardwise-agent", "write allocations.cardwise.dev", "default"),
]
MAY_NOT = [
    ("cardwise-controller", "patch pods", "default"),
    ("cardwise-controller", "create pods", "cardwise-system"),
    ("cardwise-controller", "get secrets", "kube-system"),
    ("cardwise-controller", "patch gpunodes.cardwise.dev", ""),
    ("cardwise-agent", "delete gpunodes.cardwise.dev", ""),
    ("cardwise-agent", "patch nodes", ""),
    ("cardwise-agent", "create pods/binding", "default"),
    ("cardwise-webhook", "get pods", "default"),
    ("cardwise-webhook", "write allocations.cardwise.dev", "default"),
]


def access(cp: ControlPlane, account: str, action: str, namespace: str) -> bool:
    verb, _, what = action.partition(" ")
    what, _, subresource = what.partition("/")
    resource, _, group = what.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:cardwise-system:{account}",
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "namespace": namespace,
            },
        },
    }
    answer = cp.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize(("account", "action", "namespace"), MAY)
def test_each_account_may_do_its_work(
    cp: ControlPlane, account: str, action: str, namespace: str
) -> None:
    assert access(cp, account, action, namespace)


@pytest.mark.parametrize(("account", "action", "namespace"), MAY_NOT)
def test_no_account_may_do_more(
    cp: ControlPlane, account: str, action: str, namespace: str
) -> None:
    assert not access(cp, account, action, namespace)


def test_a_service_accounts_kubeconfig_is_refused_what_rbac_does_not_grant(
    cp: ControlPlane,
) -> None:
    kubeconfig = cp.service_account_kubeconfig("cardwise-agent")

    assert cp.kubectl("get", "node", NODE, kubeconfig=kubeconfig)
    with pytest.raises(KubectlError, match="forbidden"):
        cp.kubectl("get", "secrets", "-A", kubeconfig=kubeconfig)


def test_a_client_that_trusts_another_authority_does_not_connect(
    cp: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = cp.service_account_kubeconfig("cardwise-agent")
    blind = tmp_path / "kubeconfig"
    blind.write_text(kubeconfig.read_text().replace("certificate-authority-data", "unused"))

    with pytest.raises(KubectlError, match="certificate signed by unknown authority"):
        cp.kubectl("get", "node", NODE, kubeconfig=blind)


def test_schedulers_elect_a_leader_through_the_lease_in_our_namespace(cp: ControlPlane) -> None:
    cp.start_scheduler(extender_url="http://127.0.0.1:1", name="elected", leader_elect=True)

    def holder() -> str:
        lease = ["lease", "cardwise-scheduler", "-n=cardwise-system"]
        return cp.kubectl("get", *lease, "-o=jsonpath={.spec.holderIdentity}")

    assert cp.wait("a leader", holder, 30)


def test_every_request_is_in_the_audit_log(cp: ControlPlane) -> None:
    log = (cp.directory / "audit.log").read_text()

    assert '"level":"Metadata"' in log
    assert '"resource":"nodes"' in log


def test_waiting_in_vain_says_for_what_and_shows_the_logs(cp: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match=r"(?s)waited 0 s for the moon; .*None.*kwok\.log"):
        cp.wait("the moon", lambda: None, 0)


def test_a_process_that_dies_is_told_with_its_log(cp: ControlPlane) -> None:
    process = cp.start_process("brief", ["sh", "-c", "echo last words; exit 3"])

    assert cp.wait("it to end", lambda: process.poll() == 3, 10)
    assert process.tail() == "last words"


def test_stop_leaves_neither_process_nor_directory() -> None:
    with ControlPlane.start(controller_manager=False) as plane:
        children = three_children(os.getpid(), in_directory=plane.directory)

    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert not plane.directory.exists()
    plane.stop()


def test_processes_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    started: list[ControlPlane] = []

    def start() -> None:
        started.append(ControlPlane.start(directory=tmp_path, kwok=False, controller_manager=False))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    with started[0] as plane:
        assert plane.request("GET", "/readyz") == "ok"


def test_processes_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from controlplane.launcher import ControlPlane\n"
        "ControlPlane.start(directory=Path(sys.argv[1]), controller_manager=False)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        children = three_children(parent.pid, in_directory=tmp_path)
        parent.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in children if alive(pid)] == []


def three_children(parent: int, *, in_directory: Path) -> list[int]:
    """Return etcd, kube-apiserver and KWOK: the children whose command line names the directory."""
    deadline = time.monotonic() + 10
    found: list[int] = []
    while len(found) != 3:  # a process that is just becoming another program has no command line
        assert time.monotonic() < deadline, found
        pids = [
            int(pid)
            for children in Path(f"/proc/{parent}/task").glob("*/children")
            for pid in children.read_text().split()
        ]
        found = [
            pid for pid in pids if str(in_directory) in Path(f"/proc/{pid}/cmdline").read_text()
        ]
    return found


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
