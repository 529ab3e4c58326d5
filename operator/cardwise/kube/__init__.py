"""The API server, spoken in this package alone: plain JSON in and out, one error class.

``kubernetes_asyncio`` reads kubeconfigs and ServiceAccount tokens, keeps them fresh, and pools the
connections. Its typed models are left out on purpose: turning a list of Pods into them costs more
than everything that is done with the Pods afterwards.
"""

from cardwise.kube.client import Client, Credentials, connect, namespace_of

__all__ = ["Client", "Credentials", "connect", "namespace_of"]
