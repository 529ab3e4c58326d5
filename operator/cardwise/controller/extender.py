"""The HTTP surface: /filter, /preempt, /bind for kube-scheduler; health and metrics for all.

Two applications over one scheduler: the verbs listen on loopback alone, because whoever can call
/bind can place Pods; health and metrics are open to the cluster.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from cardwise.controller.metrics import Metrics
from cardwise.controller.service import Scheduler
from cardwise.controller.watch import Health
from cardwise.errors import BadBody
from cardwise.wire import extender

_Answer = Callable[[object], Awaitable[dict[str, Any]]]


def verbs(scheduler: Scheduler, metrics: Metrics, health: Health) -> web.Application:
    """The application that kube-scheduler talks to, health and metrics included."""

    async def answer_filter(body: object) -> dict[str, Any]:
        return scheduler.filter(extender.filter_call(body))

    async def answer_preempt(body: object) -> dict[str, Any]:
        return scheduler.preempt(extender.preempt_call(body))

    async def answer_bind(body: object) -> dict[str, Any]:
        return extender.bind_result(await scheduler.bind(extender.bind_call(body)))

    app = web.Application(client_max_size=extender.BODY_BYTES)
    for verb, answer in [
        ("filter", answer_filter),
        ("preempt", answer_preempt),
        ("bind", answer_bind),
    ]:
        app.router.add_post(f"/{verb}", _handler(verb, answer, metrics))
    _add_reports(app, metrics, health)
    return app


def reports(metrics: Metrics, health: Health) -> web.Application:
    """The application that probes and Prometheus talk to."""
    app = web.Application()
    _add_reports(app, metrics, health)
    return app


def _handler(
    verb: str, answer: _Answer, metrics: Metrics
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        with metrics.timed(verb) as timer:
            try:
                result = await answer(extender.decoded(await request.read()))
            except BadBody as error:
                timer.result = "bad"
                return web.Response(status=400, text=f"{error}\n")
            except web.RequestPayloadError:
                timer.result = "bad"
                return web.Response(status=400, text="The body is not packed as it says.\n")
            except web.HTTPRequestEntityTooLarge:
                timer.result = "bad"
                limit = extender.BODY_BYTES
                return web.Response(status=413, text=f"The body has more than {limit} bytes.\n")
            try:
                written = orjson.dumps(result)
            except orjson.JSONEncodeError:
                # What is read may be nested four times as deep as what can be written back.
                timer.result = "bad"
                return web.Response(status=400, text="A node of the body is nested too deep.\n")
            timer.result = "error" if result.get("Error") else "ok"
            return web.Response(body=written, content_type="application/json")

    return handle


def _add_reports(app: web.Application, metrics: Metrics, health: Health) -> None:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def livez(_: web.Request) -> web.Response:
        return _verdict(health.not_live())

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(health.not_ready())

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", show_metrics)


def _verdict(why_not: str) -> web.Response:
    return web.Response(status=503 if why_not else 200, text=f"{why_not or 'ok'}\n")
