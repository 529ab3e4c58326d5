"""Who holds which card: in memory, no I/O, time is an argument.

The annotation on the bound Pod is the truth; the ledger is derived from it and can be rebuilt from
a list of Pods at any time (a restart loses only holds, and kube-scheduler asks again). Every method
is one step: the caller runs them one after the other, so no decision sees half a change.
"""

from cardwise.ledger.accounts import STALE_SECONDS
from cardwise.ledger.ledger import HOLD_SECONDS, Ledger
from cardwise.ledger.pods import PodEntry, Repair, Sighting, Stage

__all__ = ["HOLD_SECONDS", "STALE_SECONDS", "Ledger", "PodEntry", "Repair", "Sighting", "Stage"]
