import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.admission import Admission, admit, json_patch, template_warnings
from cardwise.model import Request
from cardwise.names import (
    ALLOCATION_ANNOTATIONS,
    DEFAULTED,
    EXCLUSIVE,
    NODE_POLICY,
    NUMA_BIND,
    POLICY,
    TOPOLOGY,
    VGPU_MODE,
    WEIGHTS,
)
from cardwise.settings import Settings, parse
from cardwise.wire.pods import request_of

DEFAULTS = Settings()
EVERYTHING = parse(
    "admission: {runtimeClassName: nvidia, coreUtilizationPolicy: force, hideCardsFromOthers: true}"
)
GPU, CORES = "nvidia.com/gpu", "nvidia.com/gpucores"
SHARED: dict[str, Any] = {"gpu": 1, "gpumem": 1000}
"""What neither needs a default nor gives a warning."""
SHARED_POD: dict[str, Any] = {"gpus": 1, "gpumem": 1000}
PAIR: dict[str, Any] = {"gpus": 2, "gpumem": 1000}


def admitted(pod: Any, settings: Settings = DEFAULTS) -> Admission:
    before = copy.deepcopy(pod)
    admission = admit(pod, settings)
    assert pod == before, "the Pod given was changed"
    assert admission.denial is None
    return admission


def denied(pod: Any) -> str:
    before = copy.deepcopy(pod)
    admission = admit(pod, DEFAULTS)
    assert pod == before, "the Pod given was changed"
    assert admission.matched
    assert admission.pod is pod
    assert admission.denial is not None
    assert "\n" not in admission.denial
    return admission.denial


def one(pod: Any) -> build.Json:
    """The first container after admission."""
    container: build.Json = pod["spec"]["containers"][0]
    return container


def pod_of(*containers: build.Json, **more: Any) -> build.Json:
    return build.pod(containers=list(containers), **more)


def stored(pod: build.Json) -> build.Json:
    """What the API server makes of a Pod: a request of every limit that has none."""
    made = copy.deepcopy(pod)
    for group in ("initContainers", "containers"):
        for container in made["spec"].get(group, []):
            resources = container.setdefault("resources", {})
            limits, requests = resources.get("limits", {}), resources.get("requests", {})
            if limits:
                resources["requests"] = {**limits, **requests}
    return made


# Which Pods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build.pod(gpus=None, scheduler=""), id="no resource of ours"),
        pytest.param(
            build.pod(gpus=None, policy="nonsense", weights="", scheduler=""), id="a policy alone"
        ),
        pytest.param(
            build.pod(gpus=None, scheduler="", allocated="GPU-a,NVIDIA,1,1:;"),
            id="an allocation alone",
        ),
        pytest.param(
            build.pod(gpus=None, scheduler="", annotations={DEFAULTED: f"app:{GPU}=1"}),
            id="somebody's record alone",
        ),
        pytest.param(build.pod(gpus=0, scheduler="default-scheduler"), id="a count of 0"),
        pytest.param(build.pod(gpus=None, priority=1, scheduler=""), id="a priority alone"),
        pytest.param(
            build.pod(gpus="16Gi", scheduler="", labels={"hami.io/webhook": "ignore"}),
            id="opted out by its label",
        ),
        pytest.param(
            pod_of(build.container(privileged=True), scheduler=""), id="privileged without cards"
        ),
        pytest.param({}, id="an empty object"),
    ],
)
def test_other_pods_are_left_alone(pod: dict[str, Any]) -> None:
    admission = admitted(pod, EVERYTHING)

    assert admission == Admission(pod=pod, matched=False)
    assert admission.pod is pod


def test_another_label_does_not_opt_out() -> None:
    assert admitted(build.pod(labels={"hami.io/webhook": "on"})).matched


@pytest.mark.parametrize("name", ["", "default-scheduler", "hami-scheduler", "cardwise-scheduler"])
def test_the_scheduler_is_set_where_none_was_chosen(name: str) -> None:
    admission = admitted(build.pod(**SHARED_POD, scheduler=name))

    assert admission.pod["spec"]["schedulerName"] == "cardwise-scheduler"
    assert admission.matched
    assert admission.warnings == ()


def test_the_scheduler_is_set_where_the_field_is_absent() -> None:
    pod = build.pod(**SHARED_POD)
    del pod["spec"]["schedulerName"]

    assert admitted(pod).pod["spec"]["schedulerName"] == "cardwise-scheduler"


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            build.pod(gpumem=1000, gpus=None, scheduler="other"),
            id="with a request that can be read",
        ),
        pytest.param(
            build.pod(gpumem="16Gi", scheduler="other"), id="with a request that can't be read"
        ),
        pytest.param(build.pod(node="n1", scheduler="other"), id="with a node"),
    ],
)
def test_another_scheduler_is_respected_and_told(pod: dict[str, Any]) -> None:
    admission = admitted(pod, EVERYTHING)

    assert admission.pod is pod
    assert admission.matched
    (warning,) = admission.warnings
    assert warning.startswith('spec.schedulerName is "other"')


def test_a_pod_that_is_as_it_should_be_is_the_very_object() -> None:
    pod = build.pod(**SHARED_POD)

    assert admitted(pod).pod is pod


# What is added to containers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "added"),
    [
        pytest.param({"gpu": 1}, {CORES: "100"}, id="a count alone is a whole card"),
        pytest.param({"gpu": 2}, {CORES: "100"}, id="whole cards"),
        pytest.param({"gpu": 1, "percent": 100}, {CORES: "100"}, id="100 % is a whole card"),
        pytest.param({"gpu": 1, "gpumem": 0}, {CORES: "100"}, id="0 MiB is not named"),
        pytest.param({"gpu": 1, "percent": 0}, {CORES: "100"}, id="0 % is not named"),
        pytest.param(
            {"gpu": 1, "gpumem": 0, "percent": 100}, {CORES: "100"}, id="100 % beside 0 MiB"
        ),
        pytest.param({"gpu": 1, "gpumem": 1000}, {}, id="a part of the memory"),
        pytest.param({"gpu": 1, "percent": 99}, {}, id="almost all of the memory"),
        pytest.param({"gpu": 1, "gpumem": 1000, "percent": 100}, {}, id="MiB beside 100 %"),
        pytest.param({"gpu": 1, "gpucores": 30}, {}, id="cores are named"),
        pytest.param({"gpu": 1, "gpucores": 0}, {}, id="0 cores are named"),
        pytest.param({"gpumem": 1000}, {GPU: "1"}, id="memory alone"),
        pytest.param({"percent": 50}, {GPU: "1"}, id="a percentage alone"),
        pytest.param({"gpucores": 30}, {GPU: "1"}, id="cores alone"),
        pytest.param({"percent": 100}, {GPU: "1", CORES: "100"}, id="all of the memory alone"),
        pytest.param(
            {"requests": {"nvidia.com/gpumem": "1k"}}, {GPU: "1"}, id="memory in the requests"
        ),
        pytest.param({"requests": {GPU: "1"}}, {CORES: "100"}, id="a count in the requests"),
    ],
)
def test_the_limits_that_are_added(resources: dict[str, Any], added: dict[str, str]) -> None:
    before = build.container(**resources)

    after = admitted(pod_of(before)).pod

    changed = after["spec"]["containers"][0]
    limits = before["resources"].get("limits", {})
    assert changed["resources"].get("limits", {}) == {**limits, **added}
    assert changed["resources"].get("requests") == before["resources"].get("requests")
    assert after["metadata"]["annotations"].get(DEFAULTED) == (
        ",".join(f"app:{key}={value}" for key, value in added.items()) or None
    )


@pytest.mark.parametrize(
    ("resources", "settings", "limits"),
    [
        pytest.param(
            {"gpumem": 1000}, "{gpuCount: 2}", {GPU: "2", "nvidia.com/gpumem": "1k"}, id="two cards"
        ),
        pytest.param({"gpu": 1}, "{memoryMiB: 512}", {GPU: "1"}, id="a default of memory"),
        pytest.param(
            {"gpu": 1, "percent": 100},
            "{memoryMiB: 512}",
            {GPU: "1", "nvidia.com/gpumem-percentage": "100", CORES: "100"},
            id="100 % whatever the default of memory",
        ),
        pytest.param({"gpu": 1}, "{cores: 30}", {GPU: "1", CORES: "100"}, id="a default of cores"),
    ],
)
def test_the_limits_follow_the_settings(resources: Any, settings: str, limits: Any) -> None:
    after = admitted(pod_of(build.container(**resources)), parse(f"defaults: {settings}")).pod

    assert one(after)["resources"]["limits"] == limits


def test_init_containers_are_given_theirs() -> None:
    after = admitted(
        pod_of(
            build.container("app", gpu=1),
            init=[build.container("i", gpumem=1000), build.container("s", gpu=1, sidecar=True)],
        )
    ).pod

    init, sidecar = after["spec"]["initContainers"]
    assert init["resources"]["limits"] == {GPU: "1", "nvidia.com/gpumem": "1k"}
    assert sidecar["resources"]["limits"] == {GPU: "1", CORES: "100"}
    assert after["metadata"]["annotations"][DEFAULTED] == (
        "i:nvidia.com/gpu=1,s:nvidia.com/gpucores=100,app:nvidia.com/gpucores=100"
    )


@pytest.mark.parametrize("limits", [None, [], "x"], ids=str)
def test_limits_are_put_where_none_are(limits: Any) -> None:
    container = build.container(requests={GPU: "1"})
    container["resources"]["limits"] = limits

    assert one(admitted(pod_of(container)).pod)["resources"]["limits"] == {CORES: "100"}


@pytest.mark.parametrize("metadata", ["absent", None, [], {"annotations": None}], ids=str)
def test_additions_are_recorded_where_no_annotation_is(metadata: Any) -> None:
    pod = build.pod()
    pod["metadata"] = metadata
    if metadata == "absent":
        del pod["metadata"]

    assert admitted(pod).pod["metadata"]["annotations"] == {DEFAULTED: f"app:{CORES}=100"}


# When it is called again --------------------------------------------------------------------------


def again(pod: build.Json, change: Any, settings: Settings = DEFAULTS) -> build.Json:
    """Admit, store, let another webhook change the Pod, admit again."""
    between = stored(admitted(pod, settings).pod)
    change(between)
    return admitted(between, settings).pod


def test_without_a_change_in_between_nothing_is_changed() -> None:
    pod = pod_of(build.container(gpumem=1000, priority=1), build.container("b", gpu=1))
    between = stored(admitted(pod, EVERYTHING).pod)

    assert admitted(between, EVERYTHING).pod is between


def test_cores_are_taken_back_when_memory_was_named_meanwhile() -> None:
    def name_memory(pod: build.Json) -> None:
        one(pod)["resources"]["limits"]["nvidia.com/gpumem"] = "1k"

    after = again(build.pod(), name_memory)

    assert one(after)["resources"] == {
        "limits": {GPU: "1", "nvidia.com/gpumem": "1k"},
        "requests": {GPU: "1"},
    }
    assert DEFAULTED not in after["metadata"]["annotations"]


def test_cores_are_added_when_memory_was_removed_meanwhile() -> None:
    def drop_memory(pod: build.Json) -> None:
        del one(pod)["resources"]["limits"]["nvidia.com/gpumem"]
        del one(pod)["resources"]["requests"]["nvidia.com/gpumem"]

    after = again(build.pod(gpumem=1000), drop_memory)

    assert one(after)["resources"]["limits"] == {GPU: "1", CORES: "100"}


def test_what_another_webhook_changed_is_its_own() -> None:
    def lower_cores(pod: build.Json) -> None:
        one(pod)["resources"]["limits"][CORES] = "30"
        one(pod)["resources"]["requests"][CORES] = "30"

    after = again(build.pod(), lower_cores)

    assert one(after)["resources"]["limits"] == {GPU: "1", CORES: "30"}
    assert one(after)["resources"]["requests"] == {GPU: "1", CORES: "30"}
    assert DEFAULTED not in after["metadata"]["annotations"]


def test_a_request_that_another_webhook_changed_stays() -> None:
    def lower_request(pod: build.Json) -> None:
        one(pod)["resources"]["limits"]["nvidia.com/gpumem"] = "1k"
        one(pod)["resources"]["requests"][CORES] = "30"

    after = again(build.pod(), lower_request)

    assert CORES not in one(after)["resources"]["limits"]
    assert one(after)["resources"]["requests"][CORES] == "30"


def test_cards_are_taken_back_when_nothing_is_asked_any_more() -> None:
    def drop_memory(pod: build.Json) -> None:
        del one(pod)["resources"]["limits"]["nvidia.com/gpumem"]
        del one(pod)["resources"]["requests"]["nvidia.com/gpumem"]

    after = again(build.pod(gpus=None, gpumem=1000), drop_memory)

    assert one(after)["resources"] == {"limits": {}, "requests": {}}
    assert DEFAULTED not in after["metadata"]["annotations"]


def test_nothing_is_taken_back_from_a_pod_of_another_scheduler() -> None:
    pod = build.pod(
        gpus=0, scheduler="other", annotations={DEFAULTED: f"app:{GPU}=0", "mine": "too"}
    )

    admission = admitted(pod)

    assert admission == Admission(pod=pod, matched=False)


def test_the_recorded_value_is_compared_by_its_worth() -> None:
    def rewritten(pod: build.Json) -> None:
        one(pod)["resources"]["limits"][GPU] = "2k"
        one(pod)["resources"]["requests"][GPU] = "2k"

    after = again(build.pod(gpus=None, gpumem=1), rewritten, parse("defaults: {gpuCount: 2000}"))

    assert one(after)["resources"]["limits"][GPU] == "2000"
    assert after["metadata"]["annotations"][DEFAULTED] == f"app:{GPU}=2000"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("nonsense", id="no entries"),
        pytest.param(f"other:{CORES}=100", id="another container"),
        pytest.param(f"app:{CORES}=99", id="another value"),
        pytest.param(f"app:{CORES}=many", id="no value"),
        pytest.param("app:nvidia.com/gpumem=1000", id="a resource that is never added"),
        pytest.param("app:PATH=/bin", id="a variable that is never added"),
        pytest.param("", id="empty"),
    ],
)
def test_a_record_that_does_not_fit_takes_nothing_back(written: str) -> None:
    env = [{"name": "PATH", "value": "/bin"}]
    pod = pod_of(build.container(**SHARED, gpucores=100, env=env), annotations={DEFAULTED: written})

    after = admitted(pod).pod

    assert after["spec"] == pod["spec"]
    assert DEFAULTED not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    "containers",
    [
        pytest.param([{"name": "x"}, {"name": "x"}], id="two of a name"),
        pytest.param([{"name": "a,b:c"}], id="no name for a container"),
        pytest.param([{}], id="no name at all"),
    ],
)
def test_what_a_name_does_not_point_out_is_not_recorded(containers: list[build.Json]) -> None:
    asking = [{**each, "resources": {"limits": {GPU: "1"}}} for each in containers]

    after = admitted(pod_of(*asking)).pod

    assert one(after)["resources"]["limits"] == {GPU: "1", CORES: "100"}
    assert DEFAULTED not in after["metadata"]["annotations"]
    assert admitted(after).pod is after


# Environment --------------------------------------------------------------------------------------


def env_of(container: build.Json) -> Any:
    return container.get("env")


PRIORITY_1 = {"name": "CUDA_TASK_PRIORITY", "value": "1"}
FORCE = {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}
NONE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}
MINE = {"name": "MINE", "value": "x"}


@pytest.mark.parametrize(
    ("container", "settings", "env"),
    [
        pytest.param(build.container(**SHARED), "{}", None, id="nothing to set"),
        pytest.param(build.container(**SHARED, priority=1), "{}", [PRIORITY_1], id="a priority"),
        pytest.param(
            build.container(**SHARED, priority=0),
            "{}",
            [{"name": "CUDA_TASK_PRIORITY", "value": "0"}],
            id="0 is a priority",
        ),
        pytest.param(
            build.container(**SHARED, priority="1k"),
            "{}",
            [{"name": "CUDA_TASK_PRIORITY", "value": "1000"}],
            id="a priority as a number",
        ),
        pytest.param(
            build.container(**SHARED, requests={"nvidia.com/priority": "1"}),
            "{}",
            [PRIORITY_1],
            id="a priority in the requests",
        ),
        pytest.param(
            build.container(**SHARED), "{coreUtilizationPolicy: force}", [FORCE], id="a core policy"
        ),
        pytest.param(
            build.container(**SHARED), "{coreUtilizationPolicy: default}", None, id="HAMi's default"
        ),
        pytest.param(
            build.container(**SHARED), "{hideCardsFromOthers: true}", None, id="it has cards"
        ),
        pytest.param(
            build.container(), "{hideCardsFromOthers: true}", [NONE], id="it has no cards"
        ),
        pytest.param(
            build.container(), "{coreUtilizationPolicy: force}", None, id="no cards, no core policy"
        ),
        pytest.param(
            build.container(**SHARED, priority=1, env=[MINE]),
            "{coreUtilizationPolicy: force}",
            [MINE, PRIORITY_1, FORCE],
            id="after what is there",
        ),
        pytest.param(
            build.container(**SHARED, priority=1, env=[{**PRIORITY_1, "value": "7"}]),
            "{}",
            [{**PRIORITY_1, "value": "7"}],
            id="never over the user's value",
        ),
        pytest.param(
            build.container(env=[{"name": NONE["name"], "valueFrom": {}}]),
            "{hideCardsFromOthers: true}",
            [{"name": NONE["name"], "valueFrom": {}}],
            id="never over the user's reference",
        ),
    ],
)
def test_the_environment(container: build.Json, settings: str, env: Any) -> None:
    pod = pod_of(container, build.container("beside", **SHARED))

    after = admitted(pod, parse(f"admission: {settings}")).pod

    assert env_of(one(after)) == env


@pytest.mark.parametrize("env", [{}, "x", 1], ids=str)
def test_an_environment_of_the_wrong_type_is_left(env: Any) -> None:
    container = {**build.container(**SHARED), "env": env}

    assert env_of(one(admitted(pod_of(container), EVERYTHING).pod)) == env


def test_an_environment_of_null_is_none() -> None:
    container = {**build.container(**SHARED), "env": None}

    assert env_of(one(admitted(pod_of(container), EVERYTHING).pod)) == [FORCE]
    assert env_of(one(admitted(pod_of(container)).pod)) is None


def test_additions_to_the_environment_are_recorded() -> None:
    pod = pod_of(build.container(**SHARED, priority=1), build.container("beside"))

    assert admitted(pod, EVERYTHING).pod["metadata"]["annotations"][DEFAULTED] == (
        "app:CUDA_TASK_PRIORITY=1,app:GPU_CORE_UTILIZATION_POLICY=force,"
        "beside:NVIDIA_VISIBLE_DEVICES=none"
    )


def test_cards_are_no_longer_hidden_from_a_container_that_was_given_some() -> None:
    def give_cards(pod: build.Json) -> None:
        beside = pod["spec"]["containers"][1]
        beside["resources"] = {"limits": {GPU: "1", "nvidia.com/gpumem": "1k"}}
        beside["env"].insert(0, MINE)

    pod = pod_of(build.container(**SHARED), build.container("beside"))
    after = again(pod, give_cards, EVERYTHING)

    assert after["spec"]["containers"][1]["env"] == [MINE, FORCE]


def test_a_changed_priority_is_followed_in_its_place() -> None:
    def raise_priority(pod: build.Json) -> None:
        one(pod)["resources"]["limits"]["nvidia.com/priority"] = "2"
        one(pod)["env"].append(MINE)

    after = again(build.pod(**SHARED_POD, priority=1), raise_priority)

    assert env_of(one(after)) == [{**PRIORITY_1, "value": "2"}, MINE]
    assert after["metadata"]["annotations"][DEFAULTED] == "app:CUDA_TASK_PRIORITY=2"


def test_a_recorded_variable_that_was_added_to_is_no_longer_ours() -> None:
    def add_to(pod: build.Json) -> None:
        env_of(one(pod))[0]["valueFrom"] = {}
        one(pod)["resources"]["limits"]["nvidia.com/priority"] = "2"

    after = again(build.pod(**SHARED_POD, priority=1), add_to)

    assert env_of(one(after)) == [{**PRIORITY_1, "valueFrom": {}}]


def test_a_users_variable_before_ours_takes_its_place() -> None:
    def write_first(pod: build.Json) -> None:
        one(pod)["env"].insert(0, {**PRIORITY_1, "value": "7"})

    after = again(build.pod(**SHARED_POD, priority=1), write_first)

    assert env_of(one(after)) == [{**PRIORITY_1, "value": "7"}]
    assert DEFAULTED not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("written", "kept"),
    [("absent", "nvidia"), (None, "nvidia"), ("", "nvidia"), ("mine", "mine")],
    ids=str,
)
def test_the_runtime_class_is_set_where_none_is(written: str | None, kept: str) -> None:
    pod = build.pod(**SHARED_POD)
    if written != "absent":
        pod["spec"]["runtimeClassName"] = written

    after = admitted(pod, parse("admission: {runtimeClassName: nvidia}")).pod

    assert after["spec"]["runtimeClassName"] == kept
    assert admitted(pod).pod["spec"].get("runtimeClassName") == pod["spec"].get("runtimeClassName")


# What is stripped ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ALLOCATION_ANNOTATIONS)
@pytest.mark.parametrize("value", ["GPU-a,NVIDIA,15360,100:;", None, 7], ids=str)
def test_allocation_annotations_of_a_user_are_stripped(key: str, value: Any) -> None:
    pod = build.pod(**SHARED_POD, policy="mutex", annotations={key: value, "mine": "x"})

    admission = admitted(pod)

    assert admission.pod["metadata"]["annotations"] == {POLICY: "mutex", "mine": "x"}
    (warning,) = admission.warnings
    assert key in warning
    assert "removed" in warning


# Denials ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "parts"),
    [
        pytest.param(
            build.pod(gpumem="16Gi"),
            ["container app", "nvidia.com/gpumem", '"16Gi"', "MiB", "16384"],
            id="a binary suffix",
        ),
        pytest.param(build.pod(gpumem="2147483648"), ["gpumem", "above"], id="above 32 bits"),
        pytest.param(build.pod(gpumem="1500m"), ["gpumem", "whole"], id="a fraction"),
        pytest.param(build.pod(gpus="-1"), ["nvidia.com/gpu", "negative"], id="negative"),
        pytest.param(build.pod(percent=101), ["gpumem-percentage", "100"], id="over 100 %"),
        pytest.param(
            build.pod(gpus=None, gpumem="16Gi"), ["gpumem", "16384"], id="unreadable, no count"
        ),
        pytest.param(
            build.pod(gpus=None, priority="x"), ["priority"], id="an unreadable priority alone"
        ),
        pytest.param(
            build.pod(gpus=0, gpumem=1000), ["gpumem", "add nvidia.com/gpu: 1"], id="a count of 0"
        ),
        pytest.param(build.pod(weights=""), [WEIGHTS, "empty"], id="empty weights"),
        pytest.param(build.pod(annotations={NUMA_BIND: True}), [NUMA_BIND, "quotes"], id="no text"),
        pytest.param(
            build.pod(node="n1"), ["spec.nodeName", '"n1"', "nodeSelector"], id="a node preset"
        ),
        pytest.param(
            pod_of(build.container("app", **SHARED, privileged=True)),
            ["container app", "privileged", "remove"],
            id="privileged with cards",
        ),
        pytest.param(
            pod_of(build.container(**SHARED), build.container("side", privileged=True)),
            ["container side", "privileged"],
            id="privileged beside cards",
        ),
        pytest.param(
            pod_of(build.container(**SHARED), init=[build.container("i", privileged=True)]),
            ["container i", "privileged"],
            id="privileged before cards",
        ),
        pytest.param(
            build.pod(**SHARED_POD, annotations={"k": "x" * (200 * 1024)}),
            ["204801 bytes", "204800"],
            id="one byte of annotations too many",
        ),
    ],
)
def test_what_is_denied_says_what_to_write(pod: dict[str, Any], parts: list[str]) -> None:
    denial = denied(pod)

    assert [part for part in parts if part not in denial] == []


@pytest.mark.parametrize("privileged", [False, None, "true", 1], ids=str)
def test_only_true_is_privileged(privileged: Any) -> None:
    container = {**build.container(**SHARED), "securityContext": {"privileged": privileged}}

    admitted(pod_of(container))


def test_200_kib_of_annotations_are_admitted() -> None:
    admitted(build.pod(**SHARED_POD, annotations={"k": "x" * (200 * 1024 - 1)}))


def test_what_is_stripped_does_not_count() -> None:
    admitted(build.pod(**SHARED_POD, allocated="x" * (300 * 1024)))


def test_a_count_that_nothing_adds_is_asked_for() -> None:
    admission = admit(build.pod(gpus=None, gpumem=1000), parse("defaults: {gpuCount: 0}"))

    assert admission.denial is not None
    assert "add nvidia.com/gpu: 1" in admission.denial


# Warnings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "parts"),
    [
        pytest.param(build.pod(**SHARED_POD, policy="mutex,binpack,numa"), [], id="nothing"),
        pytest.param(
            build.pod(**SHARED_POD, policy="binpak"),
            [[POLICY, '"binpak"', "did you mean binpack?"]],
            id="a misspelt policy",
        ),
        pytest.param(
            build.pod(**SHARED_POD, policy="xyzzy,mutex"),
            [['"xyzzy"', "known are mutex, topology-aware, binpack, spread, numa"]],
            id="a policy near to none",
        ),
        pytest.param(
            build.pod(**SHARED_POD, policy="Mutex,spred"),
            [["did you mean mutex?"], ["did you mean spread?"]],
            id="one warning each",
        ),
        pytest.param(
            build.pod(**SHARED_POD, node_policy="pack"), [[NODE_POLICY, '"pack"']], id="node policy"
        ),
        pytest.param(
            build.pod(**SHARED_POD, annotations={EXCLUSIVE: "yes", VGPU_MODE: "x"}),
            [[VGPU_MODE], [EXCLUSIVE]],
            id="values outside their sets",
        ),
        pytest.param(
            build.pod(**SHARED_POD, policy="topology-aware,binpack"),
            [[POLICY, "topology-aware", "two or more"]],
            id="topology-aware for one card",
        ),
        pytest.param(build.pod(**PAIR, policy="topology-aware"), [], id="for two"),
        pytest.param(
            pod_of(
                build.container(**SHARED),
                build.container("b", **{**SHARED, "gpu": 2}),
                policy="topology-aware",
                numa_bind="true",
            ),
            [],
            id="one container asks for two",
        ),
        pytest.param(
            build.pod(**SHARED_POD, numa_bind="true"),
            [[NUMA_BIND, "two or more"]],
            id="numa-bind for one card",
        ),
        pytest.param(build.pod(**SHARED_POD, numa_bind="false"), [], id="no numa-bind"),
        pytest.param(build.pod(**PAIR, numa_bind="true"), [], id="numa-bind for two"),
        pytest.param(
            build.pod(**PAIR, topology="preferred"),
            [[TOPOLOGY, '"preferred"', "without topology-aware"]],
            id="a topology mode without topology-aware",
        ),
        pytest.param(
            build.pod(**PAIR, topology="preferred", policy="topology-aware"), [], id="with it"
        ),
        pytest.param(
            build.pod(**PAIR, topology="best"),
            [[TOPOLOGY, '"best" has no effect']],
            id="no topology mode",
        ),
        pytest.param(
            build.pod(),
            [["container app", "nvidia.com/gpumem is left out", "takes the whole card"]],
            id="memory left out",
        ),
        pytest.param(
            build.pod(percent=0),
            [["container app", "gpumem-percentage is 0, which asks for no part", "whole card"]],
            id="a percentage of 0 is no percentage",
        ),
        pytest.param(
            build.pod(gpumem=0), [["nvidia.com/gpumem is 0", "whole card"]], id="nor are 0 MiB"
        ),
        pytest.param(
            build.pod(gpucores=30), [["takes the whole memory of its card"]], id="cores named"
        ),
        pytest.param(build.pod(percent=100), [], id="100 % is said, not left out"),
        pytest.param(build.pod(percent=50), [], id="a percentage"),
        pytest.param(
            pod_of(build.container("a"), build.container("b", gpu=1), build.container("c", gpu=1)),
            [["container b"], ["container c"]],
            id="each container that leaves it out",
        ),
        pytest.param(
            build.pod(**SHARED_POD, percent=50),
            [["container app", "gpumem-percentage has no effect"]],
            id="MiB and a percentage",
        ),
    ],
)
def test_the_warnings(pod: dict[str, Any], parts: list[list[str]]) -> None:
    warnings = admitted(pod).warnings

    assert len(warnings) == len(parts), warnings
    for warning, expected in zip(warnings, parts, strict=True):
        assert [part for part in expected if part not in warning] == []
        assert len(warning) < 256


def test_topology_aware_of_the_clusters_own_is_not_the_users_to_mend() -> None:
    settings = parse("scheduling: {cardPolicy: topology-aware}")

    assert admitted(build.pod(**SHARED_POD), settings).warnings == ()


def test_topology_aware_switched_off_is_told_once() -> None:
    settings = parse("scheduling: {topologyAware: {enabled: false}}")

    (warning,) = admitted(build.pod(**SHARED_POD, policy="topology-aware"), settings).warnings
    assert "switched off" in warning


def test_a_default_of_memory_leaves_nothing_to_warn_of() -> None:
    assert admitted(build.pod(), parse("defaults: {memoryMiB: 512}")).warnings == ()


def test_a_long_value_does_not_make_a_long_warning() -> None:
    (warning,) = admitted(build.pod(**SHARED_POD, policy="x\n" * 5000)).warnings

    assert len(warning) < 256
    assert "\n" not in warning


# Workloads ----------------------------------------------------------------------------------------


def workload(kind: str, annotations: dict[str, str], pod: build.Json) -> build.Json:
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    spec: build.Json = {"template": template}
    if kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    return {"kind": kind, "metadata": {"name": "w", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("Deployment", "spec.template.metadata.annotations"),
        ("Job", "spec.template.metadata.annotations"),
        ("StatefulSet", "spec.template.metadata.annotations"),
        ("CronJob", "spec.jobTemplate.spec.template.metadata.annotations"),
    ],
)
def test_an_annotation_beside_the_template_is_told(kind: str, where: str) -> None:
    thing = workload(kind, {POLICY: "binpack", "mine": "x"}, build.pod())

    (warning,) = template_warnings(thing)

    assert warning.startswith(f"{kind} w: annotation {POLICY} ")
    assert warning.endswith(f" {where}")


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(workload("Job", {}, build.pod()), id="no annotation"),
        pytest.param(
            workload("Job", {POLICY: "spread"}, build.pod(policy="spread")), id="in both places"
        ),
        pytest.param(workload("Job", {POLICY: "spread"}, build.pod(gpus=None)), id="no cards"),
        pytest.param({"metadata": {"annotations": {POLICY: "spread"}}}, id="no template"),
        pytest.param({"spec": {"template": []}}, id="a list for the template"),
    ],
)
def test_other_workloads_give_no_warning(thing: build.Json) -> None:
    assert template_warnings(thing) == ()


# Rules --------------------------------------------------------------------------------------------

# One draw a container where it can be: generating, not admitting, is what takes the time.
MIXES = [
    {"gpu": gpu, "gpumem": gpumem, "percent": percent, "gpucores": cores, "priority": priority}
    for gpu in (None, 0, 1, 2)
    for gpumem in (None, 0, 1000)
    for percent in (None, 0, 50, 100)
    for cores in (None, 0, 100)
    for priority in (None, 1)
]
HIDDEN = {"name": NONE["name"], "valueFrom": {}}
ENVS = [None, [], [MINE], [PRIORITY_1, MINE], [FORCE, NONE], [NONE, PRIORITY_1, NONE], [HIDDEN]]


def containers_named(*names: str) -> st.SearchStrategy[list[build.Json]]:
    def each(name: str) -> st.SearchStrategy[build.Json]:
        return st.builds(
            lambda mix, env, sidecar: build.container(name, **mix, env=env, sidecar=sidecar),
            st.sampled_from(MIXES),
            st.sampled_from(ENVS),
            st.booleans(),
        )

    return st.tuples(*map(each, names)).map(list)


records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "i"]),
        st.sampled_from([GPU, CORES, *(v["name"] for v in (PRIORITY_1, FORCE, NONE))]),
        st.sampled_from(["1", "2", "100", "force", "none"]),
    ).map(lambda entry: f"{entry[0]}:{entry[1]}={entry[2]}"),
    max_size=4,
).map(",".join)
pods = st.builds(
    build.pod,
    containers=containers_named("a", "b") | containers_named("a", "a") | containers_named("a"),
    init=st.none() | containers_named("i"),
    scheduler=st.sampled_from(["", "default-scheduler", "cardwise-scheduler", "other"]),
    policy=st.none() | st.sampled_from(["mutex", "binpak", "topology-aware"]),
    annotations=st.just({}) | records.map(lambda text: {DEFAULTED: text}),
    allocated=st.none() | st.just(";"),
)
all_settings = st.sampled_from(
    [
        DEFAULTS,
        EVERYTHING,
        parse("defaults: {memoryMiB: 512, cores: 10, gpuCount: 2}"),
        parse("defaults: {gpuCount: 0}"),
    ]
)


@given(pods, all_settings)
def test_admission_is_idempotent(pod: build.Json, settings: Settings) -> None:
    first = admit(pod, settings)
    second = admit(first.pod, settings)

    assert second.pod == first.pod
    assert second.denial == first.denial


@given(pods, all_settings)
def test_admission_is_idempotent_with_the_server_in_between(
    pod: build.Json, settings: Settings
) -> None:
    between = stored(admit(pod, settings).pod)

    assert stored(admit(between, settings).pod) == between


@given(pods, all_settings)
def test_admission_changes_only_what_it_may(pod: build.Json, settings: Settings) -> None:
    before = copy.deepcopy(pod)
    admission = admit(pod, settings)

    assert pod == before
    assert admission == admit(pod, settings)
    if admission.denial or pod["spec"]["schedulerName"] == "other":
        assert admission.pod is pod
    if admission.pod is pod:
        return
    assert admission.matched
    assert isinstance(request_of(admission.pod, settings), Request | None)
    changed = copy.deepcopy(admission.pod)
    for thing in (changed, before):
        thing["spec"].pop("schedulerName", None)
        thing["spec"].pop("runtimeClassName", None)
        for key in (*ALLOCATION_ANNOTATIONS, DEFAULTED):
            thing["metadata"]["annotations"].pop(key, None)
        for container in [*thing["spec"].get("initContainers", []), *thing["spec"]["containers"]]:
            container.pop("resources")
            ours = (PRIORITY_1["name"], FORCE["name"], NONE["name"])
            env = [each for each in container.pop("env", []) if each["name"] not in ours]
            container["env"] = env
    assert changed == before


@given(pods, all_settings)
def test_without_a_record_no_resource_is_lost(pod: build.Json, settings: Settings) -> None:
    pod["metadata"]["annotations"].pop(DEFAULTED, None)

    after = admit(pod, settings).pod

    for old, new in zip(pod["spec"]["containers"], after["spec"]["containers"], strict=True):
        for side in ("limits", "requests"):
            kept = old["resources"].get(side, {}).items()
            assert kept <= new["resources"].get(side, {}).items()


WHOLE = st.just(
    build.pod(
        policy="mutex,binpack",
        annotations={DEFAULTED: f"app:{GPU}=1,app:CUDA_TASK_PRIORITY=1", NUMA_BIND: "true"},
        labels={"a": "b"},
        init=[build.container("i", gpumem=1000, sidecar=True)],
        containers=[build.container(gpu=1, priority=1, env=[PRIORITY_1, MINE])],
    )
)


@given(hostile.spoilt(WHOLE), all_settings)
def test_no_pod_gives_a_traceback(pod: Any, settings: Settings) -> None:
    admission = admit(pod, settings)

    for sentence in (*admission.warnings, admission.denial or "-"):
        assert sentence
        assert sentence.encode()
    assert template_warnings({"kind": "Job", "spec": {"template": pod}, "metadata": pod}) == ()


# The patch ----------------------------------------------------------------------------------------


def patched(thing: Any, operations: list[build.Json]) -> Any:
    """Apply operations as RFC 6902 has them."""
    result = copy.deepcopy(thing)
    for operation in operations:
        path = [
            token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")
        ]
        parent = result
        for token in path[1:-1]:
            parent = parent[int(token) if isinstance(parent, list) else token]
        last: Any = int(path[-1]) if isinstance(parent, list) and path[-1] != "-" else path[-1]
        match operation["op"]:
            case "add" if last == "-":
                parent.append(operation["value"])
            case "add":
                assert last not in parent
                parent[last] = operation["value"]
            case "replace":
                assert parent[last] != operation["value"]
                parent[last] = operation["value"]
            case _:
                assert operation["op"] == "remove"
                del parent[last]
    return result


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="nothing"),
        pytest.param({}, {"a/b~c": 1}, [("add", "/a~1b~0c", 1)], id="a key with a slash"),
        pytest.param({"a": None}, {"a": {}}, [("replace", "/a", {})], id="null becomes an object"),
        pytest.param({"a": 1, "b": 2}, {"b": 2}, [("remove", "/a")], id="a key gone"),
        pytest.param(
            {"b": {"x": 1}, "a": 1},
            {"b": {"x": 2}, "a": 2},
            [("replace", "/a", 2), ("replace", "/b/x", 2)],
            id="in the order of the keys, as deep as it goes",
        ),
        pytest.param(
            {"a": [1, 2]},
            {"a": [1, 3, 4]},
            [("replace", "/a/1", 3), ("add", "/a/-", 4)],
            id="a list that grows",
        ),
        pytest.param({"a": [1, 2]}, {"a": [2]}, [("replace", "/a", [2])], id="a shorter list"),
    ],
)
def test_the_patch_between_two_objects(before: Any, after: Any, operations: Any) -> None:
    keys = ("op", "path", "value")

    assert json_patch(before, after) == [dict(zip(keys, each, strict=False)) for each in operations]


def test_the_patch_of_a_pod() -> None:
    pod = build.pod(scheduler="default-scheduler", allocated=";")

    assert json_patch(pod, admitted(pod).pod) == [
        {
            "op": "add",
            "path": "/metadata/annotations/cardwise.dev~1defaulted",
            "value": "app:nvidia.com/gpucores=100",
        },
        {"op": "remove", "path": "/metadata/annotations/hami.io~1vgpu-devices-allocated"},
        {
            "op": "add",
            "path": "/spec/containers/0/resources/limits/nvidia.com~1gpucores",
            "value": "100",
        },
        {"op": "replace", "path": "/spec/schedulerName", "value": "cardwise-scheduler"},
    ]


@given(pods, all_settings)
def test_the_patch_leads_from_the_one_to_the_other(pod: build.Json, settings: Settings) -> None:
    pod = json.loads(json.dumps(pod))  # in JSON no two containers share one list
    after = admit(pod, settings).pod
    patch = json_patch(pod, after)

    assert patched(pod, patch) == after
    assert (patch == []) == (pod == after)


objects = st.dictionaries(st.sampled_from(["a", "b/", "~c"]), hostile.JSON, max_size=3)


@given(objects, objects)
def test_a_patch_leads_between_any_two_objects(before: build.Json, after: build.Json) -> None:
    assert json_patch(after, after) == []
    # NaN is no JSON, and equals nothing.
    if before == copy.deepcopy(before) and after == copy.deepcopy(after):
        assert patched(before, json_patch(before, after)) == after
