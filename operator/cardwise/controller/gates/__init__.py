"""The door of gates: Pods wait behind a gate, and are decided before they are queued."""
