"""Values on disk: atomic checksummed folders, one codec of plain values and arrays, checkpoint folders."""
