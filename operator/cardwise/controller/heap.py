"""What lives as long as the process is taken out of what Python's collector of cycles looks at.

It looks at everything that is alive now and then, and nothing is answered meanwhile: 0.13 s at
5,000 nodes. What was loaded at the start is no garbage, so it is set aside; what is given up of it
later is freed all the same, unless it is a cycle, and neither the ledger nor Kopf's memory has any.
Only at the start: whatever happened to be under way at a later moment would never be looked at.
"""

import asyncio
import gc

_WATCHED_SECONDS = 60.0
"""After which Kopf knows every object that is watched."""


def set_aside() -> None:
    """Look a last time at what is alive now."""
    gc.collect()
    gc.freeze()


async def set_aside_later() -> None:
    """The same for what came with the watches; never ends by itself."""
    await asyncio.sleep(_WATCHED_SECONDS)
    set_aside()
    await asyncio.Event().wait()
