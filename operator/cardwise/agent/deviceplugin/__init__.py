"""kubelet's device plugin: which container gets which of the node's cards (decision 12)."""
