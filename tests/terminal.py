"""kubectl as people type it: an ordinary user's, who may edit in one namespace and no more."""

from typing import Any, Final

import yaml

from callers import submitted
from controlplane.kubectl import KubectlOutput
from controlplane.launcher import ControlPlane

Json = dict[str, Any]
USER: Final = "jane"


class Terminal:
    """Where jane types kubectl, in her namespace."""

    def __init__(self, cp: ControlPlane, namespace: str) -> None:
        """Give her the namespace, which is made where it is not there."""
        self._cp = cp
        self.namespace = namespace
        group = "rbac.authorization.k8s.io"
        edit = {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}
        cp.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
                {
                    "apiVersion": f"{group}/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": USER, "namespace": namespace},
                    "roleRef": edit,
                    "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
                },
            ]
        )

    def __call__(self, *words: str, stdin: str | None = None) -> KubectlOutput:
        """Type a command; what it prints. One that fails is an answer like another."""
        return self._cp.kubectl(
            *words, f"--as={USER}", f"--namespace={self.namespace}", stdin=stdin, check=False
        )

    def apply(self, *documents: Json, how: tuple[str, ...] = ("apply",)) -> KubectlOutput:
        """``kubectl apply -f -`` with these objects as files hold them."""
        return self(*how, "-f=-", stdin=written(*documents))

    def create(self, *documents: Json) -> KubectlOutput:
        """``kubectl create -f -``."""
        return self.apply(*documents, how=("create",))


def written(*documents: Json) -> str:
    """Objects as their user wrote them into a file: without a namespace, and without a scheduler
    where that is empty; Pods of `build.pod` without what the API server adds.
    """
    return yaml.safe_dump_all(_written(document) for document in documents)


def _written(document: Json) -> Json:
    if document.get("kind", "Pod") != "Pod":
        return document
    pod = submitted(document)
    metadata = {k: v for k, v in pod["metadata"].items() if k != "namespace" and v}
    spec = {k: v for k, v in pod["spec"].items() if v != ""}
    return {**pod, "metadata": metadata, "spec": spec}
