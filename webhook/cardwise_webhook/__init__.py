"""The admission process: one HTTP endpoint that completes and checks GPU Pods at creation."""
