"""Whether this process may act: loaded, not stopping, and (with two replicas) the active one."""


class Gate:
    """Asked before every answer and before every Binding."""

    def __init__(self) -> None:
        self.loaded = False
        """The ledger holds a complete list of Pods and GPUNodes."""
        self.stopping = False
        """SIGTERM came: what has begun is answered, no Binding is sent any more."""

    def refusal(self) -> str:
        """Why no call can be answered now; empty when it can."""
        if self.stopping:
            return "the controller is stopping; ask again"
        if not self.loaded:
            return "ledger not loaded yet; ask again"
        return ""
