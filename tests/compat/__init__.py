"""HAMi 2.10's worked cases, formats and device plugin, held against this product."""
