"""An API server on a loopback port: what a real client says to it, and answers of every kind.

``ApiServer`` answers what it is told to, broken answers included. ``ClusterServer`` serves a
``FakeCluster`` as far as a controller and Kopf ask: discovery, lists, watches, and the writes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from cardwise.errors import ApiError
from fakes.cluster import Change, FakeCluster, is_finished

Json = dict[str, Any]
TOKEN = "a-token"  # noqa: S105 - of a server that holds nothing


@dataclass(frozen=True)
class Seen:
    """One request, as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    raw: str
    """The path and query as they were sent."""


@dataclass(frozen=True)
class Reply:
    """One answer."""

    body: Any = field(default_factory=dict)
    """Bytes as they are, anything else as JSON."""
    status: int = 200
    delay: float = 0.0
    """Seconds before it."""
    cut: bool = False
    """Hang up in the middle of the body."""


class ApiServer:
    """Answers as told, one reply a request; the last one again and again."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies) or [Reply()]
        self.seen: list[Seen] = []
        self.hangs = False
        """Watches do not end by themselves, but when they are over."""
        self.over = asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ApiServer"]:
        """Listen on a free port."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def kubeconfig(self, directory: Path) -> str:
        """Write a kubeconfig that leads here; its path."""
        path = directory / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.url}}],
            "users": [{"name": "it", "user": {"token": TOKEN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        path.write_bytes(orjson.dumps(document))
        return str(path)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        seen = Seen(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            orjson.loads(raw) if raw else None,
            request.raw_path,
        )
        self.seen.append(seen)
        return await self.answer(seen, request)

    async def answer(self, seen: Seen, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        await asyncio.sleep(reply.delay)
        body = reply.body if isinstance(reply.body, bytes) else orjson.dumps(reply.body)
        if self.hangs and "watch" in seen.query:
            watch = web.StreamResponse(status=reply.status)
            await watch.prepare(request)
            await watch.write(body)
            await self.over.wait()
            await watch.write(body)
            return watch
        if reply.cut:
            response = web.StreamResponse(status=reply.status)
            response.content_length = len(body) + 100
            await response.prepare(request)
            await response.write(body)
            assert request.transport is not None
            request.transport.close()
            return response
        return web.Response(status=reply.status, body=body, content_type="application/json")


def status(code: int, message: str) -> Reply:
    """The API server's way to refuse."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return Reply({**body, "code": code}, code)


_KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "resourcequotas": "ResourceQuota",
    "gpunodes": "GPUNode",
    "deviceclasses": "DeviceClass",
    "namespaces": "Namespace",
    "customresourcedefinitions": "CustomResourceDefinition",
}
_GROUPS = {
    "/api/v1": ["pods", "nodes", "resourcequotas", "namespaces"],
    "/apis/cardwise.dev/v1alpha1": ["gpunodes"],
    # Kopf waits until it has seen these two.
    "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
}


class ClusterServer(ApiServer):
    """Serves a fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self._shown: list[Change] = []
        self._oldest = 0
        """No watch can begin before it."""
        self._news = asyncio.Condition()

    def forget(self) -> None:
        """What was shown so far can't be shown again."""
        self._oldest = self.cluster._version

    async def show(self) -> None:
        """Let the watches see what was written."""
        async with self._news:
            while self.cluster.changes:
                self._shown.append(self.cluster.changes.popleft())
            self._news.notify_all()

    async def answer(self, seen: Seen, request: web.Request) -> web.StreamResponse:
        """Answer as an API server does."""
        parts = seen.path.strip("/").split("/")
        if seen.method == "GET":
            return await self._read(seen, request, parts)
        try:
            await self._write(seen, parts)
        except ApiError as error:
            body = {"kind": "Status", "message": str(error)}
            return web.json_response(body, status=error.status or 500)
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _read(self, seen: Seen, request: web.Request, parts: list[str]) -> web.StreamResponse:
        if seen.path in ("/api", "/api/"):
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if seen.path in ("/apis", "/apis/"):
            groups = [_group(path) for path in _GROUPS if path.startswith("/apis/")]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if seen.path in _GROUPS:
            return web.json_response(_resources(seen.path))
        if parts[-1] in _KINDS and "watch" in seen.query:
            return await self._watch(_KINDS[parts[-1]], seen, request)
        if parts[-1] in _KINDS:
            return web.json_response(self._list(_KINDS[parts[-1]], seen))
        if parts[-2] in ("pods", "leases"):
            kind = {"pods": "Pod", "leases": "Lease"}[parts[-2]]
            found = self.cluster.objects[kind].get((parts[-3], parts[-1]))
            return web.json_response(
                found or {"message": "not found"}, status=200 if found else 404
            )
        return web.json_response({"message": "not found"}, status=404)

    def _list(self, kind: str, seen: Seen) -> Json:
        found = self.cluster.objects[kind].values()
        unfinished = "fieldSelector" in seen.query
        return {
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": str(self.cluster._version)},
            "items": [each for each in found if not (unfinished and is_finished(each))],
        }

    async def _watch(self, kind: str, seen: Seen, request: web.Request) -> web.StreamResponse:
        since = int(seen.query.get("resourceVersion", "0"))
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        if 0 < since < self._oldest:
            message = f"too old resource version: {since} ({self._oldest})"
            body = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
            line = {"type": "ERROR", "object": {**body, "message": message}}
            await response.write(orjson.dumps(line) + b"\n")
            return response
        seconds = float(seen.query.get("timeoutSeconds", 3600))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._follow(kind, since, response)
        return response

    async def _follow(self, kind: str, since: int, response: web.StreamResponse) -> None:
        told = 0
        while True:
            async with self._news:
                while len(self._shown) == told:
                    await self._news.wait()
                news, told = self._shown[told:], len(self._shown)
            for change in news:
                version = int(change.object["metadata"].get("resourceVersion", "0"))
                if change.kind == kind and version > since:
                    line = {"type": change.type, "object": change.object}
                    await response.write(orjson.dumps(line) + b"\n")

    async def _write(self, seen: Seen, parts: list[str]) -> None:
        write = {
            "binding": lambda: self.cluster.bind(seen.body, within=10.0),
            "events": lambda: self.cluster.create_event(seen.body),
            "status": lambda: self.cluster.apply_gpunode_status(
                parts[-2], seen.body["status"], seen.query["fieldManager"]
            ),
        }.get(parts[-1]) or self._annotating(seen, parts)
        await write()

    def _annotating(self, seen: Seen, parts: list[str]) -> Callable[[], Awaitable[None]]:
        [(key, value)] = seen.body["metadata"]["annotations"].items()
        if parts[-2] == "nodes":
            return lambda: self.cluster.annotate_node(parts[-1], key, value)
        return lambda: self.cluster.annotate_pod(parts[-3], parts[-1], key, value)


def _group(path: str) -> Json:
    name, _, version = path.removeprefix("/apis/").partition("/")
    versions = [{"groupVersion": f"{name}/{version}", "version": version}]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(path: str) -> Json:
    return {
        "kind": "APIResourceList",
        "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
        "resources": [
            {
                "name": plural,
                "singularName": _KINDS[plural].lower(),
                "kind": _KINDS[plural],
                "namespaced": plural in ("pods", "resourcequotas"),
                "verbs": ["get", "list", "watch", "patch"],
            }
            for plural in _GROUPS[path]
        ],
    }
