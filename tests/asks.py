"""Requests as the controller reads them from Pods, and a few kinds of them."""

from typing import Any

import build
from cardwise.model import Request
from cardwise.settings import Settings
from cardwise.wire.pods import request_of

ASKS: list[dict[str, Any]] = [
    {"gpumem": 1000},
    {"gpumem": 9000, "policy": "mutex,binpack"},
    {"gpus": 2, "node_policy": "spread"},
    {"gpumem": 1000, "annotations": {"nvidia.com/use-gpuuuid": "GPU-n1-a,GPU-n3-b"}},
]
"""What `asked` takes: without and with a filter, several cards, and cards by name."""


def asked(name: str = "p", **about: Any) -> Request:
    """The request of a Pod, as `build.pod` makes it."""
    request = request_of(build.pod(name, **about), Settings())
    assert isinstance(request, Request), request
    return request
