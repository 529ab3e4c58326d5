"""The command: what is wrong on its line or in its files is one sentence and an exit status."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cardwise.controller.main import main

CONTROLLER = Path(sys.executable).with_name("cardwise-controller")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """Of a cluster where nobody answers."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "{current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],"
        " users: [{name: x, user: {token: t}}],"
        " clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "status", "want"),
    [
        pytest.param(["--listen", "8478"], 2, "'8478' is not an address", id="a port alone"),
        pytest.param(["--listen", "host:http"], 2, "is not an address", id="a port by name"),
        pytest.param(
            ["--metrics-listen", "0.0.0.0:99999"], 2, "is not an address", id="a port too large"
        ),
        pytest.param(["--listen", ":8478"], 2, "is not an address", id="no host"),
        pytest.param(["--log-level", "loud"], 2, "'loud' is not one of", id="an unknown level"),
        pytest.param(
            ["--config", "nowhere.yaml"], 2, "it can't be read: No such file", id="no settings file"
        ),
        pytest.param(["--lease", "name"], 2, "'name' is no Lease", id="a Lease by name alone"),
        pytest.param(["--lease", "a/b/c"], 2, "is no Lease", id="a Lease with too many names"),
        pytest.param(["--lease", "/b"], 2, "is no Lease", id="a Lease without a namespace"),
        pytest.param(["--what"], 2, "No such option", id="an unknown option"),
        pytest.param(["more"], 2, "unexpected extra argument", id="an argument too many"),
        pytest.param(["--kubeconfig", "nowhere"], 1, "no cluster to talk to", id="no kubeconfig"),
    ],
)
def test_what_is_wrong_on_the_command_line(arguments: list[str], status: int, want: str) -> None:
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == (1 if status == 1 else 2)
    said = result.output if status == 2 else str(result.exception)
    assert want in said or want in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(b"scheduling: {cardPolice: spread}", "cardPolice", id="an unknown key"),
        pytest.param(b"scheduling: {initShrink: 3}", "initShrink", id="a wrong type"),
        pytest.param(b"[", "are not YAML", id="no YAML"),
        pytest.param(b"\xff\xfe", "it is not UTF-8", id="no text"),
    ],
)
def test_what_is_wrong_in_the_settings_file(tmp_path: Path, text: bytes, want: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text)

    result = CliRunner().invoke(main, ["--config", str(path)])

    assert result.exit_code == 2
    assert result.output.startswith("cardwise-controller: ")
    assert want in result.output
    assert result.output.count("\n") == 1


def test_an_address_that_is_taken_is_one_sentence(kubeconfig: str) -> None:
    result = CliRunner().invoke(
        main,
        [
            *("--kubeconfig", kubeconfig, "--log-level", "error"),
            *("--listen", "192.0.2.1:8478", "--metrics-listen", "127.0.0.1:0"),
        ],
    )

    assert result.exit_code == 1
    assert "192.0.2.1" in result.output
    assert "Traceback" not in result.output


@pytest.mark.timeout(60)
def test_the_installed_command_explains_itself() -> None:
    done = subprocess.run(
        [CONTROLLER, "--help"],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )

    assert (done.returncode, done.stderr) == (0, "")
    for option in (
        *("--config", "--kubeconfig", "--listen", "--metrics-listen", "--log-level"),
        *("--lease", "--identity", "--no-leader-election", "--no-webhook-certificates"),
    ):
        assert option in done.stdout


def test_an_ipv6_address_is_taken_without_its_brackets(kubeconfig: str) -> None:
    result = CliRunner().invoke(
        main,
        [
            *("--kubeconfig", kubeconfig, "--log-level", "error"),
            *("--listen", "[2001:db8::1]:8478", "--metrics-listen", "127.0.0.1:0"),
        ],
    )

    assert result.exit_code == 1
    assert "2001:db8::1" in result.output
    assert "Traceback" not in result.output
