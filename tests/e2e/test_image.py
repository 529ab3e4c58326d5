"""The image's root file system, built and tried without a container engine.

It takes half a minute, and gets Debian packages and wheels from wherever the machine gets its own;
both are kept in the cache directory.
"""

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from controlplane.launcher import ROOT, ControlPlane, free_port, standing_ground

PROGRAMS: Final = {
    "cardwise",
    "cardwise-agent",
    "cardwise-controller",
    "cardwise-webhook",
    "kubectl-cardwise",
}


def why_not() -> str:
    """Why the image can't be built or tried on this machine; empty: it can."""
    if "bookworm" not in Path("/etc/os-release").read_text() or not shutil.which("apt-get"):
        return "the image is built of Debian 12's packages, by Debian 12's apt-get"
    allowed = subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False)
    return "this user may not make namespaces (unshare)" if allowed.returncode else ""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The built root."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    root = tmp_path_factory.mktemp("image") / "root"
    built = subprocess.run(
        [ROOT / "images/build.sh", root],
        env={**os.environ, "PYTHON": sys.executable},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=280,
    )
    if built.returncode == 3:
        pytest.skip(built.stderr.splitlines()[-1])
    assert built.returncode == 0, built.stderr
    yield root
    shutil.rmtree(root)


def inside(root: Path, *command: str) -> list[str]:
    """Run a program as it runs in its container: root read-only, the user 65532, nothing else."""
    script = (
        'unset KUBECONFIG && mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd / && '
        'exec unshare --user --map-user=65532 --map-group=65532 --root="$0" "$@"'
    )
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(root), *command]


def output(root: Path, *command: str) -> str:
    done = subprocess.run(inside(root, *command), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_program_is_there_and_starts(image: Path) -> None:
    programs = sorted(path.name for path in (image / "usr/local/bin").iterdir())

    assert set(programs) == PROGRAMS
    for program in programs:
        assert output(image, f"/usr/local/bin/{program}", "--help").startswith("Usage: ")


def test_it_runs_as_nobody_in_a_root_that_cannot_be_written(image: Path) -> None:
    code = (
        "import os, pathlib\n"
        "print(os.getuid(), os.getgid())\n"
        "try: pathlib.Path('/tmp/x').write_text('')\n"
        "except OSError as error: print(error.strerror)\n"
        "import cardwise.admission\n"
        "print(pathlib.Path(cardwise.admission.__cached__).exists())\n"
    )

    said = output(image, "/usr/bin/python3.11", "-I", "-c", code)

    assert said.split("\n") == ["65532 65532", "Read-only file system", "True", ""]


def test_there_is_no_shell_and_nothing_that_raises_rights(image: Path) -> None:
    assert not any((image / path).exists() for path in ("bin/sh", "usr/bin/bash", "usr/bin/perl"))
    raising = [path for path in image.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]
    assert raising == []


def test_it_does_not_tell_where_it_was_built(image: Path) -> None:
    told = (str(ROOT), str(image), str(Path(sys.prefix)))
    site = image / "usr/local"

    telling = [
        path
        for path in site.rglob("*")
        if path.is_file() and any(place.encode() in path.read_bytes() for place in told)
    ]
    assert telling == []


def test_the_agent_reads_a_profile_in_it(image: Path) -> None:
    said = output(image, "/usr/local/bin/cardwise-agent", "--print", "--nvml=simulated:t4x4")

    assert "NVIDIA-Tesla T4" in said


ACCOUNT: Final = "var/run/secrets/kubernetes.io/serviceaccount"


def test_the_controller_serves_the_cluster_that_it_runs_in(image: Path) -> None:
    """As in its Pod: by the account that is mounted, and by the variables of every Pod."""
    with ControlPlane.start(kwok=False, controller_manager=False) as cp:
        standing_ground(cp)
        mounted = image / ACCOUNT
        mounted.mkdir(parents=True)
        config = yaml.safe_load(cp.service_account_kubeconfig("cardwise-controller").read_text())
        (mounted / "token").write_text(config["users"][0]["user"]["token"])
        shutil.copy(cp.ca, mounted / "ca.crt")
        (mounted / "ca.crt").chmod(0o644)
        address = urlsplit(cp.server)
        reports = f"127.0.0.1:{free_port()}"
        controller = cp.start_process(
            "controller",
            inside(
                image,
                "/usr/local/bin/cardwise-controller",
                f"--listen=127.0.0.1:{free_port()}",
                f"--metrics-listen={reports}",
                "--no-leader-election",
            ),
            env={
                "KUBERNETES_SERVICE_HOST": str(address.hostname),
                "KUBERNETES_SERVICE_PORT": str(address.port),
            },
        )

        def is_ready() -> bool:
            assert controller.poll() is None, controller.tail()
            try:
                with urllib.request.urlopen(f"http://{reports}/readyz", timeout=5):
                    return True
            except OSError:  # nobody listens yet, or it says that it is not ready
                return False

        cp.wait("the controller to be ready", is_ready, 60)
