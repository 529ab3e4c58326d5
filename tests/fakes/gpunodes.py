"""GPUNodes without a cluster: ``ports.GPUNodeStore`` in memory."""

import copy
from collections.abc import AsyncIterator
from typing import Any

from cardwise.errors import ApiError
from fakes.watches import Watches

Json = dict[str, Any]


class FakeGPUNodes:
    """What an API server would hold, the calls it got, and failures to come.

    Server-side apply is followed as far as one manager can see: its own keys of the status are
    replaced, the keys of others stay.
    """

    def __init__(self, *documents: Json) -> None:
        self.documents = {document["metadata"]["name"]: document for document in documents}
        self.has_node = True
        """Whether the Node of the one that is to be made is there."""
        self.calls: list[str] = []
        self.applied: list[Json] = []
        self.failures: list[ApiError] = []
        """Raised by the next calls, one each."""
        self._keys: dict[tuple[str, str], set[str]] = {}
        self._version = 0
        self._watches = Watches()
        for name in self.documents:
            self._changed(name)

    async def get(self, name: str) -> Json | None:
        self._called("get")
        return copy.deepcopy(self.documents.get(name))

    async def create(self, name: str) -> None:
        self._called("create")
        if name not in self.documents and self.has_node:
            self.documents[name] = {"metadata": {"name": name}}
            self._changed(name)

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
        self._changed(name)
        return copy.deepcopy(document)

    async def watch(self, name: str) -> AsyncIterator[Json | None]:
        self._called("watch")
        async for document in self._watches.watch(name, copy.deepcopy(self.documents.get(name))):
            yield document

    # --- others -----------------------------------------------------------------------------------

    def set_spec(self, name: str, spec: Json) -> None:
        """An administrator sets overrides."""
        self.documents[name]["spec"] = spec
        self._changed(name)

    def remove(self, name: str) -> None:
        """The GPUNode is deleted."""
        del self.documents[name]
        for key in [key for key in self._keys if key[0] == name]:
            del self._keys[key]
        self._tell(name, None)

    def show_again(self, document: Json) -> None:
        """Every watch tells of a state that is past, as a cache that lags does."""
        self._tell(document["metadata"]["name"], document)

    def end_watches(self, error: ApiError | None = None) -> None:
        """Every watch ends, by itself or with an error."""
        self._watches.end(error)

    def _changed(self, name: str) -> None:
        self._version += 1
        self.documents[name]["metadata"]["resourceVersion"] = str(self._version)
        self._tell(name, self.documents[name])

    def _tell(self, name: str, document: Json | None) -> None:
        self._watches.tell(name, copy.deepcopy(document))

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self.failures:
            raise self.failures.pop(0)
