"""The Dask engine: steps, the session that runs them, the partition of a graph, the tasks."""
