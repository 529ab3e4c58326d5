"""What the cluster's neighbours promise, written once and held against the fake and the real."""
