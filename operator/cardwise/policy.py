"""Parse a policy chain: ``"mutex, binpack"`` → filters and sort keys (docs/placement.md section 2).

Below engine and wire, because both speak of policies: wire when it reads a Pod, the engine when it
places one, admission when it warns of a name that nobody knows.
"""

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from cardwise.model import Policy
from cardwise.names import PolicyName
from cardwise.settings import Scheduling

SORT_KEYS = (PolicyName.BINPACK, PolicyName.SPREAD, PolicyName.NUMA)
_BY_TEXT = {name.value: name for name in PolicyName}
_SHORT = 128
"""Characters of a chain that is remembered; all known names together have fewer."""
_BETWEEN = re.compile(r"[^a-z-]+")
_ALONE = {
    PolicyName.BINPACK: (PolicyName.BINPACK, PolicyName.NUMA),
    PolicyName.SPREAD: (PolicyName.SPREAD, PolicyName.NUMA),
    PolicyName.MUTEX: (PolicyName.SPREAD, PolicyName.NUMA),
    PolicyName.TOPOLOGY_AWARE: (PolicyName.SPREAD, PolicyName.NUMA),
    PolicyName.NUMA: (PolicyName.NUMA,),
}
"""Sort keys of a chain of one name: as before chains existed, score first, then the lower NUMA
node (section 2, rule 6)."""


@dataclass(frozen=True, slots=True)
class ParsedPolicy:
    """What a text came to, and what of it had no effect."""

    policy: Policy
    unknown: tuple[str, ...] = ()
    """Names that nobody knows, as written."""
    disabled: tuple[str, ...] = ()
    """Names that the cluster's settings switch off."""


def parse(text: str | None, scheduling: Scheduling) -> ParsedPolicy:
    """Read a Pod's chain; where nothing known is in it, the cluster's ``cardPolicy`` stands in.

    Never fails: a name that nobody knows has no effect and is handed back to be told.
    """
    written = text or ""
    return (_parse_short if len(written) <= _SHORT else _parse)(written, scheduling)


def _parse(text: str, scheduling: Scheduling) -> ParsedPolicy:
    names, unknown, disabled = _known(text, scheduling)
    if not names:
        names, _, _ = _known(scheduling.cardPolicy, scheduling)
    return ParsedPolicy(_policy(names or [PolicyName.SPREAD]), tuple(unknown), tuple(disabled))


_parse_short = lru_cache(maxsize=1024)(_parse)
"""Thousands of Pods have one of a few chains."""


def nearest(name: str) -> str | None:
    """The known name that a misspelt one most likely means, or None when none is near.

    Several names with another mark than a comma between them mean all of these: ``mutex,binpack``.
    """
    several = dict.fromkeys(_BETWEEN.split(name.strip().lower()))
    if len(several) > 1 and several.keys() <= _BY_TEXT.keys():
        return ",".join(several)
    near = difflib.get_close_matches(name.strip().lower(), list(_BY_TEXT), n=1, cutoff=0.6)
    return near[0] if near else None


def _known(text: str, scheduling: Scheduling) -> tuple[list[PolicyName], list[str], list[str]]:
    """Split a chain into names in force, unknown and disabled ones; the first of equals stays."""
    words = dict.fromkeys(word for part in text.split(",") if (word := part.strip()))
    known: list[PolicyName] = []
    unknown: list[str] = []
    disabled: list[str] = []
    for word in words:
        name = _BY_TEXT.get(word)
        if name is None:
            unknown.append(word)
        elif name is PolicyName.TOPOLOGY_AWARE and not scheduling.topologyAware.enabled:
            disabled.append(word)
        else:
            known.append(name)
    return known, unknown, disabled


def _policy(names: list[PolicyName]) -> Policy:
    """Put known names into force: filters whatever their place, sort keys in written order."""
    if len(names) == 1:
        keys = _ALONE[names[0]]
    else:
        keys = tuple(name for name in names if name in SORT_KEYS) or (PolicyName.SPREAD,)
    return Policy(
        mutex=PolicyName.MUTEX in names,
        topology_aware=PolicyName.TOPOLOGY_AWARE in names,
        keys=keys,
        names=tuple(names),
    )
