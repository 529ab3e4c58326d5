from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
from cardwise.model import QuotaBound
from cardwise.names import QUOTA_CORES, QUOTA_MEMORY
from cardwise.wire.quotas import bound_of, is_scoped, merge, warnings_of

bounds = st.builds(
    QuotaBound,
    memory_mib=st.none() | st.integers(0, 5),
    cores=st.none() | st.integers(0, 5),
)


@pytest.mark.parametrize(
    ("quota", "bound"),
    [
        pytest.param(build.quota(gpumem=24000), QuotaBound(memory_mib=24000), id="memory alone"),
        pytest.param(build.quota(gpucores=150), QuotaBound(cores=150), id="cores alone"),
        pytest.param(
            build.quota(gpumem=1000, gpucores=30),
            QuotaBound(memory_mib=1000, cores=30),
            id="memory and cores",
        ),
        pytest.param(build.quota(gpumem=0), QuotaBound(memory_mib=0), id="0 is a bound"),
        pytest.param(build.quota(), QuotaBound(), id="no bound of ours"),
        pytest.param(
            build.quota(hard={"requests.nvidia.com/gpu": "4", "cpu": "1"}),
            QuotaBound(),
            id="other resources",
        ),
        pytest.param(build.quota(gpumem="16Gi"), QuotaBound(), id="unreadable is no bound"),
        pytest.param(build.quota(hard={QUOTA_MEMORY: None}), QuotaBound(), id="a null is no bound"),
        pytest.param({}, QuotaBound(), id="an empty object"),
        pytest.param({"spec": []}, QuotaBound(), id="a list for the spec"),
        pytest.param({"spec": {"hard": "x"}}, QuotaBound(), id="text for the bounds"),
        pytest.param(
            {"spec": {"hard": {QUOTA_CORES: {}, QUOTA_MEMORY: []}}}, QuotaBound(), id="no values"
        ),
    ],
)
def test_the_bounds_of_a_quota(quota: dict[str, Any], bound: QuotaBound) -> None:
    assert bound_of(quota) == bound


@pytest.mark.parametrize(
    ("spec", "scoped"),
    [
        pytest.param({}, False, id="no scopes"),
        pytest.param({"scopes": []}, False, id="an empty list"),
        pytest.param({"scopes": ["BestEffort"]}, True, id="a scope"),
        pytest.param({"scopeSelector": {"matchExpressions": []}}, True, id="a selector"),
        pytest.param({"scopeSelector": {}}, False, id="an empty selector"),
        pytest.param({"scopes": 1, "scopeSelector": "x"}, False, id="wrong types"),
    ],
)
def test_whether_a_quota_is_scoped(spec: dict[str, Any], scoped: bool) -> None:
    assert is_scoped({"spec": spec}) is scoped


@pytest.mark.parametrize(
    ("quota", "parts"),
    [
        pytest.param(build.quota(gpumem=1000, gpucores=0), [], id="nothing to say"),
        pytest.param(build.quota(scopes=["Terminating"]), [], id="scoped, but not about us"),
        pytest.param(
            build.quota("team", gpumem="16Gi"),
            [["team/quota", QUOTA_MEMORY, '"16Gi"', "binary suffix Gi", "(MiB), e.g. 16384"]],
            id="a binary suffix, with what was meant",
        ),
        pytest.param(
            build.quota(gpucores="1500m", gpumem="many"),
            [[QUOTA_MEMORY, '"many"', "(MiB)"], [QUOTA_CORES, "percent of a card"]],
            id="both unreadable",
        ),
        pytest.param(
            build.quota(gpucores=100, scopes=["Terminating"]),
            [["default/quota", "scopes", QUOTA_CORES, "all Pods"]],
            id="a scope has no effect",
        ),
        pytest.param(
            {"spec": {"hard": {QUOTA_CORES: True}}}, [[QUOTA_CORES, "true"]], id="a truth value"
        ),
        pytest.param({"spec": {"hard": {QUOTA_CORES: None}}}, [], id="null names nothing"),
        pytest.param({"spec": None}, [], id="no spec"),
    ],
)
def test_what_has_no_effect_is_said(quota: dict[str, Any], parts: list[list[str]]) -> None:
    warnings = warnings_of(quota)

    assert len(warnings) == len(parts)
    for warning, expected in zip(warnings, parts, strict=True):
        assert [part for part in expected if part not in warning] == []


def test_a_core_bound_gives_no_advice_in_mib() -> None:
    (warning,) = warnings_of(build.quota(gpucores="16Gi"))

    assert "e.g." not in warning


@pytest.mark.parametrize(
    ("several", "lowest"),
    [
        pytest.param([], QuotaBound(), id="no quota"),
        pytest.param([QuotaBound(memory_mib=5)], QuotaBound(memory_mib=5), id="one quota"),
        pytest.param(
            [QuotaBound(memory_mib=5, cores=1), QuotaBound(memory_mib=3)],
            QuotaBound(memory_mib=3, cores=1),
            id="each bound by itself",
        ),
        pytest.param(
            [QuotaBound(cores=0), QuotaBound(cores=7)], QuotaBound(cores=0), id="0 is the lowest"
        ),
    ],
)
def test_the_lowest_bound_holds(several: list[QuotaBound], lowest: QuotaBound) -> None:
    assert merge(several) == lowest


@given(st.lists(bounds), st.integers(0, 6), st.integers(0, 6))
def test_what_the_merged_bound_allows_every_quota_allows(
    several: list[QuotaBound], memory: int, cores: int
) -> None:
    def allows(bound: QuotaBound) -> bool:
        return (bound.memory_mib is None or memory <= bound.memory_mib) and (
            bound.cores is None or cores <= bound.cores
        )

    assert allows(merge(several)) == all(map(allows, several))


@given(st.lists(bounds, max_size=4))
def test_the_order_of_quotas_is_of_no_account(several: list[QuotaBound]) -> None:
    assert merge(several) == merge(reversed(several))
    assert merge(iter(several)) == merge(several)
