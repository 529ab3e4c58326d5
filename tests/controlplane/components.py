"""The command line of each program of the control plane, and why it is what it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.pki import Pki

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""

_LEASE_SECONDS = 240
"""A fake node's lease, renewed four times as often: 80 writes a second for 5,000 nodes. A kubelet's
40 seconds would cost 500."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How a program of Kubernetes serves HTTPS on loopback, verifiably, beside a reserved port."""

    certificate: Path
    key: Path

    def flags(self, port: int) -> list[str]:
        return [
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--permit-port-sharing",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={self.key}",
        ]


def etcd(program: Path, *, data: Path, client_port: int, peer_port: int) -> list[str]:
    client = f"http://127.0.0.1:{client_port}"
    peer = f"http://127.0.0.1:{peer_port}"
    return [
        str(program),
        "--name=only",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=only={peer}",
        "--socket-reuse-port",
        "--unsafe-no-fsync",  # thrown away afterwards
        "--log-level=warn",
    ]


def kube_apiserver(
    program: Path,
    *,
    directory: Path,
    pki: Pki,
    serving: Serving,
    port: int,
    etcd_port: int,
    token_file: Path,
    service_account_key: Path,
    audit: bool,
    services: str,
    tokens_for_pods: bool,
) -> list[str]:
    # TaintNodesByCondition would taint every hand-made Node for good where no controller manager
    # runs. ServiceAccount would refuse a Pod in a namespace that is so new that the controller
    # manager has not made its default account yet; no fake Pod needs a token.
    unwanted = ["TaintNodesByCondition", *([] if tokens_for_pods else ["ServiceAccount"])]
    argv = [
        str(program),
        *serving.flags(port),
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--cert-dir={pki.directory}",
        # No route out is needed: the address would otherwise be that of the default route.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--token-auth-file={token_file}",
        # Nobody has a client certificate. But kube-scheduler and the controller manager look for
        # these authorities in a ConfigMap, and complain every few seconds where there are none.
        f"--client-ca-file={pki.ca}",
        f"--requestheader-client-ca-file={pki.ca}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={service_account_key}",
        f"--service-account-signing-key-file={service_account_key}",
        f"--service-cluster-ip-range={services}",
        "--allow-privileged=true",
        f"--disable-admission-plugins={','.join(unwanted)}",
        # The benchmark's clients are not to be queued here.
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--profiling=false",
    ]
    if audit:
        policy = directory / "audit-policy.yaml"
        policy.write_text(_AUDIT_POLICY)
        argv += [
            f"--audit-policy-file={policy}",
            f"--audit-log-path={directory / 'audit.log'}",
            # MB. By default another file is begun at 100: after some 20,000 Pods.
            "--audit-log-maxsize=100000",
        ]
    return argv


def kube_controller_manager(
    program: Path,
    *,
    pki: Pki,
    serving: Serving,
    port: int,
    kubeconfig: Path,
    service_account_key: Path,
) -> list[str]:
    return [
        str(program),
        *serving.flags(port),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--root-ca-file={pki.ca}",
        f"--service-account-private-key-file={service_account_key}",
        # As kubeadm has it: a controller that makes Pods of somebody's template is nobody's
        # administrator, and what may not be written on a Pod can't be written by way of a Job.
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--node-monitor-grace-period={_LEASE_SECONDS * 5 // 4}s",
        # By default 20 requests a second: a test would wait minutes for a namespace to go.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--profiling=false",
    ]


def kube_scheduler(
    program: Path, *, config: Path, serving: Serving, port: int, kubeconfig: Path
) -> list[str]:
    return [
        str(program),
        *serving.flags(port),
        f"--config={config}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def on_host(host: str, argv: Sequence[str]) -> list[str]:
    """Run a program in a UTS namespace, where the host name is its own; root's user may make one.

    Each program replaces the one before, so signals reach the last.
    """
    return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *argv]


def kwok(
    program: Path, *, kubeconfig: Path, stages: Sequence[Path], selector: str, leases: bool
) -> list[str]:
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={selector}",
        # By default KWOK renews no lease, and the controller manager gives a node up after 50 s.
        f"--node-lease-duration-seconds={_LEASE_SECONDS if leases else 0}",
        # Given by name, so that a configuration in the home directory is not read as well.
        *(f"--config={stage}" for stage in stages),
    ]
