"""A real node for the tests: containerd and kubelet on this machine, in namespaces of their own."""
