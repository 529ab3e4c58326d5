"""The command itself, as a person or a DaemonSet runs it."""

import os
import signal
import socket
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import pytest
import yaml

from cardwise.wire.gpunodes import gpunode_of
from fakes.nvidia import EVERYTHING, LOST, UNKNOWN, FakeCard, FakeMachine

AGENT = Path(sys.executable).with_name("cardwise-agent")

# A start of the real program takes a second, more on a busy machine.
pytestmark = pytest.mark.timeout(60)


def agent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AGENT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def printed(*arguments: str, **environment: str) -> dict[str, Any]:
    done = agent("--print", *arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = yaml.safe_load(done.stdout)
    return document


def test_print_shows_the_gpunode_of_a_shipped_profile() -> None:
    document = printed("--nvml", "simulated:t4x4", "--node-name", "n7")

    assert document["kind"] == "GPUNode"
    node = gpunode_of(document)
    assert node.name == "n7"
    assert [(card.model, card.memory_mib, card.slots) for card in node.cards] == [
        ("NVIDIA-Tesla T4", 15360, 10)
    ] * 4
    assert len(node.links or ()) == 6


def test_print_applies_the_settings_to_the_cards_of_a_file(tmp_path: Path) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "{kind: GPUNode, metadata: {name: x},"
        " status: {cards: [{uuid: GPU-a, index: 0, memoryMiB: 1000}]}}"
    )
    config = tmp_path / "config.yaml"
    config.write_text("agent: {slotsPerCard: 3, memoryScaling: 1.5}")

    document = printed(
        "--nvml", f"simulated:{profile}", "--config", str(config), NODE_NAME="from-the-environment"
    )

    card = gpunode_of(document).cards[0]
    assert document["metadata"]["name"] == "from-the-environment"
    assert (card.uuid, card.slots, card.memory_mib) == ("GPU-a", 3, 1500)


@pytest.mark.parametrize("profile", ["t4x4", "v100x8", "h100x8"])
def test_print_shows_by_the_drivers_library_what_the_profile_of_such_a_machine_shows(
    tmp_path: Path, profile: str
) -> None:
    machine = FakeMachine(tmp_path / "machine")
    machine.become(profile)
    machine.write()

    by_library = printed("--node-name", "fake", **machine.environment(tmp_path))
    simulated = printed("--nvml", f"simulated:{profile}", "--node-name", "fake")

    for document in (by_library, simulated):
        # Two processes, two moments.
        assert document["status"].pop("reportedAt")
    assert by_library == simulated


@pytest.mark.parametrize(
    ("machine", "closed", "said"),
    [
        pytest.param(
            {"cards": [FakeCard(errors={EVERYTHING: LOST}), FakeCard(uuid="GPU-b")]},
            ["Ready=True", "GPU-b healthy"],
            "card 0 can't be read: GPU is lost",
            id="a lost card",
        ),
        pytest.param(
            {"cards": [FakeCard(memory=None)]},
            ["Ready=True", "GPU-a closed"],
            "card 0: the driver can't tell its memory: set spec.memoryMiB of this GPUNode",
            id="a card whose memory can't be read",
        ),
        pytest.param(
            {"cards": [FakeCard()], "init": UNKNOWN},
            ["Ready=False"],
            "NVML says: Unknown Error",
            id="a library that fails",
        ),
    ],
)
def test_print_says_what_is_wrong(
    tmp_path: Path, machine: dict[str, Any], closed: list[str], said: str
) -> None:
    fake = FakeMachine(tmp_path / "machine", **machine)
    fake.write()

    status = printed(**fake.environment(tmp_path))["status"]

    (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
    assert [
        f"Ready={ready['status']}",
        *(
            f"{card['uuid']} {'healthy' if card['healthy'] else 'closed'}"
            for card in status["cards"]
        ),
    ] == closed
    assert said in ready["message"]


@pytest.mark.skipif(find_library("nvidia-ml") is not None, reason="this machine has the library")
def test_print_says_so_where_there_is_no_nvidia_library() -> None:
    done = agent("--print")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("no GPUNode: this machine has no NVIDIA library")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            ["--nvml", "simulated:nope"],
            "Error: profile nope: there is no such file, and the shipped profiles are"
            " t4x4, v100x8, a100x8, h100x8, l40sx8\n",
            id="no such profile",
        ),
        pytest.param(
            ["--nvml", "mock"],
            "Error: --nvml is mock: write auto, or simulated: and a file or a shipped name\n",
            id="no such source",
        ),
        pytest.param(
            ["--nvml", "simulated:"],
            "Error: --nvml is simulated:: write auto, or simulated: and a file or a shipped name\n",
            id="a profile without a name",
        ),
        pytest.param(
            ["--nvml", "simulated:t4x4", "--kubeconfig", "/nonexistent"],
            "Error: --kubeconfig is /nonexistent: there is no such file\n",
            id="no such kubeconfig",
        ),
        pytest.param(
            ["--nvml", "simulated:t4x4", "--metrics-listen", "9395"],
            "Usage: cardwise-agent [OPTIONS]\nTry 'cardwise-agent --help' for help.\n\n"
            "Error: Invalid value for '--metrics-listen': '9395' is not an address; write e.g."
            " 0.0.0.0:9395\n",
            id="no address",
        ),
    ],
)
def test_bad_input_ends_with_one_sentence(arguments: list[str], sentence: str) -> None:
    done = agent(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == sentence


def test_bad_settings_end_with_one_sentence_that_names_file_and_key(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("agent: {slotsPerCards: 3}")

    done = agent("--print", "--nvml", "simulated:t4x4", "--config", str(config))

    assert done.returncode == 2
    assert str(config) in done.stderr
    assert "slotsPerCards" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_address_that_is_taken_ends_with_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = agent(
            *("--nvml", "simulated:t4x4", "--kubeconfig", str(nowhere(tmp_path))),
            *("--metrics-listen", f"127.0.0.1:{port}", "--log-level", "warning"),
        )

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert f"('127.0.0.1', {port})" in done.stderr
    assert done.stderr.count("\n") == 1


def nowhere(tmp_path: Path) -> Path:
    """Of an API server that does not answer: nobody listens on port 1."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return kubeconfig


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    # The agent keeps trying, as it would while an API server restarts.
    kubeconfig = nowhere(tmp_path)
    arguments = ["--nvml", "simulated:t4x4", "--node-name", "n1", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen([AGENT, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "is not published" in line:
                process.send_signal(signal.SIGTERM)

    assert process.returncode == 0
    assert "the agent of node n1 ends" in lines[-1]
    assert "Traceback" not in "".join(lines)
