"""JSON over HTTPS to the API server: what kubectl would need a process a request for."""

import contextlib
import http.client
import json
import ssl
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_IDLE_SECONDS = 30.0  # the API server closes a connection that was idle for 90


class ApiError(Exception):
    """The API server refused; ``status`` is the HTTP status."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status


class Api:
    """A client that keeps one connection open. Threads may share it; requests take turns."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        address = urlsplit(server)
        self._connection = http.client.HTTPSConnection(
            address.hostname or "",
            address.port,
            timeout=60,
            context=ssl.create_default_context(cafile=str(ca)),
        )
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._turn = threading.Lock()
        self._used = 0.0

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
    ) -> Any:
        """Return the decoded answer; plain text where the answer is not JSON.

        Raises:
            ApiError: The answer is not a 2xx.
            OSError: There was none. The next request opens a new connection.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": content_type} if data else {})
        with self._turn:
            if time.monotonic() - self._used > _IDLE_SECONDS:
                self._connection.close()  # `request` opens it again
            try:
                self._connection.request(method, path, body=data, headers=headers)
                answer = self._connection.getresponse()
                text = answer.read().decode()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if isinstance(error, OSError):
                    raise
                raise ConnectionError(f"{method} {path}: {error!r}") from error
            self._used = time.monotonic()
        content: Any = text
        with contextlib.suppress(ValueError):
            content = json.loads(text)
        if answer.status >= 300:
            message = content.get("message", text) if isinstance(content, dict) else text
            raise ApiError(method, path, answer.status, message)
        return content

    def close(self) -> None:
        self._connection.close()
