"""What the command line reads of an API server, and which one it asks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardwise.cli.connecting import asked
from cardwise.errors import ApiError
from cardwise.kube import connect, namespace_of
from cardwise.kube.reader import KubeReader
from cardwise.model import PodRef
from fakes.apiserver import ApiServer, Reply, status

# Real sockets keep real time.
pytestmark = pytest.mark.looptime(False)

Json = dict[str, Any]
DEPLOYMENT = {
    "spec": {
        "template": {
            "spec": {
                "volumes": [
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "s", "configMap": {"name": "cardwise-settings-k2h7"}},
                ]
            }
        }
    }
}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def reader(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubeReader]:
    client = await connect(server.kubeconfig(tmp_path))
    yield KubeReader(client)
    await client.close()


async def test_of_nodes_the_metadata_can_be_had_alone(
    server: ApiServer, reader: KubeReader
) -> None:
    server.replies = [Reply({"items": [{"metadata": {"name": "n1"}}]})]

    found = [page async for page in reader.node_metadata()]

    assert found == [[{"metadata": {"name": "n1"}}]]
    assert "as=PartialObjectMetadataList" in server.seen[0].headers["Accept"]


async def test_nodes_that_take_no_pod_are_asked_for_alone(
    server: ApiServer, reader: KubeReader
) -> None:
    server.replies = [Reply({"items": []})]

    assert [page async for page in reader.cordoned_nodes()] == [[]]
    assert server.seen[0].query["fieldSelector"] == "spec.unschedulable=true"


async def test_events_are_those_of_the_pod_and_no_namesakes(
    server: ApiServer, reader: KubeReader
) -> None:
    server.replies = [Reply({"items": [{"reason": "A"}]})]

    assert await reader.events(PodRef("ns", "p", "uid-1")) == [{"reason": "A"}]

    [seen] = server.seen
    assert seen.path == "/api/v1/namespaces/ns/events"
    assert seen.query["fieldSelector"] == "involvedObject.uid=uid-1"


async def test_the_settings_are_those_that_the_installed_controller_reads(
    server: ApiServer, reader: KubeReader
) -> None:
    server.replies = [Reply(DEPLOYMENT), Reply({"data": {"cardwise.yaml": "scheduling: {}"}})]

    assert await reader.settings() == "scheduling: {}"

    assert server.seen[-1].path.endswith("/configmaps/cardwise-settings-k2h7")


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param([status(404, "not found")], id="no controller"),
        pytest.param([Reply({})], id="a controller without settings"),
        pytest.param([Reply(DEPLOYMENT), status(404, "not found")], id="their ConfigMap went"),
    ],
)
async def test_where_no_settings_are_to_be_had_there_are_none(
    server: ApiServer, reader: KubeReader, replies: list[Reply]
) -> None:
    server.replies = replies

    assert await reader.settings() is None


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_step_of_a_path_is_no_pod(server: ApiServer, reader: KubeReader, name: str) -> None:
    with pytest.raises(ApiError, match="nothing is named"):
        await reader.pod("default", name)

    assert server.seen == []


async def test_the_time_is_the_api_servers(reader: KubeReader) -> None:
    before = reader.now()
    reader._client.date = "Sun, 29 Nov 2026 12:00:30 GMT"

    assert reader.now() == 1_795_953_630.0
    assert before != reader.now()


async def test_an_answer_tells_the_time(server: ApiServer, reader: KubeReader) -> None:
    await reader.pod("default", "p")

    assert reader._client.date.endswith("GMT")


# Which cluster, and which namespace ---------------------------------------------------------------


def written(path: Path, *contexts: tuple[str, str, str], current: str = "here") -> str:
    """A kubeconfig of contexts: name, server, namespace."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "users": [{"name": "me", "user": {"token": "x"}}],
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url, _ in contexts],
        "contexts": [
            {
                "name": name,
                "context": {
                    "cluster": name,
                    "user": "me",
                    **({"namespace": space} if space else {}),
                },
            }
            for name, _, space in contexts
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


AWAY = "http://127.0.0.1:1"
MEANT = [
    pytest.param(None, "team", id="of the current context"),
    pytest.param("there", "default", id="of a context that names none"),
    pytest.param("other", "its-own", id="of another context"),
]


@pytest.mark.parametrize(("context", "namespace"), MEANT)
def test_the_namespace_is_the_contexts(tmp_path: Path, context: str | None, namespace: str) -> None:
    contexts = (("here", AWAY, "team"), ("there", AWAY, ""), ("other", AWAY, "its-own"))

    assert namespace_of(written(tmp_path / "config", *contexts), context) == namespace


async def test_a_context_leads_to_its_cluster(server: ApiServer, tmp_path: Path) -> None:
    path = written(tmp_path / "config", ("here", AWAY, ""), ("there", server.url, ""))

    client = await connect(path, "there")
    try:
        await client.request("GET", "/version")
    finally:
        await client.close()

    assert [seen.path for seen in server.seen] == ["/version"]


async def test_a_context_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    path = written(tmp_path / "config", ("here", AWAY, ""))

    with pytest.raises(ApiError, match=r"no cluster to talk to: .*nowhere"):
        await connect(path, "nowhere")


def test_of_several_kubeconfigs_those_that_are_there_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "config", ("here", AWAY, "team"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{path}")

    assert namespace_of() == "team"


def test_without_any_kubeconfig_the_error_names_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/a:/nowhere/b")

    with pytest.raises(ApiError, match="there is no kubeconfig /nowhere/a, /nowhere/b"):
        namespace_of()


def test_a_command_hangs_up_when_its_question_fails(tmp_path: Path) -> None:
    """Warnings are errors here: a connection that was left open would be one."""
    path = written(tmp_path / "config", ("here", AWAY, ""))

    async def ask(reader: Any) -> Json:
        found: Json = await reader.pod("default", "p")
        return found

    with pytest.raises(Exception, match="no answer from the API server"):
        asked(path, None, ask)
