"""The watches: Kopf's events and full lists, to the ledger."""
