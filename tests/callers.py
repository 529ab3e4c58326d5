"""Ask a real API server as somebody else than its administrator, and see the whole answer.

A caller is a ServiceAccount by its own token, or a user or kubelet whom the administrator
impersonates: for authorization and admission, that is the same as having come by oneself.
"""

import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from controlplane.launcher import SYSTEM_NAMESPACE, ControlPlane

Json = dict[str, Any]

MERGE: Final = "application/merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: Json
    warnings: tuple[str, ...] = ()
    """As kubectl would show them."""

    @property
    def ok(self) -> bool:
        """Whether the request had its effect."""
        return self.status < 300

    @property
    def message(self) -> str:
        """Why not; empty where it had."""
        return "" if self.ok else str(self.body.get("message", self.body))


@dataclass(frozen=True)
class Caller:
    """Somebody who asks the API server."""

    cp: ControlPlane
    token: str
    user: str = ""
    """Whom to impersonate; empty: nobody."""
    groups: Sequence[str] = ()
    _headers: Json = field(init=False, default_factory=dict)

    @classmethod
    def administrator(cls, cp: ControlPlane) -> "Caller":
        """The group system:masters."""
        return cls(cp, cp.admin_token)

    @classmethod
    def person(cls, cp: ControlPlane, user: str, *groups: str) -> "Caller":
        """A user, of these groups and those that everybody has."""
        return cls(cp, cp.admin_token, user, (*groups, "system:authenticated"))

    @classmethod
    def kubelet(cls, cp: ControlPlane, node: str) -> "Caller":
        """The kubelet of a node."""
        return cls.person(cp, f"system:node:{node}", "system:nodes")

    @classmethod
    def account(cls, cp: ControlPlane, name: str, namespace: str = SYSTEM_NAMESPACE) -> "Caller":
        """A ServiceAccount, by a token of its own."""
        config = yaml.safe_load(cp.service_account_kubeconfig(name, namespace).read_text())
        return cls(cp, config["users"][0]["user"]["token"])

    def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> Answer:
        """Send one request; a refusal is an answer like another."""
        address = urlsplit(self.cp.server)
        connection = http.client.HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=60,
            context=ssl.create_default_context(cafile=str(self.cp.ca)),
        )
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.putrequest(method, path)
            connection.putheader("Authorization", f"Bearer {self.token}")
            if self.user:
                connection.putheader("Impersonate-User", self.user)
            for group in self.groups:
                connection.putheader("Impersonate-Group", group)
            if data is not None:
                connection.putheader("Content-Type", content_type)
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            text = answer.read().decode()
            warnings = tuple(
                warning.partition('"')[2].rpartition('"')[0].replace('\\"', '"')
                for warning in answer.headers.get_all("Warning", [])
            )
        finally:
            connection.close()
        return Answer(answer.status, _object(text), warnings)

    def create_pod(self, pod: Json, *, dry_run: bool = False) -> Answer:
        """Create a Pod in its namespace."""
        query = "?dryRun=All" if dry_run else ""
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods{query}"
        return self.ask("POST", path, submitted(pod))

    def patch_pod(self, pod: Json, change: Json, *, subresource: str = "") -> Answer:
        """Merge a change into a Pod, or into a part of it."""
        return self.ask("PATCH", pod_path(pod, subresource), change, content_type=MERGE)


def pod_path(pod: Json, subresource: str = "") -> str:
    """Where a Pod, or a subresource of it, is found."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    return f"{path}/{subresource}" if subresource else path


def submitted(pod: Json) -> Json:
    """A Pod of `build.pod` as a client would send it, without what the server alone writes."""
    metadata = {
        key: value
        for key, value in pod["metadata"].items()
        if key not in ("uid", "resourceVersion")
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]}


def _object(text: str) -> Json:
    try:
        content = json.loads(text)
    except ValueError:
        return {"message": text}
    return content if isinstance(content, dict) else {"message": text}
