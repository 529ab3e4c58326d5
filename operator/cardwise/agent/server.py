"""The agent's HTTP surface: probes for kubelet, metrics for Prometheus."""

from collections.abc import Callable

from aiohttp import web

from cardwise.callers import log

_FINISH_SECONDS = 1.0
"""For answers that have begun when the agent ends."""
_LINGER_SECONDS = 2.0


async def listen(
    address: tuple[str, int],
    *,
    not_ready: Callable[[], str],
    hopeless: Callable[[], str],
    metrics: Callable[[], bytes],
    content_type: str,
) -> web.AppRunner:
    """Answer /healthz, /livez, /readyz and /metrics until the runner is cleaned up.

    Args:
        address: host and port.
        not_ready: why the agent does not do its work; empty where it does.
        hopeless: why it should be started again; empty where it should not.
        metrics: all of them, rendered.
        content_type: of these.

    Raises:
        OSError: the address can't be listened on.
    """

    def probe(why_not: Callable[[], str]) -> web.Response:
        said = why_not()
        return web.Response(status=503 if said else 200, text=f"{said or 'ok'}\n")

    async def alive(_: web.Request) -> web.Response:
        return probe(hopeless)

    async def ready(_: web.Request) -> web.Response:
        return probe(not_ready)

    async def show(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/healthz", alive)
    app.router.add_get("/livez", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", show)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=log,
        shutdown_timeout=_FINISH_SECONDS,
        lingering_time=_LINGER_SECONDS,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, *address).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner
