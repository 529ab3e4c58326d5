"""The plugin on files and a fake cluster: what it waits for, writes, tells and removes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import build
from cardwise import names
from cardwise.agent.deviceplugin import checkpoint, handover
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.deviceplugin.messages import Preference
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.deviceplugin.plugin import Plugin, StartRefused
from cardwise.agent.deviceplugin.runtime import Runtime
from cardwise.agent.deviceplugin.telling import Teller
from cardwise.errors import ApiError
from fakes.nodepods import FakeNodePods
from plugin import card, checkpoint_text, entry, uid

GONE = ApiError(None, "no answer")
TEXT = "GPU-a,NVIDIA,1000,0:;"


def pod(name: str = "p", text: str | None = TEXT, **fields: Any) -> build.Json:
    return build.pod(name, node="n1", phase="Pending", allocated=text, **fields)


class Bench:
    """A plugin, and what is around it."""

    def __init__(self, place: Path, *pods: build.Json) -> None:
        self.pods = FakeNodePods(*pods)
        self.files = NodeFiles(
            plugins=place / "plugins",
            cdi=place / "cdi",
            hami_core=place / "vgpu",
            lock=place / "lock",
        )
        self.files.plugins.mkdir()
        self.moment = 0.0
        self.counted: list[str] = []
        self.teller = Teller(
            node="n1",
            pods=self.pods,
            monotonic=lambda: self.moment,
            counted=self.counted.append,
            now=lambda: "now",
        )
        self.offer = Offer(cards=(card(0), card(1)))
        self.version = "containerd://2.1.0"
        self.runtime = Runtime(node=self.node)
        self.plugin = Plugin(
            node="n1",
            pods=self.pods,
            files=self.files,
            teller=self.teller,
            offer=self.offer,
            runtime=self.runtime,
        )

    async def node(self) -> build.Json:
        if self.pods.failures:
            raise self.pods.failures.pop(0)
        return {"status": {"nodeInfo": {"containerRuntimeVersion": self.version}}}

    def kubelet_gave(self, *entries: Entry) -> None:
        (self.files.plugins / checkpoint.FILE).write_bytes(checkpoint_text(entries))

    def cards(self, name: str = "p") -> dict[str, str]:
        """The cards of each token, by the Pod's CDI spec."""
        spec = orjson.loads((self.files.cdi / f"cardwise-{uid(name)}.json").read_bytes())
        return {
            device["name"]: device["containerEdits"]["env"][0].partition("=")[2]
            for device in spec["devices"]
        }

    async def start(self, *ids: str) -> None:
        await self.plugin.start(frozenset(ids or ("GPU-a-0",)))
        await self.teller.finish()

    async def refused(self, *ids: str) -> str:
        with pytest.raises(StartRefused) as caught:
            await self.start(*ids)
        await self.teller.finish()
        return str(caught.value)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, pod())
    made.kubelet_gave(entry())
    yield made
    assert not list(tmp_path.rglob("*.partial"))


async def test_a_start_writes_the_spec_and_the_phase(bench: Bench) -> None:
    await bench.start()

    assert bench.cards() == {"t-p-app": "GPU-a"}
    assert bench.pods.phases == [("p", "success")]
    assert bench.pods.events == []
    assert bench.counted == ["started"]


async def test_a_second_start_asks_nobody(bench: Bench) -> None:
    await bench.start()
    bench.pods.documents.clear()
    bench.offer.learn((), oversold=False)
    before = bench.pods.lists

    await bench.start()

    assert bench.pods.lists == before


async def test_tokens_that_are_not_in_the_spec_make_it_a_first_start(bench: Bench) -> None:
    await bench.start()
    bench.kubelet_gave(entry(cdi=(handover.cdi_name("another"),)))

    await bench.start()

    assert bench.cards() == {"another": "GPU-a"}


async def test_a_spec_that_is_spoilt_is_written_anew(bench: Bench) -> None:
    await bench.start()
    (bench.files.cdi / f"cardwise-{uid('p')}.json").write_bytes(b"{")

    await bench.start()

    assert bench.cards() == {"t-p-app": "GPU-a"}


async def test_a_start_waits_for_the_api_server(bench: Bench) -> None:
    bench.pods.failures = [GONE] * 5

    await bench.start()

    assert bench.cards() == {"t-p-app": "GPU-a"}


async def test_a_start_waits_for_the_cards(bench: Bench) -> None:
    bench.offer.learn((), oversold=False)

    await starts_once_all_is_known(bench)


async def test_a_start_waits_for_what_an_administrator_set(bench: Bench) -> None:
    """The card may be smaller by it. Red: ``_known`` without ``offer.settled``."""
    bench.offer.learn([card(0)], oversold=False, settled=False)

    await starts_once_all_is_known(bench)


async def starts_once_all_is_known(bench: Bench) -> None:
    starting = asyncio.ensure_future(bench.start())
    await asyncio.sleep(3)
    assert not starting.done()

    bench.offer.learn([card(0)], oversold=False)

    await starting
    assert bench.cards() == {"t-p-app": "GPU-a"}


async def test_a_start_gives_up_before_kubelet_does(bench: Bench) -> None:
    bench.pods.failures = [GONE] * 1000
    loop = asyncio.get_running_loop()
    began = loop.time()

    told = await bench.refused()

    assert "neither the API server nor the driver" in told
    assert loop.time() - began < 30
    assert bench.files.begun() == frozenset()


async def test_a_refusal_is_told_on_the_pod(bench: Bench) -> None:
    bench.pods.documents[:] = [pod(text="GPU-a,NVIDIA,99999,0:;")]

    told = await bench.refused()

    assert told.startswith("CardOverbooked: GPU 0 (GPU-a): 0 + 99999 MiB are booked of 15360")
    assert bench.pods.phases == [("p", "failed")]
    (event,) = bench.pods.events
    assert event["reason"] == "CardOverbooked"
    assert event["type"] == "Warning"
    assert event["note"].startswith("n1: GPU 0 (GPU-a)")
    assert event["reportingController"] == "cardwise.dev/agent"
    assert event["regarding"]["uid"] == uid("p")
    assert bench.files.begun() == frozenset()


async def test_the_same_refusal_is_told_once_a_minute(bench: Bench) -> None:
    bench.pods.documents[:] = [pod(text=None)]
    for moment in (0, 30, 59, 60, 61):
        bench.moment = moment
        await bench.refused()

    assert len(bench.pods.events) == 2

    bench.pods.documents[:] = [pod(text=";")]
    await bench.refused()

    assert len(bench.pods.events) == 3
    assert bench.counted == ["AllocationMismatch"] * 3


async def test_a_refused_pod_starts_once_there_is_room(bench: Bench) -> None:
    big = "GPU-a,NVIDIA,10000,0:;"
    bench.pods.documents[:] = [
        pod(text=big, annotations={names.BIND_TIME: "2"}),
        pod("z", text=big, annotations={names.BIND_TIME: "1"}),
    ]
    assert "before it: default/z" in await bench.refused()

    del bench.pods.documents[1]

    await bench.start()
    assert [phase for _, phase in bench.pods.phases] == ["failed", "success"]


async def test_the_phase_is_written_only_where_it_is_another(bench: Bench) -> None:
    bench.pods.documents[:] = [pod(annotations={names.BIND_PHASE: "success"})]

    await bench.start()

    assert bench.pods.phases == []


async def test_a_start_does_not_fail_of_what_can_not_be_told(bench: Bench) -> None:
    bench.pods.refuses_writes = True

    await bench.start()

    assert bench.cards() == {"t-p-app": "GPU-a"}


async def test_of_two_starts_at_once_that_do_not_fit_together_one_is_refused(bench: Bench) -> None:
    big = "GPU-a,NVIDIA,10000,0:;"
    bench.pods.documents[:] = [pod(text=big), pod("q", text=big)]
    bench.pods.silent_seconds = 0.1
    bench.kubelet_gave(entry("p", "app", "GPU-a-0"), entry("q", "app", "GPU-a-1"))

    results = await asyncio.gather(
        bench.start("GPU-a-1"), bench.start("GPU-a-0"), return_exceptions=True
    )

    assert [isinstance(each, StartRefused) for each in results] == [True, False]
    assert bench.files.begun() == {uid("p")}


async def test_a_start_counts_those_that_were_let_start_while_it_waited(bench: Bench) -> None:
    """By the time of binding ``p`` is first; but ``q`` was judged before ``p`` was there."""
    big = "GPU-a,NVIDIA,10000,0:;"
    late = pod(text=big, annotations={names.BIND_TIME: "1"})
    bench.pods.documents[:] = [pod("q", text=big, annotations={names.BIND_TIME: "2"})]
    bench.kubelet_gave(entry("p", "app", "GPU-a-0"), entry("q", "app", "GPU-a-1"))
    bench.pods.silent_seconds = 1.0
    first = asyncio.ensure_future(bench.start("GPU-a-1"))
    await asyncio.sleep(0.1)
    bench.pods.documents.append(late)
    bench.pods.silent_seconds = 0.0

    assert "before it: default/q" in await bench.refused("GPU-a-0")
    await first
    assert bench.files.begun() == {uid("q")}


@pytest.mark.parametrize("content", [None, b"{", checkpoint_text([])])
async def test_a_start_that_nobody_can_tell_is_refused(bench: Bench, content: bytes | None) -> None:
    file = bench.files.plugins / checkpoint.FILE
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    assert "checkpoint" in await bench.refused()


async def test_a_spec_that_can_not_be_written_is_no_start(bench: Bench) -> None:
    bench.files.cdi.write_text("a file where the directory should be")

    assert "the CDI spec is not written" in await bench.refused()
    bench.files.cdi.unlink()


# --- Allocate and GetPreferredAllocation ----------------------------------------------------------


async def test_every_container_gets_a_token_of_its_own(bench: Bench) -> None:
    await bench.runtime.look()
    bench.pods.failures = [GONE]

    answers = await bench.plugin.allocate([("GPU-a-0",), ("GPU-a-0",)])

    tokens = {name for answer in answers for name in answer.cdi_devices}
    assert len(tokens) == 2
    assert all(answer.envs == {"NVIDIA_VISIBLE_DEVICES": "void"} for answer in answers)
    assert bench.pods.lists == 0


async def test_allocate_waits_until_the_runtime_is_known(bench: Bench) -> None:
    bench.version = "containerd://1.6.20"
    bench.kubelet_gave()
    bench.pods.failures = [GONE] * 5

    (answer,) = await bench.plugin.allocate([("GPU-a-0",)])

    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"


async def test_a_runtime_that_nobody_tells_of_gets_a_token_and_the_start_asks_again(
    bench: Bench,
) -> None:
    bench.version = "containerd://1.6.20"
    bench.pods.failures = [GONE] * 1000
    loop = asyncio.get_running_loop()
    began = loop.time()

    (answer,) = await bench.plugin.allocate([("GPU-a-0",)])
    assert loop.time() - began <= 20
    bench.pods.failures.clear()
    bench.kubelet_gave(entry(answer=answer))

    assert "its cards are told by CDI, which the runtime lacks" in await bench.refused()


# --- without CDI ----------------------------------------------------------------------------------


@pytest.fixture
async def old(bench: Bench) -> Bench:
    """A node whose runtime has no CDI, where kubelet gave nothing yet."""
    bench.version = "containerd://1.6.20"
    bench.kubelet_gave()
    await bench.runtime.look()
    return bench


async def allocate(bench: Bench) -> Entry:
    """Pod ``p`` is admitted, whoever the answer is for."""
    (answer,) = await bench.plugin.allocate([("GPU-a-0",)])
    made = entry(answer=answer)
    bench.kubelet_gave(made)
    return made


async def test_without_cdi_kubelet_is_told_the_cards(old: Bench) -> None:
    made = await allocate(old)

    await old.start()

    assert made.answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"
    assert old.pods.phases == [("p", "success")]
    assert old.files.tokens(uid("p")) == set(made.tokens)
    assert old.files.begun() == {uid("p")}


async def test_without_cdi_a_second_start_asks_nobody(old: Bench) -> None:
    await allocate(old)
    await old.start()
    old.pods.documents.clear()
    before = old.pods.lists

    await old.start()

    assert old.pods.lists == before


async def test_without_cdi_a_wrong_guess_is_refused_and_told(old: Bench) -> None:
    other = pod("q", "GPU-b,NVIDIA,1000,0:;", resource_version="0")
    old.pods.documents.append(other)
    await allocate(old)
    old.pods.documents.remove(other)

    told = await old.refused()

    assert told.startswith("AllocationMismatch: container app: kubelet was told")
    (event,) = old.pods.events
    assert "NVIDIA_VISIBLE_DEVICES=GPU-b, and the Pod's allocation says GPU-a" in event["note"]
    assert old.files.begun() == frozenset()


async def test_without_cdi_allocate_gives_up_and_the_start_says_so(old: Bench) -> None:
    old.pods.failures = [GONE] * 1000
    loop = asyncio.get_running_loop()
    began = loop.time()

    made = await allocate(old)

    assert loop.time() - began <= 20
    assert made.answer.envs == {"NVIDIA_VISIBLE_DEVICES": "void"}
    old.pods.failures.clear()
    assert "nobody could tell its cards when kubelet asked" in await old.refused()


async def test_without_cdi_a_checkpoint_that_can_not_be_read_is_no_failure(old: Bench) -> None:
    (old.files.plugins / checkpoint.FILE).unlink()

    made = await allocate(old)

    assert made.answer.envs["NVIDIA_VISIBLE_DEVICES"] == "void"


async def test_a_start_by_cdi_is_refused_once_the_runtime_has_none(bench: Bench) -> None:
    """containerd was changed under Pods that were let start."""
    await bench.start()
    bench.version = "containerd://1.6.20"
    await bench.plugin.sweep()

    assert "which the runtime lacks" in await bench.refused()


async def test_a_start_without_cdi_goes_on_once_the_runtime_has_it(old: Bench) -> None:
    await allocate(old)
    old.version = "containerd://2.1.0"
    await old.plugin.sweep()

    await old.start()

    assert old.pods.phases == [("p", "success")]


async def test_without_cdi_a_containers_directory_is_found_by_its_token(old: Bench) -> None:
    old.files.hami_core.mkdir()
    (old.files.hami_core / "libvgpu.so").touch()
    made = await allocate(old)
    await old.start()

    own = old.files.hami_core / "containers" / f"{uid('p')}_app"
    told = own.parent / made.tokens[0]
    assert made.answer.mounts[0].host == str(told)
    assert told.readlink().name == own.name
    assert own.is_dir()
    old.pods.documents.clear()
    await old.plugin.sweep()
    assert not list(own.parent.iterdir())


ASKED = Preference(available=("GPU-a-0", "GPU-b-0"), must_include=(), size=1)


async def test_the_booked_card_is_preferred(bench: Bench) -> None:
    bench.kubelet_gave()
    bench.pods.documents[:] = [pod(text="GPU-b,NVIDIA,1000,0:;")]

    assert await bench.plugin.prefer([ASKED]) == [["GPU-b-0"]]


async def test_a_preference_never_fails_and_never_takes_long(bench: Bench) -> None:
    bench.pods.silent_seconds = 1000
    loop = asyncio.get_running_loop()
    began = loop.time()

    assert await bench.plugin.prefer([ASKED]) == [["GPU-a-0"]]
    assert loop.time() - began < 5

    bench.pods.silent_seconds = 0
    (bench.files.plugins / checkpoint.FILE).unlink()
    assert await bench.plugin.prefer([ASKED]) == [["GPU-a-0"]]


# --- files ----------------------------------------------------------------------------------------


async def test_what_was_made_for_a_pod_goes_with_it(bench: Bench) -> None:
    bench.files.hami_core.mkdir()
    (bench.files.hami_core / "libvgpu.so.v2").touch()
    await bench.start()
    cache = bench.files.hami_core / "containers" / f"{uid('p')}_app"
    assert cache.stat().st_mode & 0o777 == 0o777
    (cache / "a-file").touch()

    await bench.plugin.sweep()
    assert bench.files.begun() == {uid("p")}
    bench.pods.documents.clear()
    await bench.plugin.sweep()

    assert bench.files.begun() == frozenset()
    assert not cache.exists()


async def test_what_can_not_be_removed_keeps_nothing_else_and_is_tried_again(bench: Bench) -> None:
    bench.pods.documents.append(pod("q"))
    bench.kubelet_gave(entry("p", "app", "GPU-a-0"), entry("q", "app", "GPU-a-1"))
    await bench.start("GPU-a-0")
    await bench.start("GPU-a-1")
    bench.pods.documents.clear()
    odd = bench.files.hami_core / "containers" / f"{uid('p')}_app"
    odd.parent.mkdir(parents=True)
    odd.write_text("no directory")

    with pytest.raises(NotADirectoryError):
        await bench.plugin.sweep()
    assert bench.files.begun() == {uid("p")}
    odd.unlink()
    await bench.plugin.sweep()

    assert bench.files.begun() == frozenset()


async def test_nothing_is_removed_while_the_api_server_does_not_answer(bench: Bench) -> None:
    await bench.start()
    bench.pods.documents.clear()
    bench.pods.failures = [GONE]

    with pytest.raises(ApiError):
        await bench.plugin.sweep()

    assert bench.files.begun() == {uid("p")}


async def test_other_specs_in_the_directory_are_left_alone(bench: Bench) -> None:
    await bench.start()
    other = bench.files.cdi / "nvidia.yaml"
    other.touch()
    bench.pods.documents.clear()

    await bench.plugin.sweep()

    assert [path.name for path in bench.files.cdi.iterdir()] == ["nvidia.yaml"]


def test_hami_core_is_found_with_a_version_or_without(bench: Bench) -> None:
    assert bench.files.library().file == ""
    bench.files.hami_core.mkdir()
    (bench.files.hami_core / "libvgpu.so").touch()
    assert bench.files.library().file == "libvgpu.so"
    (bench.files.hami_core / "libvgpu.so.v2").touch()
    (bench.files.hami_core / "license").touch()
    found = bench.files.library()
    assert (found.file, found.licensed) == ("libvgpu.so.v2", True)
