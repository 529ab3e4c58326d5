"""The controller: watches, decides at either door, binds or pins, and tells."""
