"""From the watches to the ledger: Kopf's events, and full lists."""
