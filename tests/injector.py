"""A second mutating webhook, as sidecar injectors are: it adds containers to labelled Pods.

It is called after ours, by its name, and so changes a Pod that ours has seen.
"""

import base64
import json
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from controlplane.launcher import ControlPlane
from webhooks import Authority, Mount

Json = dict[str, Any]
LABEL: Final = "injector"
_NAME: Final = "zz-injector"


class Injector:
    """Prepends an init container and appends a container; at work inside of a ``with``."""

    def __init__(self, cp: ControlPlane, init: Json, added: Json) -> None:
        """Prepare it.

        Args:
            cp: whose Pods it changes: those with the label ``injector``.
            init: put before the init containers.
            added: put behind the containers.
        """
        self._cp = cp
        self._authority = Authority("injector-ca")
        self._handler = _answering(init, added)

    def __enter__(self) -> Self:
        directory = Path(tempfile.mkdtemp(dir=self._cp.directory))
        Mount(directory).put(self._authority.issue())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        url = f"https://localhost:{self._server.server_port}/"
        bundle = base64.b64encode(self._authority.bundle).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        webhook = {
            "name": "injector.example.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": url, "caBundle": bundle},
            "rules": [{**rule, "operations": ["CREATE"]}],
            "sideEffects": "None",
            "objectSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
        }
        kind = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
        }
        self._cp.apply([{**kind, "metadata": {"name": _NAME}, "webhooks": [webhook]}])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cp.kubectl("delete", "mutatingwebhookconfiguration", _NAME)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _answering(init: Json, added: Json) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            spec = body["request"]["object"]["spec"]
            inits = [init, *spec.get("initContainers", ())]
            patch = [
                {"op": "add", "path": "/spec/initContainers", "value": inits},
                {"op": "add", "path": "/spec/containers/-", "value": added},
            ]
            response = {
                "uid": body["request"]["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
            review = {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}
            answer = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
