"""The placement engine: which cards of which node a Pod gets (docs/placement.md).

Pure: no I/O, no clock, no logging. Read in this order: ``usage`` (what is taken), ``score``,
``candidates`` (which cards can take the request), ``sortkeys``, ``topology`` (sets of cards),
``chain`` (one container), ``place`` (one Pod on one node), ``decide`` (over nodes).
"""
