"""Files as Kubernetes objects: what is read, what is expanded, what is refused and where."""

import functools
import io
import json
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import build
import hostile
from cardwise.cli import documents
from cardwise.cli.documents import documents_of
from cardwise.cli.workloads import expanded
from cardwise.errors import BadDocument

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": build.pod(gpumem=1000)["spec"],
}


def workload(kind, name="web", api="apps/v1", **spec):
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"template": TEMPLATE, **spec},
    }


def job(**spec):
    return workload("Job", api="batch/v1", **spec)


def cron_job(**spec):
    spec = {"schedule": "@daily", "jobTemplate": {"spec": job(**spec)["spec"]}}
    return {**job(), "kind": "CronJob", "spec": spec}


def listed(*items):
    return {"kind": "List", "items": list(items)}


def read_text(text):
    return expanded(documents_of(text, "f.yaml"))


def read_objects(*objects):
    return read_text(yaml.safe_dump_all(objects))


def titles(found):
    return [document.title for document in found]


# What is read -------------------------------------------------------------------------------------


def test_documents_remember_file_and_line() -> None:
    found = read_text("kind: Node\nmetadata: {name: a}\n---\n\nkind: Pod\nmetadata: {name: b}\n")

    assert [(each.title, each.where) for each in found] == [
        ("Node a", "f.yaml:1"),
        ("Pod default/b", "f.yaml:5"),
    ]


def test_empty_documents_are_left_out() -> None:
    assert read_text("---\n# nothing\n---\n---\nkind: Node\nmetadata: {name: a}\n---\n") != []
    assert read_text("") == read_text("\n---\n") == []


@pytest.mark.parametrize(
    "indent", [None, 1, "\t"], ids=["JSON on one line", "JSON in lines", "JSON with tabs"]
)
def test_json_is_read_one_object_after_another(indent) -> None:
    objects = [build.pod("a", annotations={"x": "\U0001f600/"}), build.node_object("n")]

    found = read_text("\n".join(json.dumps(each, indent=indent) for each in objects))

    assert [each.body for each in found] == objects


def test_every_item_of_a_list_has_its_line_in_yaml_and_in_json() -> None:
    in_yaml = (
        "kind: List\nitems:\n"
        "- kind: Node\n  metadata: {name: a}\n"
        "- kind: Node\n  metadata: {name: b}\n"
    )
    in_json = (
        '{"kind": "List", "metadata": {"items": [1]},\n "items": [\n'
        '  {"kind": "Node", "metadata": {"name": "a"}},\n'
        '  {"kind": "Node", "metadata": {"name": "b"}}]}'
    )

    assert [each.where for each in read_text(in_yaml)] == ["f.yaml:3", "f.yaml:5"]
    assert [each.where for each in read_text(in_json)] == ["f.yaml:3", "f.yaml:4"]


def test_the_items_of_a_typed_list_have_its_kind() -> None:
    found = read_text("kind: PodList\napiVersion: v1\nitems:\n- metadata: {name: a}\n")

    assert titles(found) == ["Pod default/a"]


def test_lists_in_lists_are_unpacked() -> None:
    inner = {"kind": "List", "items": [build.node_object("a")]}

    assert titles(read_objects({"kind": "List", "items": [inner]})) == ["Node a"]


@pytest.mark.parametrize("items", ["[]", "null"], ids=["empty", "null"])
def test_an_empty_list_holds_nothing(items) -> None:
    assert read_text(f"kind: List\nitems: {items}\n") == []


def test_a_kind_of_another_group_is_not_taken_for_ours() -> None:
    found = read_objects(
        workload("Job", api="batch.volcano.sh/v1alpha1"),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
    )

    assert [each.is_known for each in found] == [False, False, False]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0000:00:04.0", "0000:00:04.0", id="a PCI address is no number"),
        pytest.param("2026-11-29T12:00:00Z", "2026-11-29T12:00:00Z", id="a time is a text"),
        pytest.param("1e3", "1e3", id="a quantity is a text"),
        pytest.param("010", 8, id="digits with a zero in front are octal"),
        pytest.param("0o17", 15, id="as are those with an o"),
        pytest.param("0x1F", 31, id="a number in base 16"),
        pytest.param("0b11", 3, id="a number in base 2"),
        pytest.param("1_000", 1000, id="a number with its thousands apart"),
        pytest.param("-0", 0, id="nothing"),
        pytest.param("089", "089", id="digits that are not octal"),
        pytest.param("0x", "0x", id="a base without digits"),
        pytest.param("'010'", "010", id="what is quoted is a text"),
        pytest.param("1:30", "1:30", id="minutes are a text"),
        pytest.param("1000", 1000, id="a number"),
        pytest.param("1.5", 1.5, id="a fraction"),
        pytest.param("true", True, id="a truth value"),
        pytest.param("~", None, id="a null"),
    ],
)
def test_a_value_means_what_it_means_to_kubernetes(text, want) -> None:
    (found,) = read_text(f"kind: Pod\nmetadata: {{name: a}}\nvalue: {text}\n")

    assert found.body["value"] == want
    assert type(found.body["value"]) is type(want)


def test_every_key_is_a_text() -> None:
    (found,) = read_text("kind: Pod\nmetadata: {name: a, labels: {80: x, on: y, ~: z}}\n")

    assert found.body["metadata"]["labels"] == {"80": "x", "on": "y", "~": "z"}


# Workloads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("object_", "want"),
    [
        pytest.param(workload("Deployment"), 1, id="a Deployment has one Pod by default"),
        pytest.param(workload("Deployment", replicas=3), 3, id="or as many as it says"),
        pytest.param(workload("StatefulSet", replicas=2), 2, id="a StatefulSet likewise"),
        pytest.param(job(), 1, id="a Job has one Pod by default"),
        pytest.param(job(parallelism=3), 3, id="or its parallelism"),
        pytest.param(job(parallelism=3, completions=2), 2, id="but no more than its completions"),
        pytest.param(job(completions=5), 1, id="completions alone come one after another"),
        pytest.param(cron_job(), 1, id="a CronJob has those of one run"),
        pytest.param(cron_job(parallelism=3, completions=2), 2, id="which is a Job"),
    ],
)
def test_a_workload_stands_for_its_pods(object_, want) -> None:
    found = read_objects(object_)

    assert titles(found) == [f"Pod team/web-{number}" for number in range(want)]
    for each in found:
        assert each.body["metadata"]["name"] == each.name
        assert each.body["metadata"]["labels"] == {"app": "web"}
        assert each.body["spec"] == TEMPLATE["spec"]


# Red: `expanded` drops a workload without Pods.
@pytest.mark.parametrize(
    "object_",
    [
        pytest.param(workload("Deployment", replicas=0), id="a Deployment of none"),
        pytest.param(job(parallelism=3, suspend=True), id="a suspended Job"),
        pytest.param(cron_job(parallelism=0), id="a CronJob of none"),
        pytest.param(cron_job(suspend=True), id="a CronJob whose Job is suspended"),
        pytest.param({**cron_job(), "spec": {**cron_job()["spec"], "suspend": True}}, id="or it"),
        pytest.param(workload("DaemonSet"), id="a DaemonSet without nodes"),
    ],
)
def test_a_workload_without_pods_is_left_for_who_tells_of_it(object_) -> None:
    assert titles(read_objects(object_)) == [f"{object_['kind']} team/web"]


def test_a_daemon_set_has_a_pod_for_each_node_whoever_names_it() -> None:
    nodes = [build.node_object("b"), build.gpunode("a"), build.node_object("a")]

    found = read_objects(workload("DaemonSet"), *nodes)

    assert titles(found)[:2] == ["Pod team/web-a", "Pod team/web-b"]
    assert [each.only_node for each in found[:2]] == ["a", "b"]
    assert found[0].body["metadata"] == {
        "labels": {"app": "web"},
        "name": "web-a",
        "namespace": "team",
    }
    tolerated = {each["key"] for each in found[0].body["spec"]["tolerations"]}
    assert "node.kubernetes.io/unschedulable" in tolerated


def test_pods_of_two_workloads_with_one_name_are_kept_apart() -> None:
    found = read_objects(workload("Deployment", replicas=2), job())

    assert titles(found) == ["Pod team/web-0", "Pod team/web-1", "Pod team/web-job-0"]


def test_a_policy_on_the_workload_is_warned_of() -> None:
    deployment = workload("Deployment")
    deployment["metadata"]["annotations"] = {"hami.io/gpu-scheduler-policy": "mutex"}

    (found,) = read_objects(deployment)

    assert "hami.io/gpu-scheduler-policy" in found.warnings[0]
    assert "spec.template.metadata.annotations" in found.warnings[0]


def test_a_generated_name_is_completed_by_the_first_free_number() -> None:
    made = {"kind": "Pod", "metadata": {"generateName": "p-"}}

    assert titles(read_objects({"kind": "Pod", "metadata": {"name": "p-0"}}, made, made)) == [
        "Pod default/p-0",
        "Pod default/p-1",
        "Pod default/p-2",
    ]


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("kind: Pod\nmetadata: {\n", "f.yaml:3: it is not YAML", id="broken YAML"),
        pytest.param('{"kind": "Pod"\n', "f.yaml:2: it is not YAML", id="broken JSON"),
        pytest.param("a: 1\n---\nhello\n", "f.yaml:1: it is not a Kubernetes object", id="no kind"),
        pytest.param("kind: Pod\nmetadata: {name: a}\n---\n- 1\n", "f.yaml:4: ", id="a bare list"),
        pytest.param("kind: 5\n", "f.yaml:1: it is not a Kubernetes object", id="a number as kind"),
        pytest.param("kind: Pod\n", "f.yaml:1: this Pod has no name", id="no name"),
        pytest.param("kind: Node\nmetadata: {name: 5}\n", "this Node has no name", id="no text"),
        pytest.param(
            "kind: Pod\nmetadata: [1]\n", "f.yaml:1: the metadata", id="a list for the metadata"
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: a, namespace: [1]}\n",
            "namespace",
            id="a list for the namespace",
        ),
        pytest.param("kind: List\nitems: 5\n", "f.yaml:1: the items", id="a number for the items"),
        pytest.param("&a {kind: List, items: [*a]}", "recursive", id="what contains itself"),
        pytest.param(
            json.dumps(functools.reduce(lambda inner, _: listed(inner), range(20), listed())),
            "lists are nested too deep",
            id="lists nested deep",
        ),
        pytest.param("a: " + "[" * 50_000, "f.yaml:1: ", id="YAML nested deep"),
        pytest.param('{"a": ' * 50_000, "f.yaml:1: ", id="JSON nested deep"),
        pytest.param(
            "a: !!python/object:os.system {}\n",
            "f.yaml:1: it is not YAML",
            id="a tag that makes Python objects",
        ),
        pytest.param("a: !!set {b}\n", "f.yaml:1: it is not YAML", id="what JSON does not have"),
        pytest.param("\n\na: !!int x\n", "f.yaml:3: a value in it", id="a tag that does not fit"),
        pytest.param(f"a: {'9' * 5000}\n", "f.yaml:1: a value in it", id="a number of 5000 digits"),
        pytest.param('{"kind": "\\ud800"}', "f.yaml:1: ", id="half a surrogate pair"),
        pytest.param("a: \0\n", "f.yaml:1: it is not YAML", id="a zero byte"),
        pytest.param(
            "kind: Node\nmetadata: {name: a}\nmetadata: {name: b}\n",
            "f.yaml:3: it is not YAML: the key metadata is there twice.",
            id="a key twice: only one of them could count",
        ),
        pytest.param("? [a]\n: b\n", "a key is not a text", id="a list as a key"),
        pytest.param(
            "kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: a}\n",
            "f.yaml:4: Node a is there twice, first at f.yaml:1",
            id="one object twice",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_file_and_line(text, want) -> None:
    with pytest.raises(BadDocument) as caught:
        read_text(text)

    assert want in str(caught.value)
    assert str(caught.value).startswith("f.yaml:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("object_", "want"),
    [
        pytest.param(workload("Deployment", replicas="2"), "spec.replicas", id="a text"),
        pytest.param(workload("Deployment", replicas=-1), "spec.replicas", id="fewer than none"),
        pytest.param(workload("Deployment", replicas=10**9), "spec.replicas", id="too many"),
        pytest.param(job(parallelism=True), "spec.parallelism", id="a truth value"),
        pytest.param(
            workload("Deployment", template=[1]), "spec.template", id="a list for the template"
        ),
        pytest.param({**job(), "spec": "x"}, "spec of Job team/web", id="a text for the spec"),
    ],
)
def test_a_workload_that_cannot_be_read_names_the_field(object_, want) -> None:
    with pytest.raises(BadDocument, match=r"f\.yaml:1: ") as caught:
        read_objects(object_)

    assert want in str(caught.value)


# Files --------------------------------------------------------------------------------------------


def test_files_are_read_in_order_and_a_dash_is_standard_input(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\ufeffkind: Node\nmetadata: {name: a}\n", encoding="utf-8")
    stdin = io.TextIOWrapper(io.BytesIO(b"kind: Node\nmetadata: {name: b}\n"))
    monkeypatch.setattr(sys, "stdin", stdin)

    found = documents.read([str(path), "-"])

    assert [(each.name, each.where) for each in found] == [
        ("a", f"{path}:1"),
        ("b", "standard input:1"),
    ]


def test_standard_input_is_read_once(monkeypatch) -> None:
    # Red: the second dash reads nothing, and nobody is told.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}")))

    with pytest.raises(BadDocument, match=r"^standard input: it is named twice"):
        documents.read(["-", "-"])


@pytest.mark.parametrize(
    "name", ["missing.yaml", ".", "a\0b"], ids=["missing", "folder", "no name"]
)
def test_a_path_that_cannot_be_read_is_named(name, tmp_path) -> None:
    with pytest.raises(BadDocument, match="it can't be read"):
        documents.read([f"{tmp_path}/{name}"])


def test_a_file_that_is_not_utf8_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")

    with pytest.raises(BadDocument, match=r"a\.yaml:2: it is not UTF-8"):
        documents.read([str(path)])


# Rules --------------------------------------------------------------------------------------------


@given(st.text() | st.text(alphabet="{}[]:,-&*!\"'\n\t #?ak1.0~"))
def test_any_text_is_read_or_refused_with_its_file(text) -> None:
    assert (sentence_of(text) or "f.yaml:").startswith("f.yaml:")


@given(hostile.spoilt(st.sampled_from([workload("Deployment", replicas=2), job(parallelism=2)])))
def test_a_spoilt_workload_is_expanded_or_refused(object_) -> None:
    assert (sentence_of(json.dumps(object_)) or "f.yaml:").startswith("f.yaml:")


def sentence_of(text):
    try:
        read_text(text)
    except BadDocument as error:
        return str(error)
    return None


@given(hostile.JSON)
def test_what_json_can_say_comes_out_as_it_went_in(value) -> None:
    text = json.dumps({"kind": "Pod", "metadata": {"name": "a"}, "value": value})
    try:
        (found,) = read_text(text)
    except BadDocument:
        assert "\\ud" in text
        return

    assert json.dumps(found.body["value"]) == json.dumps(value)
