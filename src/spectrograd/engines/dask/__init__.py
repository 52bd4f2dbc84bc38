"""What the Dask engine is made of: steps, the session that runs them, the cut of a graph, the tasks."""
