"""GPUNodes without a cluster: ``ports.GPUNodeStore`` in memory."""

import copy
from typing import Any

from cardwise.errors import ApiError

Json = dict[str, Any]


class FakeGPUNodes:
    """What an API server would hold, the calls it got, and failures to come.

    Server-side apply is followed as far as one manager can see: its own keys of the status are
    replaced, the keys of others stay.
    """

    def __init__(self, *documents: Json) -> None:
        self.documents = {document["metadata"]["name"]: document for document in documents}
        self.calls: list[str] = []
        self.applied: list[Json] = []
        self.failures: list[ApiError] = []
        """Raised by the next calls, one each."""
        self._keys: dict[tuple[str, str], set[str]] = {}

    async def get(self, name: str) -> Json | None:
        self._called("get")
        return copy.deepcopy(self.documents.get(name))

    async def create(self, name: str) -> None:
        self._called("create")
        self.documents.setdefault(name, {"metadata": {"name": name}})

    async def apply_status(self, name: str, status: Json, manager: str) -> Json | None:
        self._called("apply")
        document = self.documents.get(name)
        if document is None:
            return None
        self.applied.append(copy.deepcopy(status))
        held = document.setdefault("status", {})
        for key in self._keys.get((name, manager), set()) - status.keys():
            del held[key]
        held.update(copy.deepcopy(status))
        self._keys[name, manager] = set(status)
        return copy.deepcopy(document)

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.failures:
            raise self.failures.pop(0)
