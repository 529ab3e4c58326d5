"""What people are told: log lines, events, and the usage in a GPUNode's status."""
