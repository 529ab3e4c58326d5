"""Cardwise: composable GPU scheduling policies for any Kubernetes cluster."""
