"""What networkx shows of this backend; read whenever networkx is imported, so it imports nothing itself."""

from __future__ import annotations

FUNCTIONS = ("algebraic_connectivity", "fiedler_vector", "spectral_bisection", "spectral_ordering")
NOTE = "The solver is chosen by size and spectrum; a result that is not certified comes with a warning."


def get_info() -> dict[str, object]:
    """Return the name of the backend and the functions it has."""
    return {
        "backend_name": "spectrograd",
        "project": "spectrograd",
        "package": "spectrograd",
        "short_summary": "Certified spectral embedding of graphs.",
        "functions": {name: {"additional_docs": NOTE} for name in FUNCTIONS},
    }
