"""Kubernetes JSON and the texts of events and logs: outside words to values and back, pure."""
