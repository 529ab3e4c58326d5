"""An extender that writes down which nodes kube-scheduler found fitting, and refuses them all.

So one Pod tells of every node at once, nothing is ever bound, and all Pods find the same cluster.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a kube-scheduler that ended in the middle of a connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class RecordingExtender:
    """Serves ``/filter`` on a free port of loopback, in threads of its own."""

    def __init__(self) -> None:
        """Listen; `passed` fills as kube-scheduler asks."""
        self.passed: dict[str, set[str]] = {}
        """By UID of the Pod, the nodes that passed kube-scheduler's own filters the last time."""
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(recorder._record(asked)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What kube-scheduler is told."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _record(self, asked: dict[str, Any]) -> dict[str, Any]:
        names = asked["NodeNames"]
        self.passed[asked["Pod"]["metadata"]["uid"]] = set(names)
        return {
            "NodeNames": [],
            "FailedAndUnresolvableNodes": dict.fromkeys(names, "only asked"),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
