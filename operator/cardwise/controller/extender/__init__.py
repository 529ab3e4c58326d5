"""The door of the extender: kube-scheduler's questions by HTTP, and its waiting Pods woken."""
