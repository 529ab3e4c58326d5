"""The agent of one GPU node: reads its cards and publishes them as a GPUNode."""
