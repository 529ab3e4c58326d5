"""Start and stop a throw-away control plane: etcd, kube-apiserver, controller manager, KWOK.

Every start is a cluster of its own, on free ports of 127.0.0.1 and in a directory of its own, with
RBAC on and TLS verified. Nodes are KWOK's: they stay Ready and their Pods turn Running, without a
container anywhere. kube-scheduler is started by itself, as it needs to know its extender.

    with ControlPlane.start() as cp:
        standing_ground(cp)
        cp.add_node("node-a", gpus=4)
        cp.start_scheduler(extender_url="http://127.0.0.1:8478")
        print(cp.kubectl("get", "nodes"))
"""

import ipaddress
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import yaml

from controlplane import components
from controlplane.api import Api, ApiError
from controlplane.kubectl import KubectlError, KubectlOutput, kubectl
from controlplane.nodes import FAKE, fake_node
from controlplane.pki import Pki
from controlplane.process import Process, free_port
from controlplane.scratch import Scratch
from controlplane.supervisor import ControlPlaneError, Supervisor

__all__ = [
    "ApiError",
    "ControlPlane",
    "ControlPlaneError",
    "KubectlError",
    "KubectlOutput",
    "Process",
    "fake_node",
    "free_port",
    "program",
    "standing_ground",
]

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
_CRD: Final = "crds/gpunodes.yaml"
SYSTEM_NAMESPACE: Final = "cardwise-system"
SCHEDULER_ACCOUNT: Final = "cardwise-controller"
_TOKEN_HOURS: Final = 24  # longer than any test run
_SERVICES: Final = "127.1.0.0/16"
"""Nothing routes a Service's address; one of the loopback's leads to this machine, where a process
can stand for the Service's Pods."""


class ControlPlane:
    """A running control plane. Made by `start`, a context manager that stops it at the end."""

    server: str
    """``https://127.0.0.1:PORT`` of the API server."""
    directory: Path
    """Data, logs and kubeconfigs."""
    admin_kubeconfig: Path
    admin_token: str
    """The bearer token of group system:masters, for HTTP clients of one's own."""
    api_server: Process
    """A test may pause it; the run is over when it ends."""
    etcd: Process
    ca: Path
    """The certificate that everything here is verified against."""

    def __init__(self, scratch: Scratch, binaries: Path, services: str = _SERVICES) -> None:
        """Make keys and kubeconfigs; `start` is the way in."""
        self.directory = scratch.path
        self._scratch = scratch
        self._binaries = binaries
        self._pki = Pki(self.directory / "pki")
        self.ca = self._pki.ca
        self._supervisor = Supervisor(self.directory, self.ca)
        self._service_account_key = self._pki.signing_key("service-accounts")
        self._services = services
        own = f"IP:{ipaddress.ip_network(services)[1]}"
        self._serving = components.Serving(
            *self._pki.server_certificate(
                "server", ["IP:127.0.0.1", "DNS:localhost", own, "DNS:kubernetes.default.svc"]
            )
        )
        self._api_port = self._supervisor.reserve_port()
        self.server = f"https://127.0.0.1:{self._api_port}"
        self.admin_token = secrets.token_urlsafe(24)
        self.admin_kubeconfig = self._pki.kubeconfig(
            self.directory / "admin.kubeconfig",
            server=self.server,
            user="admin",
            token=self.admin_token,
        )
        self._api = Api(self.server, self.ca, self.admin_token)

    # --- life -------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        *,
        directory: Path | None = None,
        audit: bool = False,
        kwok: bool = True,
        controller_manager: bool = True,
        keep: bool = False,
        services: str = _SERVICES,
        tokens_for_pods: bool = False,
    ) -> Self:
        """Start one and return when it answers.

        Args:
            directory: Where data and logs go, and stay. By default a temporary directory, removed
                by `stop`.
            audit: Write a JSON line a request to ``directory/audit.log``.
            kwok: Run KWOK, which keeps the nodes of `add_node` Ready and their Pods Running.
            controller_manager: Run the controller manager. Without it, namespaces are not
                deleted, owners' children stay, and Deployments make no Pods.
            keep: Keep the temporary directory.
            services: The addresses of Services.
            tokens_for_pods: Give Pods the tokens of their accounts, as a cluster does; then a
                namespace takes Pods only when the controller manager has made its account.
        """
        if directory is not None and (directory / "etcd").exists():
            raise ControlPlaneError(f"{directory} holds an earlier run; name an empty directory")
        binaries = _binaries()
        scratch = Scratch(directory, keep=keep)
        try:
            self = cls(scratch, binaries, services)
        except BaseException:
            scratch.remove()
            raise
        try:
            self._start_api_server(audit=audit, tokens_for_pods=tokens_for_pods)
            if kwok:
                self._start_kwok(leases=controller_manager)
            if controller_manager:
                self._start_controller_manager()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process, remove the temporary directory. A second call does nothing."""
        self._supervisor.stop()
        self._api.close()
        self._scratch.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- the cluster ------------------------------------------------------------------------------

    def kubectl(
        self,
        *args: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        timeout: float = 60,
    ) -> KubectlOutput:
        """Run kubectl as the administrator, or as whoever ``kubeconfig`` is.

        Raises:
            KubectlError: It failed (unless ``check`` is false), or took longer than ``timeout``.
        """
        return kubectl(
            *args,
            kubeconfig=kubeconfig or self.admin_kubeconfig,
            cache=self.directory / "kubectl-cache",
            stdin=stdin,
            check=check,
            timeout=timeout,
        )

    def apply(self, manifest: str | Path | list[dict[str, Any]]) -> None:
        """Apply YAML text, a file, a directory (with kustomize where it says so), or objects."""
        match manifest:
            case Path() if (manifest / "kustomization.yaml").is_file():
                source, stdin = ["-k", str(manifest)], None
            case Path():
                source, stdin = ["-f", str(manifest)], None
            case str():
                source, stdin = ["-f", "-"], manifest
            case _:
                source, stdin = ["-f", "-"], yaml.safe_dump_all(manifest)
        self.kubectl("apply", "--server-side", "--force-conflicts", *source, stdin=stdin)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
    ) -> Any:
        """Ask the API server directly, as the administrator: a millisecond where kubectl takes 60.

        Raises:
            ApiError: The API server refused.
        """
        return self._api.request(method, path, body, content_type=content_type)

    def service_account_kubeconfig(
        self, name: str, namespace: str = SYSTEM_NAMESPACE, *, pod: str | None = None
    ) -> Path:
        """Return a kubeconfig with a token of this ServiceAccount, good for a day.

        ``pod`` is one that runs as the ServiceAccount: its token names it, and its node.
        """
        bound = []
        if pod is not None:
            found = self.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
            uid = found["metadata"]["uid"]
            bound = [
                f"--bound-object-{k}={v}"
                for k, v in {"kind": "Pod", "name": pod, "uid": uid}.items()
            ]
        token = self.kubectl(
            "create", "token", name, f"-n={namespace}", f"--duration={_TOKEN_HOURS}h", *bound
        )
        return self._pki.kubeconfig(
            self.directory / f"{namespace}.{pod or name}.kubeconfig",
            server=self.server,
            user=f"{namespace}/{name}",
            token=token.strip(),
        )

    def add_node(
        self,
        name: str,
        *,
        cpu: str = "64",
        memory: str = "256Gi",
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Add a fake node, Ready from its first moment. KWOK keeps it so and runs its Pods."""
        node = fake_node(
            name,
            cpu=cpu,
            memory=memory,
            gpus=gpus,
            labels=labels or {},
            taints=taints or (),
            annotations=annotations or {},
        )
        self.request("POST", "/api/v1/nodes", node)

    # --- processes --------------------------------------------------------------------------------

    def start_process(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a program that ends with the control plane; its output goes to ``NAME.log``.

        ``env`` is added to the environment. A name may be used again once its process has ended;
        the log goes on.
        """
        return self._supervisor.start(name, argv, env=env)

    def start_scheduler(
        self,
        *,
        extender_url: str | None,
        name: str = "scheduler",
        leader_elect: bool = False,
        qps: float = 2000,
        host: str | None = None,
        kubeconfig: Path | None = None,
        configuration: Path = ROOT / "manifests/components/extender/scheduler.yaml",
        arguments: Sequence[str] = (),
    ) -> Process:
        """Start a stock kube-scheduler as the cluster runs it, and return when it is ready.

        It runs as ServiceAccount cardwise-controller (so `standing_ground` comes first) with the
        shipped ``configuration``, only told another address of the extender, whether to elect a
        leader, and a higher client limit. Without an ``extender_url`` it asks nobody.

        ``host`` is its host name, by which it calls itself in the Lease: there is no option for
        that. By default it is the machine's. ``kubeconfig`` is another way to the API server,
        ``arguments`` more options of the program.
        """
        kubeconfig = kubeconfig or self.service_account_kubeconfig(SCHEDULER_ACCOUNT)
        config = yaml.safe_load(configuration.read_text())
        if extender_url is None:
            config.pop("extenders", None)
        else:
            config["extenders"][0]["urlPrefix"] = extender_url
        config["leaderElection"]["leaderElect"] = leader_elect
        config["clientConnection"] = {
            "kubeconfig": str(kubeconfig),
            "qps": qps,
            "burst": int(2 * qps),
        }
        path = self.directory / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        return self._start_scheduler(name, path, kubeconfig, host, arguments)

    def _start_scheduler(
        self,
        name: str,
        config: Path,
        kubeconfig: Path,
        host: str | None = None,
        arguments: Sequence[str] = (),
    ) -> Process:
        port = self._supervisor.reserve_port()
        argv = components.kube_scheduler(
            self._binaries / "kube-scheduler",
            config=config,
            serving=self._serving,
            port=port,
            kubeconfig=kubeconfig,
        )
        argv += arguments
        scheduler = self._supervisor.start(
            name,
            argv if host is None else components.on_host(host, argv),
            url=f"https://127.0.0.1:{port}",
        )
        self._supervisor.wait_until_ready(scheduler, "/readyz")
        return scheduler

    def start_default_scheduler(self, *, qps: float | None = None) -> Process:
        """Start the cluster's own kube-scheduler, with every setting as it comes.

        ``qps`` is another limit of its client.
        """
        path = self.directory / "default-scheduler.yaml"
        client: dict[str, Any] = {"kubeconfig": str(self.admin_kubeconfig)}
        if qps is not None:
            client |= {"qps": qps, "burst": int(2 * qps)}
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": client,
        }
        path.write_text(yaml.safe_dump(config))
        return self._start_scheduler("default-scheduler", path, self.admin_kubeconfig)

    def wait(self, what: str, predicate: Callable[[], T], timeout: float) -> T:
        """Ask until the answer is truthy and return it; a refused request counts as "not yet".

        Raises:
            ControlPlaneError: It did not come true in time, or a process of the control plane
                died. The message says what was waited for, the last answer, and the log tails.
        """
        return self._supervisor.wait(what, predicate, timeout)

    # --- within -----------------------------------------------------------------------------------

    def _start_api_server(self, *, audit: bool, tokens_for_pods: bool) -> None:
        etcd_port = self._supervisor.reserve_port()
        self.etcd = self._supervisor.start(
            "etcd",
            components.etcd(
                self._binaries / "etcd",
                data=self.directory / "etcd",
                client_port=etcd_port,
                peer_port=self._supervisor.reserve_port(),
            ),
            url=f"http://127.0.0.1:{etcd_port}",
            core=True,
        )
        self._supervisor.wait_until_ready(self.etcd, "/health")
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')
        self.api_server = self._supervisor.start(
            "kube-apiserver",
            components.kube_apiserver(
                self._binaries / "kube-apiserver",
                directory=self.directory,
                pki=self._pki,
                serving=self._serving,
                port=self._api_port,
                etcd_port=etcd_port,
                token_file=tokens,
                service_account_key=self._service_account_key,
                audit=audit,
                services=self._services,
                tokens_for_pods=tokens_for_pods,
            ),
            url=self.server,
            core=True,
        )
        self._supervisor.wait_until_ready(self.api_server, "/readyz")

    def _start_controller_manager(self) -> None:
        port = self._supervisor.reserve_port()
        manager = self._supervisor.start(
            "kube-controller-manager",
            components.kube_controller_manager(
                self._binaries / "kube-controller-manager",
                pki=self._pki,
                serving=self._serving,
                port=port,
                kubeconfig=self.admin_kubeconfig,
                service_account_key=self._service_account_key,
            ),
            url=f"https://127.0.0.1:{port}",
            core=True,
        )
        self._supervisor.wait_until_ready(manager, "/healthz")

    def _start_kwok(self, *, leases: bool) -> None:
        self._supervisor.start(
            "kwok",
            components.kwok(
                self._binaries / "kwok",
                kubeconfig=self.admin_kubeconfig,
                stages=sorted((self._binaries.parent / "stages").iterdir()),
                selector=FAKE,
                leases=leases,
            ),
            core=True,
        )


def standing_ground(cp: ControlPlane) -> None:
    """Apply what every Cardwise process finds: namespace, accounts, who may allocate, GPUNodes."""
    for manifest in (
        "manifests/base/namespace.yaml",
        "manifests/base/rbac.yaml",
        "manifests/components/extender/rbac.yaml",
        "manifests/base/allocations.yaml",
        _CRD,
    ):
        if not (ROOT / manifest).is_file():
            raise ControlPlaneError(f"{manifest} is missing in this checkout")
        cp.apply(ROOT / manifest)
    cp.kubectl("wait", "--for=condition=Established", "--timeout=30s", f"-f={ROOT / _CRD}")


def program(name: str) -> Path:
    """Where a program of the control plane is."""
    return _binaries() / name


def _binaries() -> Path:
    """Return where the programs are; build them first where that was never done."""
    build = Path(__file__).with_name("build.sh")
    done = subprocess.run([build], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise ControlPlaneError(f"{build.name} failed with status {done.returncode}")
    return Path(done.stdout.splitlines()[-1])
