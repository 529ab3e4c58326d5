"""Hand-written stand-ins for what Cardwise asks of the outside (``cardwise.ports``)."""
