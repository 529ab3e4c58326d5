"""Cordons that close no card, told so that whoever wrote one sees what to write instead.

A UUID that the node does not have, and an annotation that is nearly HAMi's, have no effect; nobody
refuses either.
"""

import difflib
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from cardwise import names
from cardwise.wire.fields import annotations_of, quoted

Json = dict[str, Any]

_SPEC = "spec.cordonedCards of its GPUNode"
_ANNOTATION = f"the annotation {names.NODE_CORDON} of the Node"
_NAMED = 3
"""Absent cards that a sentence names."""
_CARDS_NAMED = 4
_KEY_CHARACTERS = 80
_DOMAINS = ("hami.io", "nvidia.com", names.API_GROUP)
_NEAR = 0.85


def misspelt_cordon(node: Json) -> str:
    """The first annotation of a Node that is meant for the cordon of cards; mostly none, empty."""
    for key in sorted(annotations_of(node)):
        domain, _, word = key.partition("/")
        if key == names.NODE_CORDON or not (domain in _DOMAINS or "cordon" in word):
            continue
        if (domain in _DOMAINS and "cordon" in word) or _is_near(key):
            return key
    return ""


def trouble_of(
    uuids: Sequence[str],
    *,
    by_spec: Collection[str],
    by_annotation: Collection[str],
    misspelt: str = "",
) -> str:
    """What of a node's cordons closes no card, and what to write; empty where each closes one.

    Args:
        uuids: of the cards that the node has.
        by_spec: whom its GPUNode's ``spec.cordonedCards`` names.
        by_annotation: whom HAMi's annotation on the Node names.
        misspelt: an annotation that `misspelt_cordon` found.
    """
    said = []
    for where, written in ((_SPEC, by_spec), (_ANNOTATION, by_annotation)):
        absent = sorted(set(written).difference(uuids))
        if absent:
            said.append(f"{where} names {_listed(absent)}, which the node does not report")
    if said:
        said[-1] += f": {_hint(uuids)}"  # a card that is away for a while may keep its cordon
    if misspelt:
        key = misspelt[:_KEY_CHARACTERS]
        said.append(f"the annotation {key} of the Node closes no card: write {names.NODE_CORDON}")
    return "; ".join(said)


@lru_cache(maxsize=256)  # the same few on thousands of Nodes, and each costs 50 µs
def _is_near(key: str) -> bool:
    short = key[: 2 * len(names.NODE_CORDON)]
    return bool(difflib.get_close_matches(short, [names.NODE_CORDON], n=1, cutoff=_NEAR))


def _listed(absent: Sequence[str]) -> str:
    more = len(absent) - _NAMED
    return ", ".join(map(quoted, absent[:_NAMED])) + (f" and {more} more" if more > 0 else "")


def _hint(uuids: Sequence[str]) -> str:
    cards = ", ".join(uuids[:_CARDS_NAMED]) + (", …" if len(uuids) > _CARDS_NAMED else "")
    return f"if that is a slip, write a UUID of its cards ({cards})"
