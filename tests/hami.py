"""What HAMi writes, as a cluster that it serves shows it: Nodes, and Pods that it placed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import build
from cardwise import names

Json = dict[str, Any]


def device(index: int, **fields: Any) -> Json:
    """A card as HAMi's device plugin registers it: what is zero or false is left out."""
    built = {
        "id": f"GPU-{build.letter(index)}",
        "index": index,
        "count": 10,
        "devmem": 15360,
        "devcore": 100,
        "type": "NVIDIA-Tesla T4",
        "numa": index // 2,
        "mode": "hami-core",
        "health": True,
        **fields,
    }
    return {key: value for key, value in built.items() if value}


def annotations(
    cards: int | Sequence[Json] = 4, *, scores: Mapping[tuple[int, int], int] | None = None
) -> dict[str, str]:
    """HAMi's annotations on a Node.

    Args:
        cards: a number of T4s, or what the plugin registers.
        scores: of pairs of cards, by their index; None: the plugin tells of none.
    """
    listed = [device(n) for n in range(cards)] if isinstance(cards, int) else list(cards)
    written = {
        "hami.io/node-handshake": "Requesting_2026-11-29 12:00:00",
        names.NODE_REGISTER: json.dumps(listed),
    }
    if scores is not None:
        rows: dict[str, dict[str, int]] = {}
        for (one, other), score in scores.items():
            rows.setdefault(f"GPU-{build.letter(one)}", {})[f"GPU-{build.letter(other)}"] = score
        written[names.NODE_SCORE] = json.dumps(
            [{"uuid": uuid, "score": score} for uuid, score in rows.items()]
        )
    return written


def node(
    name: str = "n1", cards: int | Sequence[Json] = 4, *, gpus: int = 40, **fields: Any
) -> Json:
    """A Node that HAMi's device plugin serves; ``gpus`` is what kubelet offers."""
    built = build.node_object(name, gpus=gpus)
    built["metadata"]["uid"] = f"uid-{name}"
    built["metadata"].setdefault("annotations", {}).update(annotations(cards, **fields))
    return built


def placed(
    name: str,
    uuids: Sequence[str],
    *,
    node: str = "n1",
    when: int = 1,
    mib: int = 1000,
    **fields: Any,
) -> Json:
    """A Pod that HAMi placed: ``when`` is its bind-time."""
    words = build.allocation(*uuids, mib=mib)
    written = {
        names.TO_ALLOCATE: ";;",
        names.VGPU_NODE: node,
        names.VGPU_TIME: str(when),
        names.BIND_TIME: str(when),
        names.BIND_PHASE: names.BIND_PHASE_SUCCESS,
    }
    return build.pod(
        name,
        node=node,
        allocated=words,
        annotations={**written, **fields.pop("annotations", {})},
        scheduler="hami-scheduler",
        gpus=len(uuids),
        gpumem=mib,
        **fields,
    )
