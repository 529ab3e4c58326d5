"""Requests to an API server on a real socket: what is sent, and what is made of every answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from cardwise.errors import ApiError
from cardwise.kube import Client, connect
from fakes.apiserver import TOKEN, ApiServer, Reply, status

# Real sockets keep real time.
pytestmark = pytest.mark.looptime(False)

Json = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def client(server: ApiServer, tmp_path: Path) -> AsyncIterator[Client]:
    client = await connect(server.kubeconfig(tmp_path))
    yield client
    await client.close()


async def failure(client: Client, *replies: Reply, within: float = 2.0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await client.request("GET", "/api/v1/nodes", within=within)
    return caught.value


# Requests -----------------------------------------------------------------------------------------


async def test_what_is_sent(server: ApiServer, client: Client) -> None:
    server.replies = [Reply({"kind": "Thing"}, 201)]

    answer = await client.request(
        "PATCH",
        "/apis/a/v1/things/x",
        query={"force": "true", "odd": "a&b=c"},
        body={"text": "ü", "number": 1},
        content_type="application/merge-patch+json",
    )

    assert answer == {"kind": "Thing"}
    [seen] = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/apis/a/v1/things/x")
    assert seen.query == {"force": "true", "odd": "a&b=c"}
    assert seen.body == {"text": "ü", "number": 1}
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.headers["Accept"] == "application/json"
    assert seen.headers["Authorization"] == f"Bearer {TOKEN}"


async def test_a_password_that_the_machine_has_for_the_host_is_not_sent(
    server: ApiServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else")
    monkeypatch.setenv("NETRC", str(netrc))

    await client.request("GET", "/api/v1/pods")

    assert server.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("configured", "environment", "reached"),
    [
        pytest.param(False, {"http_proxy": "PROXY"}, True, id="as the environment says"),
        pytest.param(True, {}, True, id="as the kubeconfig says"),
        pytest.param(True, {"http_proxy": "http://127.0.0.1:1"}, True, id="the kubeconfig counts"),
        pytest.param(
            False, {"http_proxy": "PROXY", "no_proxy": "api.invalid"}, False, id="not for this host"
        ),
        pytest.param(False, {"https_proxy": "PROXY"}, False, id="not for this scheme"),
    ],
)
async def test_the_api_server_is_reached_by_a_proxy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: bool,
    environment: dict[str, str],
    reached: bool,
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with ApiServer().running() as proxy:
        for name, value in environment.items():
            monkeypatch.setenv(name, value.replace("PROXY", proxy.url))
        behind = ApiServer()
        behind.url = "http://api.invalid"
        kubeconfig = behind.kubeconfig(tmp_path)
        if configured:
            _say_proxy(Path(kubeconfig), proxy.url)
        client = await connect(kubeconfig)
        try:
            with contextlib.suppress(ApiError):  # there is no such host
                await client.request("GET", "/api/v1/pods", within=1.0)
        finally:
            await client.close()

    assert [seen.path for seen in proxy.seen] == ["/api/v1/pods"] * reached


def _say_proxy(kubeconfig: Path, url: str) -> None:
    document = orjson.loads(kubeconfig.read_bytes())
    document["clusters"][0]["cluster"]["proxy-url"] = url
    kubeconfig.write_bytes(orjson.dumps(document))


async def test_without_a_body_none_is_sent(server: ApiServer, client: Client) -> None:
    await client.request("GET", "/api/v1/pods")

    assert server.seen[0].body is None


@pytest.mark.parametrize(
    ("reply", "want_status", "message"),
    [
        pytest.param(status(403, "no right"), 403, "no right", id="it is forbidden"),
        pytest.param(status(404, "none such"), 404, "none such", id="not there"),
        pytest.param(status(409, "it is\nbound"), 409, "it is bound", id="a conflict, on one line"),
        pytest.param(status(410, "too old"), 410, "too old", id="too old"),
        pytest.param(status(422, "x" * 900), 422, "x" * 300 + "…", id="a long message is cut"),
        pytest.param(status(429, "slow down"), 429, "slow down", id="too many"),
        pytest.param(Reply(b"broken pipe", 500), 500, "broken pipe", id="no JSON"),
        pytest.param(Reply(b"\xff\xfe", 502), 502, "��", id="no text"),
        pytest.param(Reply(b"", 503), 503, "status 503", id="an empty answer"),
        pytest.param(Reply([1], 500), 500, "[1]", id="a list"),
        pytest.param(Reply({"reason": "x"}, 500), 500, '{"reason":"x"}', id="no message in it"),
        pytest.param(
            Reply({"message": None}, 500), 500, '{"message":null}', id="a message that is none"
        ),
        pytest.param(Reply(b"{", 200), None, "is not JSON", id="a good status, and no JSON"),
        pytest.param(Reply([], 200), None, "is not an object", id="a good status, and a list"),
        pytest.param(Reply({"a": 1}, cut=True), None, "no answer", id="cut off in the middle"),
        pytest.param(Reply(delay=5.0), None, "no answer", id="too late"),
    ],
)
async def test_what_is_made_of_an_answer(
    server: ApiServer, client: Client, reply: Reply, want_status: int | None, message: str
) -> None:
    server.replies = [reply]

    error = await failure(client, within=0.3)

    assert error.status == want_status
    assert message in str(error)
    assert "\n" not in str(error)


async def test_a_server_that_is_not_there_gives_no_status(
    server: ApiServer, tmp_path: Path
) -> None:
    server.url = "http://127.0.0.1:1"
    client = await connect(server.kubeconfig(tmp_path))

    error = await failure(client)

    assert error.status is None
    assert "no answer from the API server" in str(error)
    await client.close()


async def test_an_answer_that_was_lost_does_not_spoil_the_next(
    server: ApiServer, client: Client
) -> None:
    server.replies = [Reply({"a": 1}, cut=True), Reply({"a": 2})]
    await failure(client)

    assert await client.request("GET", "/api/v1/nodes") == {"a": 2}


async def test_a_cancelled_request_is_cancelled(server: ApiServer, client: Client) -> None:
    server.replies = [Reply(delay=3.0)]
    task = asyncio.create_task(client.request("GET", "/api/v1/nodes"))
    await asyncio.sleep(0.05)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


# Lists --------------------------------------------------------------------------------------------


def page(*names: str, more: str = "") -> Reply:
    metadata = {"resourceVersion": "7", **({"continue": more} if more else {})}
    return Reply({"metadata": metadata, "items": [{"metadata": {"name": it}} for it in names]})


async def listed(client: Client, **options: Any) -> list[list[str]]:
    return [
        [item["metadata"]["name"] for item in items]
        async for items in client.pages("/api/v1/pods", **options)
    ]


async def test_pages_are_followed_to_the_end(server: ApiServer, client: Client) -> None:
    server.replies = [page("a", "b", more="t1"), page("c", more="t2"), page("d")]

    pages = await listed(client, query={"fieldSelector": "status.phase!=Failed"}, limit=2)

    assert pages == [["a", "b"], ["c"], ["d"]]
    assert [it.query for it in server.seen] == [
        {"fieldSelector": "status.phase!=Failed", "limit": "2"},
        {"fieldSelector": "status.phase!=Failed", "limit": "2", "continue": "t1"},
        {"fieldSelector": "status.phase!=Failed", "limit": "2", "continue": "t2"},
    ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="an empty object"),
        pytest.param({"items": None, "metadata": None}, id="nulls for both"),
        pytest.param({"items": [], "metadata": {"continue": ""}}, id="an empty page"),
    ],
)
async def test_an_empty_list_is_one_empty_page(
    server: ApiServer, client: Client, body: Json
) -> None:
    server.replies = [Reply(body)]

    assert await listed(client) == [[]]


@pytest.mark.parametrize("last", [status(410, "expired"), status(500, "broken"), Reply(cut=True)])
async def test_a_page_that_fails_ends_the_list_with_an_error(
    server: ApiServer, client: Client, last: Reply
) -> None:
    server.replies = [page("a", more="t"), last]

    with pytest.raises(ApiError) as caught:
        await listed(client)

    assert len(server.seen) == 2
    assert caught.value.status == (None if last.cut else last.status)


# Watches ------------------------------------------------------------------------------------------


def event(kind: str, name: str, **more: Any) -> bytes:
    thing = {"metadata": {"name": name}, **more}
    return orjson.dumps({"type": kind, "object": thing}) + b"\n"


async def watched(client: Client, **options: Any) -> list[tuple[str, str]]:
    query = {"fieldSelector": "metadata.name=n1"}
    return [
        (each["type"], each["object"]["metadata"]["name"])
        async for each in client.watch("/api/v1/nodes", query=query, **options)
    ]


async def test_a_watch_tells_every_event_until_it_ends(server: ApiServer, client: Client) -> None:
    server.replies = [Reply(event("ADDED", "a") + b"\n" + event("DELETED", "b"))]

    events = await watched(client, seconds=7)

    assert events == [("ADDED", "a"), ("DELETED", "b")]
    [seen] = server.seen
    assert seen.query == {
        "fieldSelector": "metadata.name=n1",
        "watch": "true",
        "timeoutSeconds": "7",
    }
    assert seen.headers["Authorization"] == f"Bearer {TOKEN}"


async def test_an_event_may_be_longer_than_any_buffer(server: ApiServer, client: Client) -> None:
    server.replies = [Reply(event("ADDED", "a", status="x" * 2_000_000) + event("MODIFIED", "a"))]

    assert await watched(client) == [("ADDED", "a"), ("MODIFIED", "a")]


async def test_events_come_while_the_watch_goes_on(server: ApiServer, client: Client) -> None:
    server.hangs = True
    server.replies = [Reply(event("ADDED", "a"))]
    watch = client.watch("/api/v1/nodes")

    first = await asyncio.wait_for(anext(watch), 2)
    server.over.set()

    assert first["type"] == "ADDED"
    assert [each["type"] async for each in watch] == ["ADDED"]


@pytest.mark.parametrize(
    ("reply", "want_status", "message"),
    [
        pytest.param(status(403, "no right"), 403, "no right", id="it is forbidden"),
        pytest.param(
            Reply(event("ERROR", "x", code=410, message="too old")), 410, "too old", id="too old"
        ),
        pytest.param(Reply(event("ERROR", "x")), None, "metadata", id="an error without a code"),
        pytest.param(Reply(b"{\n"), None, "is not JSON", id="no JSON"),
        pytest.param(Reply(b"[]\n"), None, "has no object", id="a list"),
        pytest.param(Reply(b'{"type": "ADDED"}\n'), None, "has no object", id="no object in it"),
        pytest.param(Reply(b"", cut=True), None, "was cut off", id="cut off"),
    ],
)
async def test_what_ends_a_watch(
    server: ApiServer, client: Client, reply: Reply, want_status: int | None, message: str
) -> None:
    server.replies = [reply]

    with pytest.raises(ApiError, match=message) as caught:
        await watched(client)

    assert caught.value.status == want_status


async def test_a_watch_that_the_server_never_ends_is_ended(
    server: ApiServer, client: Client
) -> None:
    server.hangs = True
    server.replies = [Reply(event("ADDED", "a"))]

    with pytest.raises(ApiError, match="was cut off"):
        # 15 s more than the server was asked for.
        await watched(client, seconds=-14)


# Credentials --------------------------------------------------------------------------------------


async def test_credentials_are_handed_on(server: ApiServer, client: Client) -> None:
    known = await client.credentials()

    assert (known.server, known.authorization) == (server.url, f"Bearer {TOKEN}")
    assert known.insecure is False
    assert known.certificate_file is known.key_file is None


async def test_a_kubeconfig_in_the_environment_is_found(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", server.kubeconfig(tmp_path))
    client = await connect()

    assert await client.request("GET", "/version") == {}
    await client.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="no file"),
        pytest.param("{}", id="an empty one"),
        pytest.param("clusters: [", id="no YAML"),
        pytest.param("current-context: x\ncontexts: []\n", id="a context that is not in it"),
        pytest.param("[1, 2]", id="a list"),
    ],
)
async def test_a_kubeconfig_that_can_not_be_read_is_one_sentence(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ApiError, match="no cluster to talk to") as caught:
        await connect(str(path))

    assert caught.value.status is None
    assert "\n" not in str(caught.value)


async def test_a_kubeconfig_that_is_a_directory_is_told_without_its_number(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=f"to: {tmp_path} can't be read: Is a directory$"):
        await connect(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("root:x:0:0:root:/root:/bin/bash", id="plain text"),
        pytest.param("a: 1\n---\nb: 2\n", id="two documents"),
        pytest.param("[1, 2]", id="a list"),
    ],
)
async def test_a_file_of_another_kind_is_told_to_be_no_kubeconfig(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "passwd"
    path.write_text(text)

    with pytest.raises(ApiError, match=f"{path} is not written as a kubeconfig is"):
        await connect(str(path))
