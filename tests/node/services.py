"""Stand in for kube-proxy, as `services.py SERVER CA ADDRESS:PORT=SERVICE…`: a process per machine.

It listens on each address of a Service and passes a connection on to one of its ready Pods, whom it
asks the API server for at that moment; ``default/kubernetes`` is the API server itself. The
administrator's token is in TOKEN.
"""

import asyncio
import contextlib
import os
import random
import sys
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from controlplane.api import Api

_SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={}{}"
_LABEL = "kubernetes.io%2Fservice-name%3D"


class Service:
    """One Service, and who answers for it."""

    def __init__(self, api: Api, server: str, name: str) -> None:
        self._api = api
        self._server = urlsplit(server)
        self._namespace, self._name = name.split("/")

    def backend(self) -> tuple[str, int]:
        """The address of one that answers.

        Raises:
            ConnectionError: there is none.
        """
        if (self._namespace, self._name) == ("default", "kubernetes"):
            return str(self._server.hostname), int(self._server.port or 443)
        found = self._api.request("GET", _SLICES.format(self._namespace, _LABEL, self._name))
        ready = [
            (str(address), int(slice_["ports"][0]["port"]))
            for slice_ in found["items"]
            for endpoint in slice_["endpoints"] or ()
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        ]
        if not ready:
            raise ConnectionError(f"{self._name} has no Pod that is ready")
        return random.choice(ready)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on, until both sides have ended."""
        with contextlib.suppress(OSError):
            host, port = await asyncio.to_thread(self.backend)
            there, away = await asyncio.open_connection(host, port)
            await asyncio.gather(_copy(reader, away), _copy(there, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def main(server: str, ca: str, services: list[str]) -> None:
    api = Api(server, Path(ca), os.environ["TOKEN"])
    async with contextlib.AsyncExitStack() as stack:
        for each in services:
            address, _, name = each.partition("=")
            host, _, port = address.partition(":")
            service = Service(api, server, name)
            await stack.enter_async_context(await asyncio.start_server(service.serve, host, port))
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
