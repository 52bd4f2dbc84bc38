"""A graph on disk: written once under a memory limit, streamed from then on (docs/store.md)."""
