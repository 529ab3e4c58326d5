"""One connection to an API server: requests with a deadline, answers as plain JSON."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import kubernetes_asyncio
import orjson
import yaml

from cardwise.errors import ApiError

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_NAMESPACE = _SERVICE_ACCOUNT.with_name("namespace")
_DEFAULT_NAMESPACE = "default"
_ODD_FILES = (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError)
"""What a kubeconfig of another shape makes the library raise."""
LIST_SECONDS = 30.0
"""How long one chunk of a list may take; 500 Pods take less than one."""
WATCH_SECONDS = 300
"""How long a watch lasts; also how late a connection that died silently may be noticed."""
_GRACE_SECONDS = 15.0
"""By how much the API server may be late with ending a watch."""
_BUFFER_BYTES = 2**21
"""What of an answer may have come and not been read yet: an object may have 1.5 MiB."""
PAGE = 100
"""Objects on a page of a list: its JSON is read in one go, and nothing is answered meanwhile. Of
GPUNodes some 3 ms."""
_SHOWN = 300
"""Characters of an API server's message that are kept: enough to act on, safe to log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """How to reach the API server."""

    server: str
    authorization: str
    """The header's value, e.g. ``Bearer …``; empty where a certificate speaks."""
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    insecure: bool


class Client:
    """Requests to one API server."""

    def __init__(self, api: kubernetes_asyncio.client.ApiClient) -> None:
        self._api = api
        self._host: str = (api.configuration.host or "").rstrip("/")
        # Not the library's own session: that one asks the environment for proxies, and ~/.netrc for
        # passwords, before every request, in two threads one after the other.
        self._session = aiohttp.ClientSession(
            connector=api.rest_client.pool_manager.connector,
            connector_owner=False,
            proxy=_proxy(self._host, api.configuration.proxy),
            read_bufsize=_BUFFER_BYTES,
        )
        self.date = ""
        """The header Date of the last answer: the API server's clock; empty where none said it."""

    async def credentials(self) -> Credentials:
        """Where and as whom this client speaks, with a fresh token: for another's connection."""
        headers: dict[str, str] = {}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        configuration = self._api.configuration
        return Credentials(
            server=self._host,
            authorization=headers.get("authorization", ""),
            ca_file=configuration.ssl_ca_cert,
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
            insecure=not configuration.verify_ssl,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
        await self._api.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        within: float = 10.0,
    ) -> dict[str, Any]:
        """Send one request and read the whole answer.

        Args:
            method: GET, POST, PATCH, …
            path: from ``/api`` or ``/apis`` on.
            query: URL parameters.
            body: turned into JSON.
            content_type: of the body.
            accept: the form of the answer, some JSON.
            within: seconds for all of it.

        Raises:
            ApiError: the API server refused (with its status), or the outcome is not known
                (status None: no connection, cut off, too late, or not JSON).
        """
        headers = {"Content-Type": content_type, "Accept": accept}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        try:
            async with self._session.request(
                method,
                self._host + path,
                params=query,
                data=None if body is None else orjson.dumps(body),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=within),
            ) as response:
                status, text = response.status, await response.read()
                self.date = response.headers.get("Date", "")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(None, f"no answer from the API server: {_cut(error)}") from error
        if status >= 400:
            raise ApiError(status, _message(text) or f"status {status}")
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ApiError(None, "the API server's answer is not JSON") from error
        if not isinstance(answer, dict):
            raise ApiError(None, "the API server's answer is not an object")
        return answer

    async def pages(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        limit: int = PAGE,
        accept: str = "application/json",
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """List a collection in chunks that belong to one consistent state (a quorum read).

        Raises:
            ApiError: as ``request``; status 410 when the list took too long to be continued.
        """
        query = {**(query or {}), "limit": str(limit)}
        while True:
            answer = await self.request(
                "GET", path, query=query, accept=accept, within=LIST_SECONDS
            )
            yield answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return
            query = {**query, "continue": token}
            # A long list must not keep the loop from answering kube-scheduler.
            await asyncio.sleep(0)

    async def watch(
        self, path: str, *, query: Mapping[str, str] | None = None, seconds: int = WATCH_SECONDS
    ) -> AsyncIterator[dict[str, Any]]:
        """Follow a collection until the API server ends the watch, as it does after ``seconds``.

        What is there at the beginning comes first, as ``ADDED``: nothing needs to be listed.

        Yields:
            events: ``{"type": "ADDED|MODIFIED|DELETED", "object": …}``.

        Raises:
            ApiError: as ``request``; also for an event ``ERROR``, with its status.
        """
        headers = {"Accept": "application/json"}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        # A connection that died without a word would else be waited on for ever.
        timeout = aiohttp.ClientTimeout(total=seconds + _GRACE_SECONDS, sock_connect=10.0)
        try:
            async with self._session.get(
                self._host + path,
                params={**(query or {}), "watch": "true", "timeoutSeconds": str(seconds)},
                headers=headers,
                timeout=timeout,
            ) as response:
                if response.status >= 400:
                    text = await response.read()
                    raise ApiError(response.status, _message(text) or f"status {response.status}")
                async for line in _lines(response.content):
                    yield _event(line)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiError(None, f"the watch was cut off: {_cut(error)}") from error


async def or_none(answer: Awaitable[dict[str, Any]]) -> dict[str, Any] | None:
    """The answer to a request; None where the API server knows no such object.

    Raises:
        ApiError: as ``Client.request``, but for status 404.
    """
    try:
        return await answer
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def connect(kubeconfig: str | None = None, context: str | None = None) -> Client:
    """Connect as a kubeconfig says, or as the ServiceAccount of the Pod this runs in.

    Args:
        kubeconfig: a path; None: ``$KUBECONFIG``, the ServiceAccount's token, then
            ``~/.kube/config``.
        context: the kubeconfig's, by name; None: its current one. It makes a kubeconfig needed.

    Raises:
        ApiError: no configuration can be read.
    """
    configuration = kubernetes_asyncio.client.Configuration()
    try:
        files = _files(kubeconfig, context)
        if files is None:
            kubernetes_asyncio.config.load_incluster_config(client_configuration=configuration)
        else:
            await kubernetes_asyncio.config.load_kube_config(
                config_file=files, context=context, client_configuration=configuration
            )
    except (kubernetes_asyncio.config.ConfigException, OSError, *_ODD_FILES) as error:
        raise _nowhere(error, kubeconfig) from error
    configuration.connection_pool_maxsize = 64
    return Client(kubernetes_asyncio.client.ApiClient(configuration))


def namespace_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that is meant where none is said, as kubectl has it: the context's, or ours.

    Args:
        kubeconfig: as in `connect`.
        context: likewise.

    Raises:
        ApiError: no configuration can be read.
    """
    try:
        files = _files(kubeconfig, context)
        if files is None:
            return _NAMESPACE.read_text().strip() or _DEFAULT_NAMESPACE
        known, current = kubernetes_asyncio.config.list_kube_config_contexts(files)
        if context is not None:
            current = next((each for each in known if each["name"] == context), None)
        named = ((current or {}).get("context") or {}).get("namespace")
    except (kubernetes_asyncio.config.ConfigException, OSError, *_ODD_FILES) as error:
        raise _nowhere(error, kubeconfig) from error
    return named if isinstance(named, str) and named else _DEFAULT_NAMESPACE


def _nowhere(error: Exception, kubeconfig: str | None) -> ApiError:
    """What is wrong with the way to the cluster; the library tells of its own objects instead."""
    told = _cut(error)
    if isinstance(error, _ODD_FILES):
        which = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
        told = f"{which} is not written as a kubeconfig is ({told})"
    elif isinstance(error, OSError) and error.filename:
        told = f"{error.filename} can't be read: {error.strerror}"
    return ApiError(None, f"no cluster to talk to: {told}")


def _proxy(host: str, configured: str | None) -> str | None:
    """By whom the API server is reached: the kubeconfig says, else the environment, else nobody."""
    if configured:
        return configured
    address = urlsplit(host)
    if proxy_bypass(address.netloc):
        return None
    return getproxies().get(address.scheme)


def _files(kubeconfig: str | None, context: str | None) -> str | None:
    """The kubeconfigs to read, as the library takes them; None: the Pod's ServiceAccount is meant.

    The library looks at ``$KUBECONFIG`` only when it is imported, and takes a file that is not
    there for an empty one.

    Raises:
        FileNotFoundError: none of them is there.
    """
    chosen = kubeconfig is not None or context is not None or "KUBECONFIG" in os.environ
    if _SERVICE_ACCOUNT.exists() and not chosen:
        return None
    named = [kubeconfig] if kubeconfig else os.environ.get("KUBECONFIG", "").split(os.pathsep)
    named = [name for name in named if name] or ["~/.kube/config"]
    files = [path for name in named if (path := Path(name).expanduser()).exists()]
    if not files:
        raise FileNotFoundError(f"there is no kubeconfig {', '.join(named)}")
    return os.pathsep.join(map(str, files))


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The whole lines of a stream, however long: aiohttp's own reader gives up at 64 KiB."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


def _event(line: bytes) -> dict[str, Any]:
    """One event of a watch."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ApiError(None, "an event of the watch is not JSON") from error
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ApiError(None, "an event of the watch has no object")
    if event.get("type") == "ERROR":
        status = event["object"].get("code")
        raise ApiError(
            status if isinstance(status, int) else None, _message(orjson.dumps(event["object"]))
        )
    return event


def _message(text: bytes) -> str:
    """The sentence in a Status object, or the beginning of whatever was answered."""
    try:
        status = orjson.loads(text)
    except orjson.JSONDecodeError:
        status = None
    message = status.get("message") if isinstance(status, dict) else None
    return _cut(message if isinstance(message, str) else text.decode(errors="replace"))


def _cut(what: object) -> str:
    words = " ".join(str(what).split())
    if not words and isinstance(what, BaseException):
        words = type(what).__name__
    return words if len(words) <= _SHOWN else words[:_SHOWN] + "…"
