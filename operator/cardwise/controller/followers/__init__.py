"""Who looks at what the mirror shows, and acts on what nobody else would notice."""
