"""What the API server asks and what it is told, without a server in between."""

import copy
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise import names
from cardwise.admission import admit
from cardwise.controller.webhook.selftest import TEMPLATE
from cardwise.errors import BadBody
from cardwise.names import (
    ALLOCATED,
    ALLOCATION_ANNOTATIONS,
    DEFAULTED,
    POLICY,
    RESOURCES,
    SCHEDULER_NAME,
)
from cardwise.settings import Settings, parse
from cardwise.wire.pods import asks_cards
from cardwise_webhook.review import Answer, Result, answer, asked, shown
from webhooks import patch_of, review

Json = dict[str, Any]
DEFAULTS = Settings()
UID = "00000000-0000-4000-8000-000000000001"
SHARED: Json = {"gpus": 1, "gpumem": 1000}
"""What neither needs a default nor gives a warning."""


def ask(body: Any, settings: Settings = DEFAULTS) -> tuple[Answer, Json]:
    """The answer to a review, and the response in it."""
    told = answer(orjson.dumps(body), settings)
    whole = orjson.loads(told.body)
    assert whole.keys() == {"apiVersion", "kind", "response"}
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert whole["response"]["uid"] == UID
    return told, whole["response"]


def stored(pod: Json, **changes: Any) -> Json:
    """The Pod as the API server keeps it after the answer."""
    _, response = ask(review(pod, **changes))
    assert response["allowed"] is True
    after: Json = jsonpatch.apply_patch(pod, patch_of(response))
    return after


DEPLOYMENTS = {"group": "apps", "version": "v1", "resource": "deployments"}


def deployment(template: Json, annotations: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": annotations or {}, **metadata},
        "spec": {"template": template},
    }


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_workload_is_warned_of_what_its_pods_are_told(operation: str) -> None:
    web = deployment(build.pod(gpumem=1000, policy="binpak"), {names.NODE_POLICY: "spread"})

    told, response = ask(review(web, resource=DEPLOYMENTS, operation=operation))

    assert told.result is Result.UNCHANGED
    assert response["allowed"] is True
    assert "patch" not in response
    assert response["warnings"] == [
        "Deployment web: annotation hami.io/node-scheduler-policy has no effect on its Pods; "
        "write it in spec.template.metadata.annotations",
        f'its Pods: {POLICY}: "binpak" is unknown and has no effect; did you mean binpack?',
    ]


def test_a_workload_whose_pods_will_be_denied_is_let_through_with_the_reason() -> None:
    _, response = ask(review(deployment(build.pod(gpumem="16Gi")), resource=DEPLOYMENTS))

    assert response["allowed"] is True
    [warning] = response["warnings"]
    assert warning.startswith("its Pods will be denied: container app: nvidia.com/gpumem is ")


def test_an_amount_that_is_written_as_an_annotation_is_told_of() -> None:
    web = deployment(build.pod(gpus=None), {"nvidia.com/gpumem": "1000"})

    _, response = ask(review(web, resource=DEPLOYMENTS))

    [warning] = response["warnings"]
    assert warning.startswith("annotation nvidia.com/gpumem has no effect; write it in resources")


# The controller's test ------------------------------------------------------------------------

TEMPLATES = {"group": "", "version": "v1", "resource": "podtemplates"}


def test_the_controllers_test_comes_back_led_to_a_door() -> None:
    told, response = ask(review(TEMPLATE, resource=TEMPLATES))

    assert told.result is Result.TESTED
    assert response["allowed"] is True
    after = jsonpatch.apply_patch(TEMPLATE, patch_of(response))
    assert after["template"]["spec"]["schedulerName"] == SCHEDULER_NAME


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({"metadata": {"name": "p"}}, id="without a template"),
        pytest.param({"metadata": {"name": "p"}, "template": build.pod(gpus=None)}, id="no cards"),
        pytest.param(
            {"metadata": {"name": "p"}, "template": build.pod(gpumem="16Gi")}, id="denied"
        ),
    ],
)
def test_anybody_elses_pod_template_is_let_through(template: Json) -> None:
    told, response = ask(review(template, resource=TEMPLATES))

    assert told.result is Result.TESTED
    assert response == {"uid": UID, "allowed": True}


# Answers ------------------------------------------------------------------------------------------


def test_a_pod_that_is_as_it_should_be_is_let_through() -> None:
    told, response = ask(review(build.pod(**SHARED)))

    assert response == {"uid": UID, "allowed": True}
    assert told.result is Result.UNCHANGED
    assert told.about == "default/p"


def test_a_pod_is_completed_by_a_patch() -> None:
    told, response = ask(review(build.pod(scheduler="default-scheduler")))

    assert told.result is Result.CHANGED
    assert patch_of(response) == [
        {
            "op": "add",
            "path": "/metadata/annotations/cardwise.dev~1defaulted",
            "value": "app:nvidia.com/gpucores=100",
        },
        {
            "op": "add",
            "path": "/spec/containers/0/resources/limits/nvidia.com~1gpucores",
            "value": "100",
        },
        {"op": "replace", "path": "/spec/schedulerName", "value": "cardwise-scheduler"},
    ]
    [warning] = response["warnings"]
    assert "takes the whole card" in warning


def test_a_warning_comes_without_a_change() -> None:
    told, response = ask(review(build.pod(**SHARED, policy="binpak")))

    assert told.result is Result.UNCHANGED
    assert response["allowed"] is True
    [warning] = response["warnings"]
    assert warning == f'{POLICY}: "binpak" is unknown and has no effect; did you mean binpack?'


def test_a_denial_says_what_to_write_instead() -> None:
    told, response = ask(review(build.pod(gpumem="16Gi")))

    assert told.result is Result.DENIED
    assert response["allowed"] is False
    assert "patch" not in response
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    assert "nvidia.com/gpumem: 16384" in response["status"]["message"]
    assert told.message == response["status"]["message"]


@pytest.mark.parametrize(
    ("pod", "changes"),
    [
        pytest.param(build.pod(gpus=None, scheduler=""), {}, id="a Pod without cards"),
        pytest.param(
            build.pod(gpumem="16Gi", labels={"hami.io/webhook": "ignore"}), {}, id="one opted out"
        ),
        pytest.param(build.pod(gpumem="16Gi"), {"operation": "UPDATE"}, id="an update"),
        pytest.param(None, {"operation": "DELETE"}, id="a deletion"),
        pytest.param({"kind": "PodExecOptions"}, {"operation": "CONNECT"}, id="a connection"),
        pytest.param(build.pod(gpumem="16Gi"), {"operation": None}, id="no operation"),
        pytest.param({"kind": "Binding"}, {"subResource": "binding"}, id="a Binding"),
        pytest.param({"kind": "Eviction"}, {"subResource": "eviction"}, id="an eviction"),
        pytest.param(
            build.pod(gpumem="16Gi"), {"subResource": "ephemeralcontainers"}, id="a debug container"
        ),
        pytest.param(
            {"kind": "Deployment"},
            {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
            id="a Deployment without Pods",
        ),
        pytest.param(
            deployment(build.pod(gpus=None), {POLICY: "binpak"}),
            {"resource": DEPLOYMENTS},
            id="a Deployment of Pods without cards",
        ),
        pytest.param(
            deployment(build.pod(gpumem="16Gi"), labels={"hami.io/webhook": "ignore"}),
            {"resource": DEPLOYMENTS},
            id="a Deployment that opted out",
        ),
        pytest.param(
            deployment(build.pod(gpumem="16Gi")),
            {"resource": DEPLOYMENTS, "subResource": "scale"},
            id="the scale of one",
        ),
        pytest.param(
            deployment(build.pod(gpumem="16Gi")),
            {"resource": DEPLOYMENTS, "operation": "DELETE"},
            id="the deletion of one",
        ),
        pytest.param(
            build.pod(gpumem="16Gi"),
            {"resource": {"group": "metrics.k8s.io", "version": "v1", "resource": "pods"}},
            id="Pods of another group",
        ),
        pytest.param(build.pod(gpumem="16Gi"), {"resource": "pods"}, id="a resource of no shape"),
    ],
)
def test_what_is_none_of_our_business_is_let_through(pod: Any, changes: Json) -> None:
    told, response = ask(review(pod, **changes))

    assert response == {"uid": UID, "allowed": True}
    assert told.result is Result.IGNORED


@pytest.mark.parametrize(
    ("pod", "changes", "about"),
    [
        pytest.param(build.pod("p"), {}, "default/p", id="its name"),
        pytest.param(
            {**build.pod(), "metadata": {"generateName": "job-"}},
            {"namespace": "team"},
            "team/job-*",
            id="a name that is still to be made, and the namespace of the request",
        ),
        pytest.param(build.pod("p", namespace="x"), {"name": "q"}, "default/q", id="the request's"),
        pytest.param({**build.pod(), "metadata": None}, {}, "default/*", id="no name at all"),
        pytest.param(
            build.pod("p\nq"), {}, "default/p q", id="one line, whatever the name is made of"
        ),
    ],
)
def test_logs_say_which_pod(pod: Json, changes: Json, about: str) -> None:
    told, _ = ask(review(pod, **changes))

    assert told.about == about


# Ways to create a Pod -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"dryRun": True}, id="a dry run"),
        pytest.param(
            {"namespace": "team", "name": ""}, id="in a namespace that only the request has"
        ),
        pytest.param(
            {"options": {"kind": "PatchOptions", "fieldManager": "me", "force": True}},
            id="server-side apply",
        ),
        pytest.param({"userInfo": {"username": "system:admin"}}, id="by an administrator"),
        pytest.param({"requestKind": None, "dryRun": None, "later": 1}, id="by another release"),
    ],
)
def test_how_a_pod_is_created_makes_no_difference(changes: Json) -> None:
    pod = build.pod(gpus=None, gpumem=1000, scheduler="", policy="binpak")
    _, plain = ask(review(pod))

    _, response = ask(review(pod, **changes))

    assert response == plain


def test_the_same_request_gives_the_same_answer() -> None:
    body = orjson.dumps(review(build.pod(gpus=2, scheduler="", policy="mutx,binpack")))

    assert answer(body, DEFAULTS) == answer(body, DEFAULTS)


def test_managed_fields_of_an_apply_stay() -> None:
    fields = [{"manager": "me", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]
    pod = build.pod()
    pod["metadata"]["managedFields"] = fields

    assert stored(pod)["metadata"]["managedFields"] == fields


def test_a_pod_without_metadata_of_its_own_is_completed() -> None:
    pod = {"metadata": {"generateName": "job-", "creationTimestamp": None}, **build.pod()}
    pod["metadata"] = {"generateName": "job-", "creationTimestamp": None}

    after = stored(pod, namespace="team", name="")

    assert after["metadata"] == {
        "generateName": "job-",
        "creationTimestamp": None,
        "annotations": {DEFAULTED: "app:nvidia.com/gpucores=100"},
    }


def test_every_kind_of_container_is_completed() -> None:
    pod = build.pod(
        containers=[build.container("app", gpu=1), build.container("beside")],
        init=[
            build.container("first", gpumem=1000),
            build.container("sidecar", percent=50, sidecar=True),
        ],
    )

    after = stored(pod)

    limits = {
        each["name"]: sorted(each["resources"].get("limits", {}))
        for each in (*after["spec"]["initContainers"], *after["spec"]["containers"])
    }
    assert limits == {
        "first": ["nvidia.com/gpu", "nvidia.com/gpumem"],
        "sidecar": ["nvidia.com/gpu", "nvidia.com/gpumem-percentage"],
        "app": ["nvidia.com/gpu", "nvidia.com/gpucores"],
        "beside": [],
    }


def test_a_second_call_after_a_sidecar_was_injected_keeps_what_the_first_did() -> None:
    first = stored(build.pod(scheduler=""))
    injected = copy.deepcopy(first)
    injected["spec"]["containers"].append(build.container("proxy"))
    injected["spec"]["initContainers"] = [build.container("proxy-init")]

    told, response = ask(review(injected))

    assert (told.result, patch_of(response)) == (Result.UNCHANGED, [])


def test_a_second_call_after_memory_was_added_takes_the_whole_card_back() -> None:
    first = stored(build.pod(scheduler=""))
    assert first["metadata"]["annotations"] == {DEFAULTED: "app:nvidia.com/gpucores=100"}
    between = copy.deepcopy(first)
    between["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "1k"

    after = stored(between)

    assert "nvidia.com/gpucores" not in after["spec"]["containers"][0]["resources"]["limits"]
    assert after["metadata"]["annotations"] == {}


# Copies by `kubectl debug` ------------------------------------------------------------------------


def debug_copy(original: Json, *, keep: bool, same_node: bool, privileged: bool = False) -> Json:
    """What ``kubectl debug POD --copy-to=NAME`` creates from a running Pod.

    It takes the spec whole, without the node unless ``--same-node``, and leaves out annotations and
    labels unless ``--keep-annotations``; its profile ``sysadmin`` makes the new container a
    privileged one.
    """
    made = copy.deepcopy(original)
    made["metadata"] = {"name": "copy", "namespace": "default"}
    if keep:
        made["metadata"]["annotations"] = original["metadata"]["annotations"]
    made.pop("status", None)
    if not same_node:
        made["spec"].pop("nodeName", None)
    made["spec"]["containers"].append(build.container("debugger", privileged=privileged))
    return made


RUNNING = build.pod(
    gpumem=1000,
    node="n1",
    allocated="GPU-a,NVIDIA,1000,0:;",
    policy="binpack",
    annotations={key: "1" for key in ALLOCATION_ANNOTATIONS if key != ALLOCATED},
)


@pytest.mark.parametrize("keep", [False, True], ids=["as usual", "with its annotations"])
def test_a_debug_copy_has_no_cards_yet(keep: bool) -> None:
    made = debug_copy(RUNNING, keep=keep, same_node=False)
    _, response = ask(review(made))

    after = jsonpatch.apply_patch(made, patch_of(response))

    annotations = after["metadata"].get("annotations", {})
    assert annotations == ({POLICY: "binpack"} if keep else {})
    assert len(response.get("warnings", ())) == (len(ALLOCATION_ANNOTATIONS) if keep else 0)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        pytest.param({"same_node": True}, 'spec.nodeName is "n1"', id="on the same node"),
        pytest.param(
            {"same_node": False, "privileged": True},
            "container debugger: it is privileged",
            id="with a privileged debugger",
        ),
    ],
)
def test_a_debug_copy_is_denied(how: Json, why: str) -> None:
    _, response = ask(review(debug_copy(RUNNING, keep=True, **how)))

    assert response["allowed"] is False
    assert why in response["status"]["message"]


def test_a_debug_copy_of_a_completed_pod_is_what_it_was() -> None:
    running = stored(build.pod(scheduler=""))
    made = debug_copy(running, keep=True, same_node=False)

    assert stored(made) == made


# Sentences ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("warnings", "want"),
    [
        pytest.param((), [], id="none"),
        pytest.param(("x" * 256,), ["x" * 256], id="as long as one may be"),
        pytest.param(("x" * 257,), ["x" * 255 + "…"], id="longer"),
        pytest.param(("a\tb\x7fc\x85d\u2028e",), ["a b c d e"], id="characters of control"),
        pytest.param(("é" * 256,), ["é" * 256], id="characters count, not bytes"),
        pytest.param(("x" * 256,) * 16, ["x" * 256] * 16, id="as long as all may be"),
        pytest.param(
            ("x" * 256,) * 17,
            ["x" * 256] * 15 + ["2 more warnings are left out"],
            id="longer than all may be",
        ),
        pytest.param(
            ("x" * 100,) * 50,
            ["x" * 100] * 38 + ["12 more warnings are left out"],
            id="many short ones",
        ),
    ],
)
def test_the_api_server_can_hand_on_every_warning(
    warnings: tuple[str, ...], want: list[str]
) -> None:
    told = shown(warnings)

    assert told == want
    assert sum(map(len, told)) <= 4096


def test_names_of_a_pod_that_nobody_checked_do_no_harm() -> None:
    pod = build.pod(containers=[build.container("x" * 100_000, gpumem="16Gi")])

    told, response = ask(review(pod))

    message = response["status"]["message"]
    assert len(message) == 1024
    assert message.isprintable()
    assert told.message == message


# Bodies that no API server sends ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param(b"", "The body is not JSON: ", id="nothing"),
        pytest.param(b"{", "The body is not JSON: ", id="an end too soon"),
        pytest.param(b"\xff\xfe", "The body is not JSON: ", id="no text"),
        pytest.param(b'{"a": "\\ud800"}', "The body is not JSON: ", id="half a character"),
        pytest.param(b"[" * 100_000, "The body is not JSON: ", id="only beginnings"),
        pytest.param(b"null", "The body is null of null, not AdmissionReview of ", id="null"),
        pytest.param(b"[]", "The body is null of null, not ", id="a list"),
        pytest.param(
            b'{"kind": "Pod", "apiVersion": "v1"}', 'The body is "Pod" of "v1", not ', id="a Pod"
        ),
        pytest.param(
            orjson.dumps({**review(build.pod()), "apiVersion": "admission.k8s.io/v1beta1"}),
            'The body is "AdmissionReview" of "admission.k8s.io/v1beta1", not ',
            id="an old version",
        ),
        pytest.param(
            orjson.dumps({**review(build.pod()), "request": None}),
            "The review has no request with a uid.",
            id="no request",
        ),
        pytest.param(
            orjson.dumps(review(build.pod(), uid="")),
            "The review has no request with a uid.",
            id="no uid",
        ),
        pytest.param(
            orjson.dumps(review(build.pod(), uid=7)),  # type: ignore[arg-type]
            "The review has no request with a uid.",
            id="a number for a uid",
        ),
        pytest.param(
            orjson.dumps(review(None)),
            "The request is to create a Pod, and has no object.",
            id="no Pod",
        ),
        pytest.param(
            orjson.dumps(review([build.pod()])),
            "The request is to create a Pod, and has no object.",
            id="a list of Pods",
        ),
    ],
)
def test_a_broken_body_is_told_in_one_sentence(body: bytes, sentence: str) -> None:
    with pytest.raises(BadBody) as caught:
        answer(body, DEFAULTS)

    said = str(caught.value)
    assert said.startswith(sentence)
    assert "\n" not in said
    assert len(said) < 300


@pytest.mark.parametrize("depth", [100, 200, 240, 400, 500, 900])
def test_a_pod_of_any_depth_gets_an_answer(depth: int) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    plain = orjson.dumps(review({**build.pod(), "deep": 0}))

    result, sentence = outcome(plain.replace(b'"deep":0', b'"deep":' + deep))

    assert (result, sentence) in [
        (Result.CHANGED, ""),
        (None, "The Pod is nested too deep."),
    ]
    assert (result is Result.CHANGED) or depth > 240


@pytest.mark.parametrize("depth", [200, 400])
def test_a_patch_that_takes_back_may_hold_any_depth(depth: int) -> None:
    pod = build.pod(annotations={DEFAULTED: "app:CUDA_TASK_PRIORITY=1"})
    added = {"name": "CUDA_TASK_PRIORITY", "value": "1"}
    pod["spec"]["containers"][0]["env"] = [added, {"deep": 0}]
    deep = b'{"a":' * depth + b"1" + b"}" * depth

    result, sentence = outcome(orjson.dumps(review(pod)).replace(b'"deep":0', b'"deep":' + deep))

    assert (result, sentence) == (
        (Result.CHANGED, "") if depth < 250 else (None, "The Pod is nested too deep.")
    )


def outcome(body: bytes, settings: Settings = DEFAULTS) -> tuple[Result | None, str]:
    """The result, or the sentence that there is none."""
    try:
        return answer(body, settings).result, ""
    except BadBody as error:
        return None, str(error)


# Rules --------------------------------------------------------------------------------------------

LIMITS = st.dictionaries(
    st.sampled_from([*RESOURCES, "cpu"]),
    st.sampled_from(["0", "1", "100", "16Gi", "1k"]),
    max_size=3,
)
CONTAINERS = st.builds(
    lambda name, limits, privileged, sidecar: build.container(
        name, limits=limits, privileged=privileged, sidecar=sidecar
    ),
    st.sampled_from(["a", "b", "c"]),
    LIMITS,
    st.sampled_from([False] * 9 + [True]),
    st.booleans(),
)
PODS = st.builds(
    build.pod,
    containers=st.lists(CONTAINERS, min_size=1, max_size=3),
    init=st.none() | st.lists(CONTAINERS, min_size=1, max_size=2),
    scheduler=st.sampled_from(["", "default-scheduler", "cardwise-scheduler", "other"]),
    policy=st.none() | st.sampled_from(["mutex", "binpak", "topology-aware"]),
    annotations=st.dictionaries(
        st.sampled_from([*ALLOCATION_ANNOTATIONS, DEFAULTED, "own"]),
        st.sampled_from(["", "a:nvidia.com/gpu=1", "x"]),
        max_size=3,
    ),
)
SETTINGS = st.sampled_from(
    [
        DEFAULTS,
        parse(
            "admission: {runtimeClassName: nvidia, coreUtilizationPolicy: force,"
            " hideCardsFromOthers: true}"
        ),
        parse("defaults: {memoryMiB: 512, gpuCount: 2}"),
    ]
)


@given(PODS, SETTINGS)
def test_the_patch_leads_to_the_pod_that_admission_wants(pod: Json, settings: Settings) -> None:
    _, response = ask(review(pod), settings)

    want = admit(pod, settings)
    assert response["allowed"] is (want.denial is None)
    assert jsonpatch.apply_patch(pod, patch_of(response)) == want.pod


@given(PODS, SETTINGS)
def test_a_pod_that_was_admitted_is_not_changed_again(pod: Json, settings: Settings) -> None:
    _, response = ask(review(pod), settings)
    once = jsonpatch.apply_patch(pod, patch_of(response))

    _, again = ask(review(once), settings)

    assert patch_of(again) == []
    assert again["allowed"] == response["allowed"]


PLAIN = st.just(
    build.pod(
        gpus=None,
        policy="binpak",
        allocated="GPU-a,NVIDIA,1,1:;",
        node="n1",
        labels={"a": "b"},
        init=[build.container("i", limits={"cpu": "1"}, sidecar=True, privileged=True)],
    )
)


@given(hostile.spoilt(PLAIN), SETTINGS)
def test_a_pod_without_our_resources_is_never_changed(pod: Any, settings: Settings) -> None:
    assert not asks_cards(pod)
    try:
        body = orjson.dumps(review(pod, name="p"))
    except TypeError:  # half a character, or a number of too many digits: not JSON
        return
    if not isinstance(pod, dict) or not pod:
        return  # no object; see above

    assert ask(orjson.loads(body), settings)[1] == {"uid": UID, "allowed": True}


@given(hostile.spoilt(st.just(review(build.pod(policy="binpak", scheduler="")))), SETTINGS)
def test_no_body_gives_a_traceback(body: Any, settings: Settings) -> None:
    try:
        written = orjson.dumps(body)
    except TypeError:
        return
    result, sentence = outcome(written, settings)
    assert "\n" not in sentence
    if result is not None:
        response = orjson.loads(answer(written, settings).body)["response"]
        assert response["uid"] == body["request"]["uid"]
        assert ("patch" in response) is (result is Result.CHANGED)


def test_only_the_request_is_read() -> None:
    question = asked(orjson.dumps({**review(build.pod()), "response": {"allowed": False}}))

    assert (question.uid, question.about) == (UID, "default/p")
