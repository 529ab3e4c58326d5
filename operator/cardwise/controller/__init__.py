"""The operator process: watches, decides when kube-scheduler asks, binds, and tells."""
