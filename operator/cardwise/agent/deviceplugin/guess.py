"""What Allocate answers where the runtime reads no CDI specs: the cards of the likeliest container.

kubelet does not say whom it asks for, and what it is told then holds for the container's life. So
this is a guess. It is judged at the start (``verdict``), when kubelet's checkpoint tells whose it
was.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cardwise.agent.deviceplugin import choice
from cardwise.agent.deviceplugin.checkpoint import Entry
from cardwise.agent.deviceplugin.handover import NO_CARD, TOKEN
from cardwise.agent.deviceplugin.messages import ContainerAnswer
from cardwise.agent.deviceplugin.verdict import Node, absent_cards, edits_for
from cardwise.names import RESOURCE_COUNT


def answers(
    asked: Mapping[str, int], pods: Iterable[dict[str, Any]], entries: Iterable[Entry], node: Node
) -> list[ContainerAnswer]:
    """An answer for each container that kubelet asks about.

    Args:
        asked: for a new token of each container, how many cards it asks for.
        pods: the node's, as they are now.
        entries: what kubelet has given so far.
        node: cards and HAMi-core.
    """
    pods, given = list(pods), list(entries)
    made = []
    for token, size in asked.items():
        found = choice.next_container(pods, given, size)
        if found is None or absent_cards(found.shares, node):
            made.append(untold(token))
            continue
        edits = edits_for(found.container, found.shares, node, cache=token)
        answer = ContainerAnswer(envs=edits.env, mounts=edits.mounts, annotations=_marked(token))
        made.append(answer)
        given.append(
            Entry(
                pod_uid=found.pod_uid,
                container=found.container.name,
                resource=RESOURCE_COUNT,
                ids=frozenset(),
                answer=answer,
            )
        )
    return made


def untold(token: str) -> ContainerAnswer:
    """Where nobody knows: no card at all."""
    return ContainerAnswer(envs=NO_CARD, annotations=_marked(token))


def _marked(token: str) -> dict[str, str]:
    return {TOKEN: token}
