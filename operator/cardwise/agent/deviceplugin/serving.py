"""gRPC: our socket in kubelet's directory, and our registration with kubelet, kept up.

kubelet forgets its plugins and removes their sockets when it starts. There is no word of it but its
own socket, which is then another file.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from cardwise.agent.deviceplugin import choice, messages
from cardwise.agent.deviceplugin.messages import Options, RegisterRequest
from cardwise.agent.deviceplugin.plugin import Plugin, StartRefused
from cardwise.errors import ApiError, BadBody
from cardwise.names import RESOURCE_COUNT

LOG = logging.getLogger(__name__)

ENDPOINT: Final = "cardwise.sock"
KUBELET: Final = "kubelet.sock"
LOOK_SECONDS: Final = 0.2
"""Between two looks at kubelet's socket. A kubelet that starts admits Pods at once, and fails for
good those whose plugin it does not know yet."""
REGISTER_SECONDS: Final = 5.0
REFUSED_SECONDS: Final = 1.0
"""Until the next try, where kubelet did not take the registration."""
SWEEP_SECONDS: Final = 60.0
_OPTIONS: Final = Options(pre_start_required=True, get_preferred_allocation_available=True)

_Answer = Callable[[bytes], Awaitable[bytes]]


@dataclass(slots=True, kw_only=True)
class Server:
    """Serves one plugin to one kubelet."""

    plugin: Plugin
    _complaint: str = field(default="", init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; a machine without kubelet is looked at now and then."""
        sweeping = asyncio.ensure_future(self._sweep())
        server: grpc.aio.Server | None = None
        known: tuple[int, ...] | None = None
        try:
            while not stop.is_set():
                present = _identity(self._directory / KUBELET)
                ours = _identity(self._directory / ENDPOINT)
                if (
                    present is not None
                    and self.plugin.offer.cards
                    and (present != known or ours is None)
                ):
                    # Before the new one: the old one's end removes the socket's file.
                    await _end(server)
                    server = await self._serve()
                    known = present if server and await self._register() else None
                    pause = LOOK_SECONDS if known else REFUSED_SECONDS
                else:
                    pause = LOOK_SECONDS
                await _wait(stop, pause)
        finally:
            sweeping.cancel()
            await _end(server)
            await self.plugin.teller.finish()

    @property
    def _directory(self) -> Path:
        return self.plugin.files.plugins

    async def _serve(self) -> grpc.aio.Server | None:
        """Listen; None where our socket can't be made, as where kubelet's directory just went."""
        server = grpc.aio.server()
        unary: dict[str, _Answer] = {
            "GetDevicePluginOptions": self._options,
            "GetPreferredAllocation": self._prefer,
            "Allocate": self._allocate,
            "PreStartContainer": self._start,
        }
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(_guarded(answer))
            for name, answer in unary.items()
        }
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(self._list_and_watch)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(messages.SERVICE, handlers),)
        )
        try:
            server.add_insecure_port(f"unix:{self._directory / ENDPOINT}")
        except RuntimeError as error:
            self._complain(f"the device plugin's socket can't be made: {error}")
            return None
        await server.start()
        return server

    async def _register(self) -> bool:
        request = RegisterRequest(endpoint=ENDPOINT, resource_name=RESOURCE_COUNT, options=_OPTIONS)
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._directory / KUBELET}") as channel:
                register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                register = channel.unary_unary(messages.REGISTER)
                await register(request.encode(), timeout=REGISTER_SECONDS)
        except grpc.RpcError as error:
            self._complain(f"kubelet does not register the device plugin: {_told(error)}")
            return False
        self._complaint = ""
        LOG.info("kubelet knows the device plugin of %s", RESOURCE_COUNT)
        return True

    # --- what kubelet asks ------------------------------------------------------------------------

    async def _options(self, _: bytes) -> bytes:
        return _OPTIONS.encode()

    async def _list_and_watch(self, _: bytes, __: Any) -> AsyncIterator[bytes]:
        while True:
            changed = self.plugin.offer.changed
            yield messages.devices(choice.devices_of(self.plugin.offer.cards))
            await changed.wait()

    async def _prefer(self, request: bytes) -> bytes:
        return messages.preferred(await self.plugin.prefer(messages.asked_to_prefer(request)))

    async def _allocate(self, request: bytes) -> bytes:
        return messages.allocated(await self.plugin.allocate(messages.asked_to_allocate(request)))

    async def _start(self, request: bytes) -> bytes:
        await self.plugin.start(messages.about_to_start(request))
        return messages.EMPTY

    # --- beside -----------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            try:
                await self.plugin.sweep()
            except (ApiError, OSError) as error:
                LOG.warning("nothing is removed of Pods that are gone: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    def _complain(self, sentence: str) -> None:
        if sentence != self._complaint:
            LOG.warning("%s", sentence)
            self._complaint = sentence


def _guarded(answer: _Answer) -> Callable[[bytes, Any], Awaitable[bytes]]:
    """An answer whose refusals kubelet gets as a sentence."""

    async def answered(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            return await answer(request)
        except StartRefused as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except BadBody as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    return answered


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file this is; None where there is none."""
    with contextlib.suppress(OSError):
        found = path.stat()
        return (found.st_dev, found.st_ino, found.st_ctime_ns)
    return None


def _told(error: grpc.RpcError) -> str:
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else str(error)


async def _end(server: grpc.aio.Server | None) -> None:
    if server is not None:
        await server.stop(None)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
