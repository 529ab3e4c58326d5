"""Where a Pod's claims let it go, what it waits for, and what is kube-scheduler's alone."""

import pytest

import build
from cardwise.names import NodeReason
from cardwise.noderules import ANYWHERE, Needs, NodeBook, Volumes

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}


def claim(name="data", *, volume="v", annotations=BOUND, owner=None, **fields):
    metadata = {"name": name, "namespace": "default", "annotations": dict(annotations)}
    metadata.update(fields.pop("metadata", {}))
    if owner is not None:
        metadata["ownerReferences"] = [{"uid": "x"}, {"uid": owner, "controller": True}]
    spec = {"volumeName": volume, "storageClassName": "fast", **fields.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, **fields}


def volume(name="v", *, labels=None, terms=None, **spec):
    if terms is not None:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def storage_class(mode, name="fast"):
    return {"metadata": {"name": name}, "volumeBindingMode": mode}


def using(*names, ephemeral=()):
    pod = build.pod("p", gpus=None, uid="uid-p")
    pod["spec"]["volumes"] = [
        *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names),
        *({"name": name, "ephemeral": {}} for name in ephemeral),
        {"name": "cache", "emptyDir": {}},
    ]
    return Needs(pod)


def known(*, claims=(), volumes=(), classes=()):
    made = Volumes()
    for each in claims:
        made.apply_claim(each)
    for each in volumes:
        made.apply_volume(each)
    for each in classes:
        made.apply_class(each)
    return made


def test_without_claims_a_pod_can_go_anywhere() -> None:
    judged = known().judge(using())

    assert judged == (ANYWHERE, "", "")


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param({}, "PersistentVolumeClaim data", id="no claim"),
        pytest.param(
            {"claims": [claim(metadata={"deletionTimestamp": "2026-11-29T12:00:00Z"})]},
            "PersistentVolumeClaim data",
            id="a claim that is being deleted",
        ),
        pytest.param(
            {"claims": [claim(status={"phase": "Lost"})]},
            "PersistentVolumeClaim data",
            id="a claim that lost its volume",
        ),
        pytest.param(
            {"claims": [claim(volume="")], "classes": [storage_class("Immediate")]},
            "PersistentVolumeClaim data to be bound",
            id="unbound, to be bound at once",
        ),
        pytest.param(
            {"claims": [claim(volume="")]},
            "PersistentVolumeClaim data to be bound",
            id="unbound, of a class that is not there",
        ),
        pytest.param(
            {
                "claims": [claim(annotations={})],
                "volumes": [volume()],
                "classes": [storage_class("WaitForFirstConsumer")],
            },
            "PersistentVolumeClaim data to be bound",
            id="its volume is named, but not bound yet",
        ),
        pytest.param({"claims": [claim()]}, "PersistentVolume v", id="no volume"),
    ],
)
def test_a_pod_waits_for(objects, want) -> None:
    judged = known(**objects).judge(using("data"))

    assert judged == (ANYWHERE, want, "")


FIELD = "spec.volumes.persistentVolumeClaim (data: "


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            {"claims": [claim(volume="")], "classes": [storage_class("WaitForFirstConsumer")]},
            "WaitForFirstConsumer",
            id="unbound until somebody comes",
        ),
        pytest.param(
            {
                "claims": [
                    claim(
                        volume="", annotations={"volume.beta.kubernetes.io/storage-class": "late"}
                    )
                ],
                "classes": [storage_class("WaitForFirstConsumer", name="late")],
            },
            "WaitForFirstConsumer",
            id="its class in the old annotation",
        ),
        pytest.param(
            {"claims": [claim(spec={"accessModes": ["ReadWriteOncePod"]})], "volumes": [volume()]},
            "ReadWriteOncePod",
            id="for one Pod alone",
        ),
        pytest.param(
            {"claims": [claim()], "volumes": [volume(gcePersistentDisk={"pdName": "d"})]},
            "a volume of a built-in kind",
            id="of a kind that is rewritten",
        ),
    ],
)
def test_what_only_kube_scheduler_decides_is_named(objects, want) -> None:
    judged = known(**objects).judge(using("data"))

    assert judged == (ANYWHERE, "", f"{FIELD}{want})")


@pytest.mark.parametrize(
    ("owner", "waits_for"),
    [
        pytest.param("uid-p", "", id="its own"),
        pytest.param("uid-q", "PersistentVolumeClaim p-scratch", id="another Pod's"),
        pytest.param(None, "PersistentVolumeClaim p-scratch", id="nobody's"),
    ],
)
def test_a_volume_made_for_the_pod_must_be_its_own(owner, waits_for) -> None:
    volumes = known(claims=[claim("p-scratch", owner=owner)], volumes=[volume()])

    assert volumes.judge(using(ephemeral=["scratch"])).waits_for == waits_for


def where(key, operator, *values, **term):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}], **term}


NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}]}


@pytest.mark.parametrize(
    ("node_labels", "volume_json", "fits"),
    [
        pytest.param({}, volume(), True, id="a volume of anywhere"),
        pytest.param({"disk": "a"}, volume(terms=[where("disk", "In", "a")]), True, id="affinity"),
        pytest.param({"disk": "b"}, volume(terms=[where("disk", "In", "a")]), False, id="another"),
        pytest.param({"disk": "b"}, volume(terms=[]), False, id="no alternative"),
        pytest.param(
            {"disk": "a"},
            volume(terms=[where("disk", "In", "a", **NAMED)]),
            True,
            id="names are not looked at, as kube-scheduler has it",
        ),
        pytest.param({ZONE: "a"}, volume(labels={ZONE: "a"}), True, id="its zone"),
        pytest.param({ZONE: "b"}, volume(labels={ZONE: "a"}), False, id="another zone"),
        pytest.param({ZONE: "b"}, volume(labels={ZONE: "a__b"}), True, id="one of its zones"),
        pytest.param({ZONE: "b"}, volume(labels={ZONE: "a____c"}), True, id="unreadable zones"),
        pytest.param({"disk": "a"}, volume(labels={ZONE: "a"}), True, id="a node of no zone"),
        pytest.param(
            {"topology.kubernetes.io/region": "r"},
            volume(labels={ZONE: "a"}),
            False,
            id="a node of a region, but of no zone",
        ),
        pytest.param({ZONE: "a"}, volume(labels={BETA_ZONE: "a"}), True, id="the older label"),
        pytest.param({BETA_ZONE: "b"}, volume(labels={BETA_ZONE: "a"}), False, id="older, other"),
        pytest.param({BETA_ZONE: "a"}, volume(labels={ZONE: "a"}), False, id="an older node"),
    ],
)
def test_a_bound_volume_lets_a_pod_go_to(node_labels, volume_json, fits) -> None:
    book = NodeBook()
    book.apply_node(build.node_object("n1", labels=node_labels))
    needs = using("data")

    judged = known(claims=[claim()], volumes=[volume_json]).judge(needs)

    assert book.refusal(needs, "n1", judged.reach) is (None if fits else NodeReason.VOLUMES)


def test_every_volume_must_allow_the_node() -> None:
    volumes = known(
        claims=[claim("one", volume="one"), claim("two", volume="two")],
        volumes=[volume("one", labels={ZONE: "a"}), volume("two", labels={ZONE: "b"})],
    )
    book = NodeBook()
    for zone in "ab":
        book.apply_node(build.node_object(zone, labels={ZONE: zone}))
    needs = using("one", "two")

    refusals = book.refusals(needs, ("a", "b"), volumes.judge(needs).reach)

    assert refusals == dict.fromkeys("ab", NodeReason.VOLUMES)


def test_pods_that_differ_in_their_volumes_alone_get_their_own_answers() -> None:
    volumes = known(
        claims=[claim("one", volume="one"), claim("two", volume="two")],
        volumes=[volume("one", labels={ZONE: "a"}), volume("two", labels={ZONE: "b"})],
    )
    book = NodeBook()
    for zone in "ab":
        book.apply_node(build.node_object(zone, labels={ZONE: zone}))

    refused = [
        set(book.refusals(needs, ("a", "b"), volumes.judge(needs).reach))
        for needs in (using("one"), using("two"), using())
    ]

    assert refused == [{"b"}, {"a"}, set()]


def test_the_zone_of_a_volume_made_for_the_pod_is_not_looked_at() -> None:
    volumes = known(
        claims=[claim("p-scratch", owner="uid-p")], volumes=[volume(labels={ZONE: "a"})]
    )
    book = NodeBook()
    book.apply_node(build.node_object("n1", labels={ZONE: "b"}))
    needs = using(ephemeral=["scratch"])

    assert book.refusal(needs, "n1", volumes.judge(needs).reach) is None


def test_the_version_counts_what_changed() -> None:
    volumes = known(claims=[claim()], volumes=[volume()], classes=[storage_class("Immediate")])
    before = volumes.version
    volumes.apply_claim(claim())
    volumes.apply_volume(volume())
    volumes.apply_class(storage_class("Immediate"))
    volumes.remove_claim("default", "none")
    assert volumes.version == before

    volumes.remove_class("fast")
    volumes.remove_volume("v")
    assert volumes.judge(using("data")).waits_for == "PersistentVolume v"
    volumes.remove_claim("default", "data")
    assert volumes.judge(using("data")).waits_for == "PersistentVolumeClaim data"
    assert volumes.version == before + 3
