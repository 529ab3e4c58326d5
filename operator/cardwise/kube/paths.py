"""Where objects are in the API, and the few writes and conditions that several adapters need alike.

Names come from whoever calls /filter and /bind, or from a command line: none may lead to another
path than its own.
"""

from typing import Any, Final
from urllib.parse import quote

from cardwise.errors import ApiError
from cardwise.kube.client import Client

MERGE: Final = "application/merge-patch+json"
UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector of Pods."""


def segment(name: str) -> str:
    """A name as one step of a path.

    Raises:
        ApiError: it is no name of any object, but a step on the spot or back, or none at all,
            which would lead to the list of them.
    """
    if name in ("", ".", ".."):
        raise ApiError(404, f'nothing is named "{name}"')
    return quote(name, safe="")


def node_path(name: str) -> str:
    """Of a Node."""
    return f"/api/v1/nodes/{segment(name)}"


def pod_path(namespace: str, name: str) -> str:
    """Of a Pod."""
    return f"/api/v1/namespaces/{segment(namespace)}/pods/{segment(name)}"


async def create_event(client: Client, event: dict[str, Any]) -> None:
    """Post an event (events.k8s.io/v1).

    Raises:
        ApiError: as ``Client.request``.
    """
    namespace = segment(event["metadata"]["namespace"])
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    await client.request("POST", path, body=event)
