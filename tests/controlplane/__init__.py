"""A throw-away Kubernetes control plane for the demo, the end-to-end tests and the benchmark.

``build.sh`` builds the programs once; ``launcher.ControlPlane`` starts and stops them.
"""
