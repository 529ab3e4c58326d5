"""Every denial and warning is explained in docs/admission.md, in the words that users see."""

import re
from pathlib import Path
from typing import Any

import pytest

import build
from cardwise.admission import admit
from cardwise.names import (
    DOOR,
    EXCLUSIVE,
    GANG,
    GANG_SIZE,
    NODE_POLICY,
    NUMA_BIND,
    RESOURCE_MEMORY,
    TOPOLOGY,
    VGPU_MODE,
)
from cardwise.settings import Settings, parse
from cardwise_webhook.review import shown

Json = dict[str, Any]
PAGE = (Path(__file__).parents[2] / "docs" / "admission.md").read_text()
SHARED: Json = {"gpus": 1, "gpumem": 1000}


def rows(title: str) -> list[str]:
    """The texts of a table, an ellipsis for what differs."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)


DENIALS, WARNINGS = rows("What each denial means"), rows("What each warning means")


def explained(sentence: str, texts: list[str]) -> list[str]:
    """The rows that a sentence is of."""
    return [
        text
        for text in texts
        if re.fullmatch(".*?".join(map(re.escape, text.split("…"))), sentence, re.DOTALL)
    ]


def spread(pod: Json) -> Json:
    """A Pod with a rule that the door of gates does not check."""
    pod["spec"]["topologySpreadConstraints"] = [{"whenUnsatisfiable": "DoNotSchedule"}]
    return pod


GATES = parse("scheduling: {door: gates}")
BOTH = parse("scheduling: {bothDoors: true}")
DENIED = [
    build.pod(gpumem="16Gi"),
    build.pod(gpus="-1"),
    build.pod(percent=101),
    build.pod(gpucores="1.5"),
    build.pod(priority="x"),
    build.pod(gpus=0, gpumem=1000),
    build.pod(**SHARED, annotations={NUMA_BIND: True}),
    build.pod(**SHARED, weights="slot=1"),
    build.pod(**SHARED, node="n1"),
    build.pod(containers=[build.container("a", gpu=1, privileged=True)]),
    build.pod(**SHARED, annotations={"k": "x" * 300_000}),
]
WARNED: list[tuple[Json, Settings]] = [
    (build.pod(**SHARED, scheduler="other"), Settings()),
    (build.pod(**SHARED, policy="binpak"), Settings()),
    (build.pod(**SHARED, policy="xyzzy"), Settings()),
    (
        build.pod(**SHARED, policy="topology-aware"),
        parse("scheduling: {topologyAware: {enabled: false}}"),
    ),
    (build.pod(**SHARED, policy="topology-aware", numa_bind="true"), Settings()),
    (build.pod(**SHARED, topology="preferred"), Settings()),
    (
        build.pod(
            **SHARED,
            annotations={NODE_POLICY: "x", VGPU_MODE: "x", EXCLUSIVE: "x", TOPOLOGY: "x"},
        ),
        Settings(),
    ),
    (build.pod(), Settings()),
    (build.pod(percent=0), Settings()),
    (build.pod(gpumem=0, gpucores=30), Settings()),
    (build.pod(gpucores=30), Settings()),
    (build.pod(**SHARED, percent=50, allocated=";"), Settings()),
    (build.pod(**SHARED, scheduler="other"), GATES),
    (build.pod(**SHARED, annotations={DOOR: "window", GANG: "g"}), Settings()),
    (build.pod(**SHARED, annotations={DOOR: "gates"}), Settings()),
    (build.pod(**SHARED, annotations={GANG_SIZE: "3"}), GATES),
    (build.pod(**SHARED, annotations={GANG: "g", GANG_SIZE: "x"}), GATES),
    (build.pod(**SHARED, annotations={RESOURCE_MEMORY: "1000"}), GATES),
    (spread(build.pod(**SHARED)), GATES),
    (spread(build.pod(**SHARED, annotations={DOOR: "gates"})), BOTH),
]


@pytest.mark.parametrize("place", range(len(DENIED)), ids=lambda place: DENIALS[place][:40])
def test_a_denial_is_explained(place: int) -> None:
    denial = admit(DENIED[place], Settings()).denial

    assert denial is not None
    assert explained(denial, DENIALS) == [DENIALS[place]]


def test_the_page_explains_no_denial_that_nobody_sees() -> None:
    assert len(DENIALS) == len(DENIED)


def test_every_warning_is_explained_and_no_other() -> None:
    told = [warning for pod, settings in WARNED for warning in admit(pod, settings).warnings]
    told += shown(tuple(f"{number}" + "x" * 250 for number in range(99)))[-1:]

    found = [explained(warning, WARNINGS) for warning in told]

    assert [told[place] for place, texts in enumerate(found) if not texts] == []
    assert {text for texts in found for text in texts} == set(WARNINGS)
