"""Starts that hold at every container runtime: what each container is shown is its own."""

from typing import Any

from node.pods import SEE, container
from node.stage import Ward


def each_container_has_its_own_cards(
    ward: Ward,
    cards: dict[str, list[tuple[int, int, int]]],
    regular: list[dict[str, Any]],
    init: list[dict[str, Any]],
) -> None:
    """Start a Pod ``family``, and look at each of its containers.

    Args:
        ward: the node.
        cards: by container, init containers first: index, MiB and cores of each of its cards.
        regular: its containers, which print their variables.
        init: its init containers, likewise.
    """
    ward.book("family", ward.text(*cards.values()), regular, init=init)

    for name, shares in cards.items():
        seen = ward.saw("family", name)
        if shares:
            assert seen["NVIDIA_VISIBLE_DEVICES"] == ",".join(ward.card(i) for i, _, _ in shares)
            assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{shares[0][1]}m"
        else:
            assert not [key for key in seen if key.startswith("CUDA_")]


def twenty_at_once_get_each_its_own_card(ward: Ward) -> None:
    """Twenty Pods that ask for the same, created in one order and bound in another."""
    index = {f"p{number:02}": number * 7 % 4 for number in range(20)}
    for name in index:
        ward.wait_to_be_bound(name, [container("main", SEE, gpus=1)])
    order = sorted(index, key=lambda name: int(name[1:]) * 13 % 20)

    for name in order:
        ward.bind(name, ward.text([(index[name], 1000 + int(name[1:]), 0)]))

    for name, card in index.items():
        seen = ward.saw(name, "main", within=90)
        assert seen["NVIDIA_VISIBLE_DEVICES"] == ward.card(card), name
        assert seen["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{1000 + int(name[1:])}m"
