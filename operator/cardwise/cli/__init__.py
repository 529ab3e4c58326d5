"""The command line: thin programs around the core, for a person or a script."""
