"""What a test of the webhook needs: a CA, certificates as kubelet brings them, reviews, a process.

For end-to-end tests, beside a running control plane::

    webhook = WebhookProcess(cp.directory)
    webhook.start(lambda argv: cp.start_process("webhook", argv))
    … "clientConfig": webhook.client_config()
"""

import base64
import ssl
import sys
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from cardwise.controller.webhook import authority
from cardwise.controller.webhook.authority import Pair
from controlplane.process import Process, free_port

Json = dict[str, Any]
PROGRAM: Final = Path(sys.executable).with_name("cardwise-webhook")
NAME: Final = "localhost"
YEAR: Final = timedelta(days=365)


class Authority:
    """A CA that vouches for certificates of ``localhost``."""

    def __init__(self, name: str = "test-ca") -> None:
        self.pair = authority.new_ca(name, datetime.now(UTC), YEAR)
        self.bundle = self.pair.certificate

    def issue(
        self, *, began: timedelta = timedelta(0), life: timedelta = timedelta(days=90)
    ) -> Pair:
        """A new certificate and key, made so long ago and for so long."""
        names = [NAME, "cardwise-webhook.cardwise-system.svc"]
        return authority.new_serving(self.pair, names, datetime.now(UTC) - began, life)


class Mount:
    """A directory that holds a Secret as kubelet mounts it: all files change in one moment.

    ``tls.crt`` leads through the link ``..data`` to a directory of the moment; a new one is made,
    the link is replaced, the old one is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turns = 0
        path.mkdir(exist_ok=True)

    def holds(self, certificate: bytes) -> bool:
        """Whether this certificate is the one that lies there."""
        file = self.path / "tls.crt"
        return file.exists() and file.read_bytes() == certificate

    def put(self, pair: Pair) -> None:
        """Exchange the certificate and its key."""
        self._turns += 1
        moment = self.path / f"..moment-{self._turns}"
        moment.mkdir()
        (moment / "tls.crt").write_bytes(pair.certificate)
        (moment / "tls.key").write_bytes(pair.key)
        new, data = self.path / "..data_tmp", self.path / "..data"
        before = data.resolve() if data.is_symlink() else None
        new.symlink_to(moment.name)
        new.replace(data)
        for name in ("tls.crt", "tls.key"):
            link = self.path / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        if before is not None:
            for file in before.iterdir():
                file.unlink()
            before.rmdir()


def trusting(*bundles: bytes) -> ssl.SSLContext:
    """What a client trusts: these CAs and no other."""
    return ssl.create_default_context(cadata=b"".join(bundles).decode())


def review(
    pod: Any,
    *,
    uid: str = "00000000-0000-4000-8000-000000000001",
    namespace: str = "default",
    **changes: Any,
) -> Json:
    """An AdmissionReview as the API server sends it when a Pod is created.

    Args:
        pod: the object.
        uid: of the request.
        namespace: of the request.
        changes: other fields of the request.
    """
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request: Json = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": name,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {**request, **changes},
    }


def patch_of(response: Json) -> Any:
    """The patch that an answer carries; an empty one where it carries none."""
    if "patch" not in response:
        assert "patchType" not in response  # the API server refuses one without the other
        return []
    assert response["patchType"] == "JSONPatch"
    return orjson.loads(base64.b64decode(response["patch"]))


class WebhookProcess:
    """The installed ``cardwise-webhook`` with a certificate of its own, on ports of 127.0.0.1."""

    process: Process

    def __init__(self, directory: Path, *arguments: str) -> None:
        """Prepare it; nothing runs yet.

        Args:
            directory: for its certificate; made where it is not there.
            arguments: more options of the command.
        """
        self.authority = Authority()
        self.mount = Mount(directory / "webhook-tls")
        self.port, self._metrics_port = free_port(), free_port()
        self._arguments = arguments

    def start(self, start: Callable[[Sequence[str]], Process]) -> None:
        """Start it with a good certificate.

        Args:
            start: starts the command line that it is given.
        """
        self.mount.put(self.authority.issue())
        self.process = start(self.argv)

    @property
    def argv(self) -> list[str]:
        """The command line."""
        return [
            str(PROGRAM),
            f"--listen=127.0.0.1:{self.port}",
            f"--metrics-listen=127.0.0.1:{self._metrics_port}",
            f"--tls-dir={self.mount.path}",
            *self._arguments,
        ]

    @property
    def url(self) -> str:
        """Where reviews go."""
        return f"https://{NAME}:{self.port}/mutate"

    @property
    def reports(self) -> str:
        """Where health and metrics are told."""
        return f"http://127.0.0.1:{self._metrics_port}"

    def client_config(self) -> Json:
        """The ``clientConfig`` of a webhook configuration that leads here."""
        return {"url": self.url, "caBundle": base64.b64encode(self.authority.bundle).decode()}

    def is_ready(self) -> bool:
        """Whether it takes reviews now."""
        assert self.process.poll() is None, f"it ended:\n{self.process.tail()}"
        try:
            with urllib.request.urlopen(f"{self.reports}/readyz", timeout=5):  # noqa: S310 - http
                return True
        except OSError:  # nobody listens yet, or it says that it is not ready
            return False
