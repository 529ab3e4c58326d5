"""Join one Pod to this machine: the CNI plugin of the tests' node, run by containerd.

A cable between the Pod and the machine, and routes of one address each; nothing is forwarded, so
Pods reach the machine, and it reaches them, but no Pod another. CNI says what to do in variables
and on standard input. Addresses are counted up in a file, and none is given twice.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

# The range for tests of networks (RFC 2544), which no machine has by itself.
GATEWAY = "198.18.1.1"
PODS = "198.18.1."
_COUNT = Path("/run/cni-addresses")
_FIRST, _LAST = 2, 254


def main() -> None:
    command = os.environ["CNI_COMMAND"]
    if command == "VERSION":
        json.dump({"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}, sys.stdout)
    elif command == "ADD":
        json.load(sys.stdin)
        joined = _join(Path(os.environ["CNI_NETNS"]).name, os.environ["CNI_IFNAME"])
        json.dump(joined, sys.stdout)
    # DEL: the cable goes with the Pod's end of it.


def _join(namespace: str, interface: str) -> dict[str, object]:
    number = _next()
    # The cables of a node that has ended go a moment after it, so each has a name of its own.
    address, cable = f"{PODS}{number}", f"pod{number}-{os.getpid()}"
    _ip(
        f"link add {cable} type veth peer name {interface} netns {namespace}",
        f"address add {GATEWAY}/32 dev {cable}",
        f"link set {cable} up",
        f"route replace {address}/32 dev {cable} src {GATEWAY}",
        f"-netns {namespace} address add {address}/32 dev {interface}",
        f"-netns {namespace} link set {interface} up",
        f"-netns {namespace} route add {GATEWAY}/32 dev {interface} scope link",
        f"-netns {namespace} route add default via {GATEWAY}",
    )
    return {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": interface, "sandbox": os.environ["CNI_NETNS"]}],
        "ips": [{"address": f"{address}/32", "gateway": GATEWAY, "interface": 0}],
    }


def _next() -> int:
    with _COUNT.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or _FIRST)
        if number > _LAST:
            raise SystemExit("every address was given")
        file.truncate(0)
        file.write(str(number + 1))
    return number


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
