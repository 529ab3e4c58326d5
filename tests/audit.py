"""What our accounts asked the API server, and what it refused them, by its own audit log."""

import json
from collections.abc import Iterator
from typing import Any, Final

from controlplane.launcher import SYSTEM_NAMESPACE, ControlPlane

Json = dict[str, Any]
ACCOUNTS: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:"


def requests(cp: ControlPlane) -> Iterator[Json]:
    """Every request of our ServiceAccounts; the control plane was started with ``audit=True``."""
    for log in sorted(cp.directory.glob("audit*.log")):
        with log.open() as lines:
            for line in lines:
                if ACCOUNTS in line:
                    request = json.loads(line)
                    if request["user"]["username"].startswith(ACCOUNTS):
                        yield request


def account(request: Json) -> str:
    """The name of the ServiceAccount that asked."""
    return str(request["user"]["username"]).removeprefix(ACCOUNTS)


def kind(request: Json) -> str:
    """The resource, with its subresource; empty where it was about none."""
    what = request.get("objectRef", {})
    return "/".join(filter(None, (what.get("resource"), what.get("subresource"))))


def refused(cp: ControlPlane) -> set[tuple[str, str, str]]:
    """Account, verb and address of every request for which a right was missing."""
    return {
        (account(request), request["verb"], request["requestURI"])
        for request in requests(cp)
        if request.get("responseStatus", {}).get("code") in (401, 403)
    }
