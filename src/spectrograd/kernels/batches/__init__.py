"""Mini-batches of edges in compiled code: grouped by vertex, and the repaired steps over them."""
