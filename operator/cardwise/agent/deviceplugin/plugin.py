"""What the plugin answers to kubelet, apart from how it is asked (``serving``).

Allocate decides nothing: it answers a token. At a container's start kubelet's checkpoint tells the
Pod, the Pod's allocation tells the cards, the fence tells whether they are free; then the CDI spec
of the Pod's tokens is written, which the runtime reads a moment later. Where it is not written, the
runtime refuses to make the container: no way leads around the fence.

Where the runtime reads no CDI specs, Allocate has to tell the cards themselves, and guesses whose
they are; a start whose Pod was told another's is refused.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cardwise.agent.deviceplugin import checkpoint, choice, guess
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.files import NodeFiles
from cardwise.agent.deviceplugin.handover import NO_CARD, cdi_name, spec_text
from cardwise.agent.deviceplugin.messages import ContainerAnswer, Preference
from cardwise.agent.deviceplugin.offer import Offer
from cardwise.agent.deviceplugin.runtime import Runtime
from cardwise.agent.deviceplugin.telling import Teller
from cardwise.agent.deviceplugin.verdict import Node, Refusal, judge
from cardwise.errors import ApiError, BadBody, CardwiseError
from cardwise.names import RESOURCE_COUNT
from cardwise.ports import NodePods
from cardwise.wire.fields import at, text

_log = logging.getLogger(__name__)

START_SECONDS: Final = 25.0
"""How long the API server is waited for at a start: kubelet itself gives up after 30."""
PREFER_SECONDS: Final = 2.0
"""Likewise for a mere preference: kubelet admits no other Pod meanwhile."""
ALLOCATE_SECONDS: Final = 20.0
"""How long it is waited for where Allocate must know: kubelet admits no other Pod meanwhile."""
_PAUSE_SECONDS: Final = 0.5
_TOKEN_BYTES: Final = 16


class StartRefused(CardwiseError):
    """A container must not start now; kubelet shows the sentence, and tries again."""


@dataclass(slots=True, kw_only=True)
class Plugin:
    """One node's device plugin."""

    node: str
    pods: NodePods
    files: NodeFiles
    teller: Teller
    offer: Offer
    runtime: Runtime
    init_shrink: bool = False
    _one: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """One start at a time, so that each sees those before it."""

    async def prefer(self, asked: Sequence[Preference]) -> list[list[str]]:
        """Ids for each container that kubelet asks about.

        It never fails, because that would fail the Pod for good.
        """
        try:
            pods = await self.pods.pods(self.node, within=PREFER_SECONDS)
            entries = self._entries()
        except (ApiError, BadBody, OSError) as error:
            _log.info("kubelet's choice of slots is not steered: %s", error)
            return [choice.choose(each) for each in asked]
        return [choice.choose(each, choice.next_cards(pods, entries, each.size)) for each in asked]

    async def allocate(self, asked: Sequence[Sequence[str]]) -> list[ContainerAnswer]:
        """A token for each container; without CDI its cards, too, as far as one can guess.

        It can't fail, because that would fail the Pod for good.
        """
        tokens = [secrets.token_hex(_TOKEN_BYTES) for _ in asked]
        if self.runtime.cdi:
            return [_by_cdi(token) for token in tokens]
        pods: Sequence[dict[str, Any]] = ()
        entries: Sequence[Entry] = ()
        try:
            async with asyncio.timeout(ALLOCATE_SECONDS):
                pods, entries = await self._facts(), self._entries()
        except (BadBody, OSError) as error:  # a TimeoutError is an OSError
            _log.warning("nobody tells whose cards kubelet asks for: %s", error)
        # Where nobody told of the runtime, the start asks again.
        if self.runtime.cdi is not False:
            return [_by_cdi(token) for token in tokens]
        sizes = dict(zip(tokens, map(len, asked), strict=True))
        return guess.answers(sizes, pods, entries, self._node())

    async def start(self, ids: frozenset[str]) -> None:
        """Let the container with these device ids start, or not.

        Raises:
            StartRefused: one sentence.
        """
        try:
            entries = checkpoint.of_start(self._entries(), RESOURCE_COUNT, ids)
        except (BadBody, OSError) as error:
            _log.warning("a container is not let start: %s", error)
            raise StartRefused(str(error)) from error
        uid = entries[0].pod_uid
        tokens = {token for entry in entries for token in entry.tokens}
        # A Pod that was let start keeps its cards, and starts again while no API server answers.
        blind = self.runtime.cdi is False and any(entry.by_cdi for entry in entries)
        if tokens <= self.files.tokens(uid) and not blind:
            return
        async with self._one:
            await self._let_start(uid, entries)

    async def _let_start(self, uid: str, entries: Sequence[Entry]) -> None:
        pods = await self._known(uid)
        own = next((pod for pod in pods if _uid(pod) == uid), None)
        verdict = judge(uid, pods, entries, self._node())
        if isinstance(verdict, Refusal):
            self.teller.refused(own, verdict)
            raise StartRefused(f"{verdict.reason}: {verdict.message}")
        try:
            self.files.let_start(
                uid,
                spec_text(verdict),
                [entry.cache for entry in entries],
                aliases={
                    token: entry.cache
                    for entry in entries
                    if not entry.by_cdi
                    for token in entry.tokens
                },
            )
        except OSError as error:
            _log.warning("the CDI spec of Pod %s is not written: %s", uid, error)
            raise StartRefused(f"the CDI spec is not written: {error}") from error
        self.teller.started(own)

    async def sweep(self) -> None:
        """Remove what was made for Pods that are gone, and see whether the runtime is another.

        Raises:
            ApiError: the API server does not tell which Pods there are.
            OSError: something can't be removed.
        """
        await self.runtime.look()
        # Before the list: a Pod that is let start meanwhile may not be in it.
        begun = self.files.begun()
        if begun:
            listed = await self.pods.pods(self.node, within=START_SECONDS)
            self.files.forget(begun - {_uid(pod) for pod in listed})

    async def _known(self, uid: str) -> list[dict[str, Any]]:
        """The node's Pods, with this one among them."""
        try:
            async with asyncio.timeout(START_SECONDS):
                return await self._facts()
        except TimeoutError as error:
            raise StartRefused(
                f"neither the API server nor the driver told in time which cards Pod {uid} has"
            ) from error

    async def _facts(self) -> list[dict[str, Any]]:
        """The node's Pods, once the cards and the runtime are known, too; it never gives up."""
        complaint = ""
        while True:
            try:
                if self.runtime.cdi is None:
                    await self.runtime.look()
                pods = await self.pods.pods(self.node, within=START_SECONDS)
            except ApiError as error:
                if str(error) != complaint:
                    complaint = str(error)
                    _log.warning("kubelet waits for the API server: %s", error)
            else:
                if self.offer.cards and self.offer.settled:
                    return pods
            await asyncio.sleep(_PAUSE_SECONDS)

    def _node(self) -> Node:
        return Node(
            cards=self.offer.cards,
            oversold=self.offer.oversold,
            library=self.files.library(),
            begun=self.files.begun(),
            init_shrink=self.init_shrink,
            cdi=self.runtime.cdi is not False,
        )

    def _entries(self) -> list[Entry]:
        return checkpoint.parse(self.files.checkpoint())


def _by_cdi(token: str) -> ContainerAnswer:
    return ContainerAnswer(envs=NO_CARD, cdi_devices=(cdi_name(token),))


def _uid(pod: dict[str, Any]) -> str:
    return text(at(pod, "metadata", "uid"))
