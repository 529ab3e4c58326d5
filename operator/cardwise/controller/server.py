"""How an application listens: patient with a caller for seconds, not for as long as it likes.

Separate, because the HTTP library's own ways are for websites: it waits for a caller's next word
for hours. The metrics port is open to the whole cluster.
"""

from aiohttp import web

from cardwise.callers import log

_LINGER_SECONDS = 2.0
"""How long the rest of a body is taken that nobody reads, so that its sender hears the answer."""
_IDLE_SECONDS = 300.0
"""Above kube-scheduler's 90 s, so that it is always the caller who ends an idle connection."""


def runner(app: web.Application, *, finish_seconds: float) -> web.AppRunner:
    """Make what serves an application.

    Args:
        app: what is served.
        finish_seconds: how long answers that have begun may take once it stops.
    """
    return web.AppRunner(
        app,
        access_log=None,
        logger=log,
        shutdown_timeout=finish_seconds,
        lingering_time=_LINGER_SECONDS,
        keepalive_timeout=_IDLE_SECONDS,
    )
