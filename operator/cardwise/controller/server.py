"""How an application listens: patient with a caller for seconds, not for as long as it likes.

Separate, because the HTTP library's own ways are for websites: it waits for the rest of a body for
ever, and logs a traceback for every caller that does not speak HTTP. The metrics port is open to
the whole cluster.
"""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_LINGER_SECONDS = 2.0
"""How long the rest of a body is taken that nobody reads, so that its sender hears the answer."""
_IDLE_SECONDS = 300.0
"""Above kube-scheduler's 90 s, so that it is always the caller who ends an idle connection."""


class _CallersFaults(logging.Filter):
    """What a caller did wrong is told in a line, and not as an error of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Take the traceback out of such a record; one below INFO is dropped."""
        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, HttpProcessingError | web.RequestPayloadError):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            record.msg, record.args = "a caller does not speak HTTP: %s", (_line(fault),)
            record.exc_info = None
            return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        return True


_log = logging.getLogger(__name__)
_log.addFilter(_CallersFaults())


def runner(app: web.Application, *, finish_seconds: float) -> web.AppRunner:
    """Make what serves an application.

    Args:
        app: what is served.
        finish_seconds: how long answers that have begun may take once it stops.
    """
    return web.AppRunner(
        app,
        access_log=None,
        logger=_log,
        shutdown_timeout=finish_seconds,
        lingering_time=_LINGER_SECONDS,
        keepalive_timeout=_IDLE_SECONDS,
    )


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:200]
