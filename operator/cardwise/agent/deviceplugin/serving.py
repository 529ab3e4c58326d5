"""gRPC: our socket in kubelet's directory, and our registration with kubelet, kept up.

kubelet forgets its plugins and removes their sockets when it starts. There is no word of it but its
own socket, which is then another file.

Each registration has a socket of its own. kubelet knows plugins of one resource apart by their
sockets: the agent of a new version registers beside the old one, which then ends, and kubelet never
is without. By one socket for all, the end of the old one would be taken for the end of the new one.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from cardwise.agent.deviceplugin import choice, messages
from cardwise.agent.deviceplugin.messages import Options, RegisterRequest
from cardwise.agent.deviceplugin.plugin import Plugin, StartRefused
from cardwise.errors import ApiError, BadBody
from cardwise.names import RESOURCE_COUNT

_log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = "cardwise-", ".sock"
"""Of the names of our sockets."""
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
_NAME_BYTES: Final = 4
_CONNECT_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Line:
    """A socket of ours, and who serves there."""

    endpoint: str
    """The socket's name in kubelet's directory."""
    server: grpc.aio.Server
    kubelet: tuple[int, ...] = ()
    """Which kubelet took its registration."""
    dropped: bool = False
    """Whether kubelet has ended its watch on our slots: it then takes them for unusable."""


@dataclass(slots=True, kw_only=True)
class Server:
    """Serves one plugin to one kubelet."""

    plugin: Plugin
    _line: _Line | None = field(default=None, init=False)
    """None before the first registration, and while kubelet refuses one."""
    _complaint: str = field(default="", init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; a machine without kubelet is looked at now and then."""
        sweeping = asyncio.ensure_future(self._sweep())
        try:
            while not stop.is_set():
                pause = LOOK_SECONDS
                present = _identity(self._directory / KUBELET)
                if (
                    present is not None
                    and self.plugin.offer.cards
                    and not self._known(present)
                    # A kubelet that ended leaves its socket; the next one is not to be waited for.
                    and await asyncio.to_thread(_listens, self._directory / KUBELET)
                    and not await self._connect(present)
                ):
                    pause = REFUSED_SECONDS
                await _wait(stop, pause)
        finally:
            sweeping.cancel()
            await self._hang_up()
            await self.plugin.teller.finish()

    def not_ready(self) -> str:
        """Why kubelet would not start Pods with our cards; empty where it would.

        Where there is no kubelet, or no card, none is to be told of one.
        """
        present = _identity(self._directory / KUBELET)
        if present is None or not self.plugin.offer.cards or self._known(present):
            return ""
        return self._complaint or "kubelet does not know the device plugin yet"

    @property
    def _directory(self) -> Path:
        return self.plugin.files.plugins

    def _known(self, kubelet: tuple[int, ...]) -> bool:
        """Whether this kubelet has our registration, and could still call us."""
        line = self._line
        return (
            line is not None
            and line.kubelet == kubelet
            and not line.dropped
            and _identity(self._directory / line.endpoint) is not None
        )

    async def _connect(self, kubelet: tuple[int, ...]) -> bool:
        """Serve at a new socket and register it; whether kubelet took it."""
        await self._hang_up()
        await asyncio.to_thread(self._remove_dead)
        line = await self._serve()
        if line is None:
            return False
        self._line = line
        if not await self._register(line.endpoint):
            await self._hang_up()
            return False
        line.kubelet = kubelet
        return True

    async def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.server.stop(None)

    def _remove_dead(self) -> None:
        """Remove the sockets of agents that were killed; that of one that lives is left."""
        for place in self._directory.glob(f"{_PREFIX}*{_SUFFIX}"):
            if not _listens(place):
                with contextlib.suppress(OSError):
                    place.unlink()

    async def _serve(self) -> _Line | None:
        """Listen; None where no socket can be made, as where kubelet's directory just went."""
        server = grpc.aio.server()
        line = _Line(f"{_PREFIX}{secrets.token_hex(_NAME_BYTES)}{_SUFFIX}", server)
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
        handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            partial(self._list_and_watch, line)
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(messages.SERVICE, handlers),)
        )
        try:
            server.add_insecure_port(f"unix:{self._directory / line.endpoint}")
        except RuntimeError as error:
            self._complain(f"the device plugin's socket can't be made: {error}")
            return None
        await server.start()
        return line

    async def _register(self, endpoint: str) -> bool:
        request = RegisterRequest(endpoint=endpoint, resource_name=RESOURCE_COUNT, options=_OPTIONS)
        try:
            async with grpc.aio.insecure_channel(f"unix:{self._directory / KUBELET}") as channel:
                register: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                register = channel.unary_unary(messages.REGISTER)
                await register(request.encode(), timeout=REGISTER_SECONDS)
        except grpc.RpcError as error:
            self._complain(f"kubelet does not register the device plugin: {_told(error)}")
            return False
        self._complaint = ""
        _log.info("kubelet knows the device plugin of %s", RESOURCE_COUNT)
        return True

    # --- what kubelet asks ------------------------------------------------------------------------

    async def _options(self, _: bytes) -> bytes:
        return _OPTIONS.encode()

    async def _list_and_watch(self, line: _Line, _: bytes, __: Any) -> AsyncIterator[bytes]:
        try:
            while True:
                changed = self.plugin.offer.changed
                yield messages.devices(choice.devices_of(self.plugin.offer.cards))
                await changed.wait()
        finally:
            line.dropped = True

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
                _log.warning("nothing is removed of Pods that are gone: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    def _complain(self, sentence: str) -> None:
        if sentence != self._complaint:
            _log.warning("%s", sentence)
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


def _listens(path: Path) -> bool:
    """Whether a process listens on a socket; what can't be told counts as yes."""
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(_CONNECT_SECONDS)
        try:
            tried.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
    return True


def _told(error: grpc.RpcError) -> str:
    return str(error.details()) if isinstance(error, grpc.aio.AioRpcError) else str(error)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
