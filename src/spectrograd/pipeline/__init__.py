"""The line from a graph to its embedding and clusters, single or multilayer; every command walks it."""
