"""What callers do wrong, told in a line: the log of every HTTP server here.

Separate, because controller and webhook need it alike: the HTTP library logs a traceback for every
caller that does not speak HTTP, and their ports are open to the whole cluster.
"""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError


class _CallersFaults(logging.Filter):
    """What a caller did wrong is told in a line, and not as an error of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Make such a record a line of level DEBUG; where that is not logged, drop it."""
        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, HttpProcessingError | web.RequestPayloadError):
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
            record.msg, record.args = "a caller does not speak HTTP: %s", (_line(fault),)
            record.exc_info = None
            return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        return True


log = logging.getLogger(__name__)
"""For ``web.AppRunner(logger=…)``."""
log.addFilter(_CallersFaults())


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split())[:200]
