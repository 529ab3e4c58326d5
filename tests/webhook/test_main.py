"""The installed command: its line, its start, and how it ends."""

import asyncio
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import orjson
import pytest
from click.testing import CliRunner

import build
from cardwise_webhook.main import main
from controlplane.process import Process
from webhooks import PROGRAM, WebhookProcess, review, trusting

# Real processes, real time.
pytestmark = [pytest.mark.looptime(False), pytest.mark.timeout(90)]

BODY = orjson.dumps(review(build.pod(gpumem=1000)))
HEAD = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["--listen", "8443"], "write e.g. 0.0.0.0:8443", id="a port alone"),
        pytest.param(["--metrics-listen", "x:y"], "write e.g. 0.0.0.0:9395", id="a port by name"),
        pytest.param(["--log-level", "loud"], "'loud' is not one of", id="an unknown level"),
        pytest.param(["--drain-seconds", "-1"], "is not in the range", id="a time before now"),
        pytest.param(["--config", "nowhere.yaml"], "it can't be read", id="no settings file"),
        pytest.param(["more"], "unexpected extra argument", id="an argument too many"),
    ],
)
def test_what_is_wrong_on_the_command_line(arguments: list[str], want: str) -> None:
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2
    assert want in result.output
    assert "Traceback" not in result.output


def test_what_is_wrong_in_the_settings_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("defaults: {gpus: 1}")

    result = CliRunner().invoke(main, ["--config", str(path)])

    assert result.exit_code == 2
    assert result.output.startswith(f"cardwise-webhook: {path}: ")
    assert "gpus" in result.output
    assert result.output.count("\n") == 1


def test_an_address_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["--tls-dir", str(tmp_path), "--metrics-listen", "192.0.2.1:9395"]
    )

    assert result.exit_code == 1
    assert "192.0.2.1" in result.output
    assert "Traceback" not in result.output


def test_the_installed_command_explains_itself() -> None:
    done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    for option in (
        *("--config", "--listen", "--metrics-listen", "--tls-dir", "--drain-seconds"),
        *("--log-level", "0.0.0.0:8443", "0.0.0.0:9395", "/etc/cardwise/tls"),
    ):
        assert option in done.stdout


# The process --------------------------------------------------------------------------------------

Start = Callable[..., WebhookProcess]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a webhook; it is not waited for."""
    started: list[WebhookProcess] = []

    def begin(*arguments: str, certificate: bool = True) -> WebhookProcess:
        webhook = WebhookProcess(tmp_path, *arguments)
        log = tmp_path / "webhook.log"
        if certificate:
            webhook.start(lambda argv: Process("webhook", argv, log=log))
        else:
            webhook.process = Process("webhook", webhook.argv, log=log)
        started.append(webhook)
        return webhook

    yield begin
    for webhook in started:
        webhook.process.kill()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(0.05)


def answers(webhook: WebhookProcess) -> bool:
    """Whether it answers probes at all, ready or not."""
    try:
        with urllib.request.urlopen(f"{webhook.reports}/livez", timeout=5) as answer:  # noqa: S310
            return bool(answer.read() == b"ok\n")
    except OSError:
        return False


def listens(webhook: WebhookProcess) -> bool:
    """Whether it takes new connections of the API server."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", webhook.port)) == 0


async def connected(webhook: WebhookProcess) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        "127.0.0.1",
        webhook.port,
        ssl=trusting(webhook.authority.bundle),
        server_hostname="localhost",
    )


async def ended(webhook: WebhookProcess) -> tuple[int, float]:
    """Its exit status, and after how many seconds from now."""
    began = time.monotonic()
    status = await asyncio.to_thread(webhook.process.wait, 60)
    return status, time.monotonic() - began


async def test_it_answers_reviews_with_the_settings_of_its_file(
    start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("admission: {runtimeClassName: nvidia}")
    webhook = start(f"--config={config}")
    await until(webhook.is_ready)

    async with (
        aiohttp.ClientSession() as session,
        session.post(webhook.url, data=BODY, ssl=trusting(webhook.authority.bundle)) as answer,
    ):
        response = (await answer.json())["response"]

    assert response["patchType"] == "JSONPatch"


async def test_it_waits_for_its_certificate_and_serves_then(start: Start) -> None:
    webhook = start(certificate=False)
    await until(lambda: "no certificate yet" in webhook.process.tail())
    await until(lambda: answers(webhook))
    assert not webhook.is_ready()
    assert not listens(webhook)

    webhook.mount.put(webhook.authority.issue())

    await until(webhook.is_ready)
    _, writer = await connected(webhook)
    writer.close()


async def test_sigterm_before_there_is_a_certificate_is_obeyed(start: Start) -> None:
    webhook = start(certificate=False)
    await until(lambda: answers(webhook))

    webhook.process.signal(signal.SIGTERM)

    status, seconds = await ended(webhook)
    assert status == 0
    assert seconds < 5.0


async def test_what_has_begun_when_sigterm_comes_is_answered(start: Start) -> None:
    webhook = start("--drain-seconds=0.5")
    await until(webhook.is_ready)
    reader, writer = await connected(webhook)
    writer.write(HEAD + BODY[:-1])
    await writer.drain()
    await asyncio.sleep(0.3)

    webhook.process.signal(signal.SIGTERM)
    await until(lambda: not listens(webhook))  # the drain is over
    writer.write(BODY[-1:])

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b'"allowed":true' in answer
    writer.close()
    status, seconds = await ended(webhook)
    assert status == 0
    assert seconds < 5.0
    assert "Traceback" not in webhook.process.tail(100)


async def test_while_it_drains_it_takes_requests_and_is_not_ready(start: Start) -> None:
    webhook = start("--drain-seconds=3")
    await until(webhook.is_ready)
    kept, kept_writer = await connected(webhook)

    webhook.process.signal(signal.SIGTERM)
    await until(lambda: not webhook.is_ready())

    new, new_writer = await connected(webhook)
    for reader, writer in ((kept, kept_writer), (new, new_writer)):
        writer.write(HEAD + BODY)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" in answer
        writer.close()
    status, seconds = await ended(webhook)
    assert status == 0
    assert seconds > 0.5


async def test_a_second_signal_ends_the_drain(start: Start) -> None:
    webhook = start("--drain-seconds=600")
    await until(webhook.is_ready)

    webhook.process.signal(signal.SIGTERM)
    await until(lambda: not webhook.is_ready())
    webhook.process.signal(signal.SIGTERM)

    assert (await ended(webhook))[0] == 0


async def test_clients_that_do_not_end_do_not_hold_the_exit(start: Start) -> None:
    webhook = start("--drain-seconds=0")
    await until(webhook.is_ready)
    open_writers = [(await connected(webhook))[1] for _ in range(3)]
    idle, slow, dripping = open_writers
    _, silent = await asyncio.open_connection("127.0.0.1", webhook.port)  # no handshake
    idle.write(HEAD + BODY)
    slow.write(HEAD)
    dripping.write(HEAD.replace(b"/mutate", b"/mutate?timeout=30s"))
    await asyncio.sleep(0.3)

    async def drip() -> None:
        while True:
            dripping.write(b" ")
            await asyncio.sleep(0.1)

    task = asyncio.create_task(drip())
    webhook.process.signal(signal.SIGTERM)

    status, seconds = await ended(webhook)
    task.cancel()
    assert status == 0
    assert seconds < 12.0
    assert "Traceback" not in webhook.process.tail(100)
    for writer in (*open_writers, silent):
        writer.close()


async def test_its_log_is_that_of_a_process_that_is_well(start: Start) -> None:
    webhook = start("--drain-seconds=0")
    await until(webhook.is_ready)
    webhook.process.signal(signal.SIGTERM)
    await ended(webhook)

    lines = webhook.process.tail(100).splitlines()
    assert [line for line in lines if " INFO cardwise_webhook." not in line] == []
    assert [line.partition(": ")[2].split()[0] for line in lines] == [
        "serving",
        "listening",
        "stopping:",
    ]


async def test_a_port_that_is_taken_ends_it_with_one_sentence(start: Start) -> None:
    webhook = start()
    await until(webhook.is_ready)

    second = await asyncio.to_thread(
        subprocess.run,
        [PROGRAM, *webhook.argv[1:2], "--metrics-listen=127.0.0.1:0", *webhook.argv[3:]],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert second.returncode == 1
    assert second.stderr.splitlines()[-1].startswith("cardwise-webhook: ")
    assert "address already in use" in second.stderr
    assert "Traceback" not in second.stderr
