"""Whether this process is on duty: loaded, not stopping, and (of two replicas) the active one."""

from cardwise.controller.lease.tenure import Tenure


class Duty:
    """Asked before every answer, and before every write that places a Pod."""

    def __init__(self, tenure: Tenure | None = None) -> None:
        """Off duty until `loaded`.

        Args:
            tenure: of the Lease; None: there is no other replica, this one is always active.
        """
        self.loaded = False
        """The ledger holds a complete list of Pods and GPUNodes."""
        self.stopping = False
        """SIGTERM came: what has begun is answered, no Binding and no pin is sent any more."""
        self._tenure = tenure

    @property
    def term(self) -> int:
        """What was decided in one term is not sent in another."""
        return self._tenure.term if self._tenure is not None else 0

    def not_ready(self) -> str:
        """Why this process can't serve; empty when it can. A passive replica is ready."""
        if self.stopping:
            return "the controller is stopping; ask again"
        if not self.loaded:
            return "ledger not loaded yet; ask again"
        return ""

    def passive(self) -> str:
        """Why another replica acts and this one does not; empty when it does."""
        return self._tenure.refusal() if self._tenure is not None else ""

    def stuck(self) -> str:
        """Why our scheduler, or our elector, must give the Lease back; empty when it need not."""
        return self._tenure.stuck() if self._tenure is not None else ""

    def refusal(self) -> str:
        """Why no call can be answered now; empty when it can."""
        return self.not_ready() or self.passive()
