"""The socket and the registration, with a kubelet of our own at the other end of real gRPC."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from cardwise.agent.deviceplugin import messages, protobuf
from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.deviceplugin.plugin import Plugin
from cardwise.agent.deviceplugin.runtime import Runtime
from cardwise.agent.deviceplugin.serving import Server
from cardwise.agent.deviceplugin.telling import Teller
from fakes.nodepods import FakeNodePods
from plugin import card

pytestmark = [pytest.mark.looptime(False), pytest.mark.timeout(30)]


class Kubelet:
    """Takes registrations and calls the plugin back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[tuple[str, ...]] = []
        self.refuses = False
        self._server: grpc.aio.Server | None = None

    async def start(self, *, cleans_up: bool = True) -> None:
        """As kubelet's start does: every socket there is removed first."""
        for path in self.directory.iterdir():
            if cleans_up:
                path.unlink()
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(self._register)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)

    async def _register(self, request: bytes, context: Any) -> bytes:
        if self.refuses:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.registered.append(tuple(protobuf.texts_of(request, field)[0] for field in (1, 2, 3)))
        return b""

    @property
    def plugin(self) -> Path:
        """The socket of the plugin that registered last."""
        return self.directory / self.registered[-1][1]

    async def ask(self, method: str, request: bytes = b"") -> bytes:
        async with grpc.aio.insecure_channel(f"unix:{self.plugin}") as channel:
            call: Any = channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")
            answer: bytes = await call(request, timeout=5)
            return answer

    async def devices(self) -> AsyncIterator[list[tuple[str, str]]]:
        async with grpc.aio.insecure_channel(f"unix:{self.plugin}") as channel:
            call: Any = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
            async for answer in call(b""):
                yield [
                    (protobuf.texts_of(each, 1)[0], protobuf.texts_of(each, 2)[0])
                    for each in protobuf.messages_of(answer, 1)
                ]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 (what it waits for is not told)
            await asyncio.sleep(0.02)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    made = Kubelet(tmp_path)
    yield made
    await made.stop()


async def nobody() -> None:
    """Nobody asks what the settings say."""
    raise AssertionError


@contextlib.asynccontextmanager
async def running(directory: Path, offer: Offer) -> AsyncIterator[Server]:
    """An agent's plugin, until it is asked to end."""
    pods = FakeNodePods()
    server = Server(
        plugin=Plugin(
            node="n1",
            pods=pods,
            files=NodeFiles(plugins=directory, cdi=directory / "cdi", hami_core=directory / "vgpu"),
            teller=Teller(node="n1", pods=pods, monotonic=lambda: 0.0, counted=lambda _: None),
            offer=offer,
            runtime=Runtime(node=nobody, said=True),
        )
    )
    stop = asyncio.Event()
    run = asyncio.ensure_future(server.run(stop))
    yield server
    stop.set()
    await run


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """The plugin that runs meanwhile."""
    async with running(tmp_path, Offer()) as made:
        yield made


@pytest.fixture
async def offer(server: Server) -> Offer:
    """What it offers."""
    return server.plugin.offer


CARDS = [card(0, slots=2)]


def sockets(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("cardwise-*")}


async def test_it_registers_once_there_are_cards(kubelet: Kubelet, offer: Offer) -> None:
    await kubelet.start()
    await asyncio.sleep(0.5)
    assert kubelet.registered == []

    offer.learn(CARDS, oversold=False)

    await until(lambda: len(kubelet.registered) == 1)
    version, _, resource = kubelet.registered[0]
    assert (version, resource) == ("v1beta1", "nvidia.com/gpu")
    assert await kubelet.ask("GetDevicePluginOptions") == b"\x08\x01\x10\x01"


async def test_it_registers_with_a_kubelet_that_comes_later(kubelet: Kubelet, offer: Offer) -> None:
    offer.learn(CARDS, oversold=False)
    await asyncio.sleep(0.5)

    await kubelet.start()

    await until(lambda: bool(kubelet.registered))
    assert len(kubelet.registered) == 1


async def test_the_socket_of_a_kubelet_that_was_killed_costs_no_time(
    kubelet: Kubelet, offer: Offer, caplog: pytest.LogCaptureFixture
) -> None:
    """After a refusal it would pause, and miss the first Pods of the next kubelet.

    Red: ``run`` without ``_listens``.
    """
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(kubelet.directory / "kubelet.sock"))
    offer.learn(CARDS, oversold=False)
    await asyncio.sleep(0.5)
    assert caplog.messages == []
    assert sockets(kubelet.directory) == set()

    await kubelet.start()

    await until(lambda: len(kubelet.registered) == 1)


async def test_it_registers_again_with_a_kubelet_that_restarted(
    kubelet: Kubelet, offer: Offer
) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)

    await kubelet.stop()
    await kubelet.start()

    await until(lambda: len(kubelet.registered) == 2)
    assert await kubelet.ask("Allocate") == b""
    await asyncio.sleep(0.5)
    assert len(kubelet.registered) == 2


async def test_it_registers_again_though_kubelet_left_its_socket(
    kubelet: Kubelet, offer: Offer
) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)

    await kubelet.stop()
    await kubelet.start(cleans_up=False)

    await until(lambda: len(kubelet.registered) > 1)
    assert len(kubelet.registered) == 2


async def test_it_registers_again_where_its_socket_went(kubelet: Kubelet, offer: Offer) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)

    kubelet.plugin.unlink()

    await until(lambda: len(kubelet.registered) == 2)
    assert await kubelet.ask("Allocate") == b""


async def test_it_registers_again_where_kubelet_ends_its_watch(
    kubelet: Kubelet, offer: Offer
) -> None:
    """Older kubelets do when the agent that this one replaces ends, and take all slots away.

    Red: ``_Line.dropped`` that stays False.
    """
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)
    watch = kubelet.devices()
    await anext(watch)

    await watch.aclose()

    await until(lambda: len(kubelet.registered) == 2)
    assert await kubelet.ask("Allocate") == b""
    assert len({endpoint for _, endpoint, _ in kubelet.registered}) == 2, "a name is used once"


async def test_two_agents_of_a_node_leave_each_other_alone(
    kubelet: Kubelet, tmp_path: Path
) -> None:
    """While a new version is rolled out, one starts beside the other, which ends then.

    Red: a fixed name for the socket.
    """
    await kubelet.start()
    async with running(tmp_path, Offer(tuple(CARDS))):
        await until(lambda: len(kubelet.registered) == 1)
        old = kubelet.plugin
        async with running(tmp_path, Offer(tuple(CARDS))):
            await until(lambda: len(kubelet.registered) == 2)
            await asyncio.sleep(0.5)
            assert len(kubelet.registered) == 2
            assert sockets(tmp_path) == {old.name, kubelet.plugin.name}
            async with running(tmp_path, Offer()):
                pass
            assert await kubelet.ask("Allocate") == b""
    assert sockets(tmp_path) == set()


async def test_the_socket_of_an_agent_that_was_killed_is_removed(
    kubelet: Kubelet, offer: Offer, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / "cardwise-0.sock"))
    await kubelet.start(cleans_up=False)

    offer.learn(CARDS, oversold=False)

    await until(lambda: len(kubelet.registered) == 1)
    assert sockets(tmp_path) == {kubelet.plugin.name}


async def test_a_socket_that_can_not_be_made_is_tried_again(
    kubelet: Kubelet, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubelet.start()
    taken = kubelet.directory / "cardwise-taken.sock"
    taken.mkdir()
    monkeypatch.setattr(secrets, "token_hex", lambda _: "taken")
    offer.learn(CARDS, oversold=False)
    await asyncio.sleep(0.5)
    assert kubelet.registered == []

    taken.rmdir()

    await until(lambda: len(kubelet.registered) == 1)


async def test_it_is_ready_once_kubelet_knows_it(kubelet: Kubelet, server: Server) -> None:
    """A roll-out ends the old agent when the new one is ready.

    Red: ``not_ready`` that does not ask ``_known``.
    """
    offer = server.plugin.offer
    offer.learn(CARDS, oversold=False)
    assert server.not_ready() == "", "a machine without kubelet"
    kubelet.refuses = True
    await kubelet.start()
    await until(lambda: "not now" in server.not_ready())

    kubelet.refuses = False

    await until(lambda: server.not_ready() == "")
    assert len(kubelet.registered) == 1
    await kubelet.stop()
    await kubelet.start(cleans_up=False)
    assert server.not_ready() == "kubelet does not know the device plugin yet"


async def test_a_kubelet_that_refuses_is_asked_again(kubelet: Kubelet, offer: Offer) -> None:
    kubelet.refuses = True
    await kubelet.start()
    offer.learn(CARDS, oversold=False)
    await asyncio.sleep(0.5)

    kubelet.refuses = False

    await until(lambda: bool(kubelet.registered))
    assert len(kubelet.registered) == 1


async def test_kubelet_is_told_of_a_card_that_turns_sick_and_well(
    kubelet: Kubelet, offer: Offer
) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)
    told = kubelet.devices()
    assert await anext(told) == [("GPU-a-0", "Healthy"), ("GPU-a-1", "Healthy")]

    offer.learn([card(0, slots=2, healthy=False)], oversold=False)
    assert await anext(told) == [("GPU-a-0", "Unhealthy"), ("GPU-a-1", "Unhealthy")]

    offer.learn(CARDS, oversold=False)
    assert await anext(told) == [("GPU-a-0", "Healthy"), ("GPU-a-1", "Healthy")]


async def test_a_refusal_reaches_kubelet_as_a_sentence(kubelet: Kubelet, offer: Offer) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)

    with pytest.raises(grpc.aio.AioRpcError, match=r"checkpoint|No such file") as refused:
        await kubelet.ask("PreStartContainer", protobuf.text(1, "GPU-a-0"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION

    with pytest.raises(grpc.aio.AioRpcError, match="cut off") as nonsense:
        await kubelet.ask("Allocate", b"\x0a")
    assert nonsense.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_kubelet_gets_a_token_and_a_choice(kubelet: Kubelet, offer: Offer) -> None:
    offer.learn(CARDS, oversold=False)
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 1)

    answer = await kubelet.ask("Allocate", protobuf.message(1, protobuf.text(1, "GPU-a-0")))
    (container,) = protobuf.messages_of(answer, 1)
    assert messages.answered(container).cdi_devices[0].startswith("cardwise.dev/card=")

    asked = protobuf.message(1, protobuf.texts(1, ["GPU-a-1"]) + protobuf.number(3, 1))
    chosen = await kubelet.ask("GetPreferredAllocation", asked)
    assert chosen == messages.preferred([["GPU-a-1"]])
