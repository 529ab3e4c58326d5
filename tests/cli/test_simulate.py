"""The program ``cardwise simulate``: its two forms, its standard error and its exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import build
from cardwise.cli.main import cardwise
from simulated import A1, WORKED, node, small, tenant, where

PROGRAM = Path(sys.executable).parent / "cardwise"


def run(*arguments, text=""):
    return CliRunner().invoke(cardwise, ["simulate", *arguments], input=text)


@pytest.fixture
def worked(tmp_path):
    path = tmp_path / "worked.yaml"
    path.write_text(yaml.safe_dump_all(WORKED))
    return str(path)


def test_the_table_names_pod_node_card_and_memory(worked) -> None:
    result = run(worked)

    assert result.exit_code == 0
    assert re.search(r"default/new +n1 +GPU 2 \(GPU-c\) +1000 MiB", result.stdout)


def test_the_trace_shows_every_card_with_score_and_verdict(worked) -> None:
    lines = " ".join(run("--trace", worked).stdout.split())

    assert "default/new goes to n1" in lines
    assert "n1 1.238281 fits" in lines
    assert "GPU 0 (GPU-a) 3.302083 ExclusiveDeviceAllocateConflict" in lines
    assert "GPU 2 (GPU-c) 0.000000 kept" in lines


def test_the_table_tells_why_a_pod_waits_in_one_line() -> None:
    text = yaml.safe_dump_all([node(cards=1), tenant("t", A1), small("q"), small("r")])

    result = run("-", text=text)

    (line,) = [line for line in result.stdout.splitlines() if line.startswith("default/q: ")]
    assert line.endswith("ExclusiveDeviceAllocateConflict (GPU 0: default/t).")


def test_a_name_that_looks_like_a_style_is_printed_as_it_is() -> None:
    container = build.container("[red]x[/red]", gpu=1, gpumem=1)
    pod = small("p", containers=[container, {**container, "name": "[/]"}], policy=None)

    result = run("-", text=yaml.safe_dump_all([node(), pod]))

    assert result.exit_code == 0, result.exception
    assert "[red]x[/red]: GPU 0" in result.stdout
    assert "[/]: GPU 1" in result.stdout


@pytest.mark.parametrize("trace", [[], ["--trace"]])
def test_a_name_cannot_steer_the_terminal(trace) -> None:
    result = run("-", *trace, text=json.dumps(build.pod("p\x1b[31m", gpumem=1)))

    assert result.exit_code == 0, result.exception
    assert "default/p\\x1b[31m" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["-"], 0, id="a Pod that waits is an answer"),
        pytest.param(["-", "--strict"], 1, id="with strict it is a failure"),
        pytest.param(["-", "-o", "json", "--strict"], 1, id="in JSON, too"),
    ],
)
def test_the_exit_status_when_a_pod_waits(arguments, want) -> None:
    text = yaml.safe_dump_all([node(), build.pod("p", gpumem=99999)])

    assert run(*arguments, text=text).exit_code == want


def test_strict_is_content_when_all_pods_are_placed(worked) -> None:
    assert run(worked, "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "standard input:2: ", id="broken YAML"),
        pytest.param(
            yaml.safe_dump(build.gpunode("n1", [build.card(0, uuid=None)])),
            "standard input:1: GPUNode n1: ",
            id="a GPUNode without a UUID",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_and_status_two(text, want) -> None:
    result = run("-", text=text)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert want in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param("scheduling: {cardPolicies: x}", "cardPolicies", id="an unknown key"),
        pytest.param(None, "it can't be read", id="no such file"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence_and_status_two(
    content, want, worked, tmp_path
) -> None:
    path = tmp_path / "settings.yaml"
    if content is not None:
        path.write_text(content)

    result = run(worked, "--config", str(path))

    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert want in result.stderr


def test_the_settings_file_is_used(tmp_path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("scheduling: {cardPolicy: binpack}")
    text = yaml.safe_dump_all(
        [node(), tenant("t", build.allocation("GPU-c")), build.pod("p", gpumem=1)]
    )

    result = run("-", "-o", "json", "--config", str(path), text=text)

    assert where(json.loads(result.stdout)["pods"][0]) == [[2]]


def test_what_is_skipped_is_named_on_standard_error_alone() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    result = run("-", "-o", "json", text=yaml.safe_dump_all([service, *WORKED]))

    assert "Service default/s" in result.stderr
    assert len(json.loads(result.stdout)["pods"]) == 1


def test_without_a_pod_there_is_an_empty_answer() -> None:
    assert json.loads(run("-", "-o", "json", text="").stdout) == {"pods": []}
    assert run("-", text="").stdout == "No Pod asks for a card.\n"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["cardwise", "kubectl-cardwise"])
def test_the_installed_program_answers(name, worked) -> None:
    result = subprocess.run(
        [PROGRAM.with_name(name), "simulate", "-o", "json", worked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "20"},
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["pods"][0]["annotation"] == "GPU-c,NVIDIA,1000,0:;"


@pytest.mark.timeout(60)
def test_the_installed_program_refuses_and_breaks_no_line_in_a_pipe(tmp_path, worked) -> None:
    refused = subprocess.run(
        [PROGRAM, "simulate", tmp_path / "missing.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    table = subprocess.run(
        [PROGRAM, "simulate", worked],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "20"},
    )

    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "GPU 2 (GPU-c)" in table.stdout


# Red: `main` without `except OSError`.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", ["table", "json"])
def test_an_answer_that_cannot_be_written_is_one_sentence_and_status_two(form, worked) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "simulate", "-o", form, worked],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert done.stderr == "Error: the answer can't be written: No space left on device.\n"
