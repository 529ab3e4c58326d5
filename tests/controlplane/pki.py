"""Keys, certificates and kubeconfigs: clients of a test verify TLS as they do in a cluster."""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

# A configuration of our own: the machine's openssl.cnf might add extensions.
_OPENSSL_CNF = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {common_name}
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {alt_names}
"""
_DAYS = "30"


class Pki:
    """A certificate authority in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, exist_ok=True)
        self.ca = directory / "ca.crt"
        self._configure("cardwise throw-away control plane", "DNS:unused")
        self._key("ca")
        self._openssl(
            *("req", "-x509", "-new", "-key", "ca.key", "-out", "ca.crt", "-days", _DAYS),
            *("-config", "openssl.cnf", "-extensions", "ca"),
        )

    def signing_key(self, name: str) -> Path:
        """Make a private key that no certificate goes with."""
        return self._key(name)

    def server_certificate(self, name: str, alt_names: Sequence[str]) -> tuple[Path, Path]:
        """Issue a certificate for names like ``DNS:localhost`` and return it with its key."""
        key = self._key(name)
        self._configure(name, ",".join(alt_names))
        self._openssl(
            *("req", "-new", "-key", f"{name}.key", "-out", f"{name}.csr"),
            *("-config", "openssl.cnf"),
        )
        self._openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", "-days", _DAYS),
            *("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-extfile", "openssl.cnf", "-extensions", "server"),
        )
        return self.directory / f"{name}.crt", key

    def kubeconfig(self, path: Path, *, server: str, user: str, token: str) -> Path:
        """Write a kubeconfig that trusts this authority alone and carries the token."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(
                            self.ca.read_bytes()
                        ).decode(),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=1))  # JSON is YAML
        return path

    def _key(self, name: str) -> Path:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
        return self.directory / f"{name}.key"

    def _configure(self, common_name: str, alt_names: str) -> None:
        text = _OPENSSL_CNF.format(common_name=common_name, alt_names=alt_names)
        (self.directory / "openssl.cnf").write_text(text)

    def _openssl(self, *args: str) -> None:
        try:
            subprocess.run(
                ["openssl", *args], cwd=self.directory, check=True, capture_output=True, text=True
            )
        except FileNotFoundError as error:
            raise RuntimeError("the program openssl is needed for the certificates") from error
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"openssl {args[0]}: {error.stderr}") from error
