"""Sixty runs, recorded and repeated: a change of the house must not change what comes out of it.

`python -m benchmarks.same_results record FILE` before a change, `... compare FILE` after it. Eigenvalues of
exact solvers agree to 1e-6, others within their certified intervals, labels with an ARI of at least .999;
stochastic solvers within .02 NMI in the mean over five seeds.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spectrograd import MultilayerSpectralClustering, SpectralClustering, datasets, knn_graph, metrics

EXACT = ("eigen", "shift-invert")
STOCHASTIC = ("sgd", "sgd-paper", "stochastic-fb")
ITERATIVE = ("auto", "chebyshev", "lanczos", "lobpcg", "multilevel", "power")
LAPLACIANS = ("random_walk", "symmetric", "unnormalized")
SEEDS = range(5)


def runs() -> Iterator[tuple[str, Any, Any, Any]]:
    """A name, an estimator without a seed, its input and the true classes."""
    block = datasets.make_block_model(6_000, 4, random_state=1)
    points, classes = datasets.make_gaussian_mixture(2_000, 4, random_state=2)
    plane = knn_graph(points, 10)
    layers = datasets.make_multilayer_gmm(1_500, 3, 4, random_state=3)
    for solver in (*ITERATIVE, *EXACT):
        for kind in LAPLACIANS:
            model = SpectralClustering(4, solver=solver, laplacian=kind, max_iter=None)
            if solver != "shift-invert":
                yield f"block {solver} {kind}", model, block.graph, block.labels
            if solver not in ("power", "chebyshev") or kind == "random_walk":
                yield f"plane {solver} {kind}", model, plane, classes
    for aggregation in ("projection", "mean", "power-mean", "geometric", "grassmann", "joint"):
        for weights in (None, "auto"):
            layered = MultilayerSpectralClustering(4, aggregation=aggregation, layer_weights=weights)
            yield f"layers {aggregation} {weights}", layered, layers.graph, layers.labels
    for solver in STOCHASTIC:
        yield f"block {solver}", SpectralClustering(4, solver=solver), block.graph, block.labels


def measured() -> dict[str, dict[str, Any]]:
    """Everything that is compared."""
    found: dict[str, dict[str, Any]] = {}
    for name, model, data, classes in runs():
        stochastic = name.split()[1] in STOCHASTIC
        fits = [_fitted(model, data, seed) for seed in (SEEDS if stochastic else [0])]
        first = fits[0]
        found[name] = {
            "eigenvalues": first.eigenvalues_.tolist(),
            "residuals": first.certificate_.residuals.tolist(),
            "labels": first.labels_.tolist(),
            "nmi": float(np.mean([metrics.nmi(classes, fit.labels_) for fit in fits])),
            "converged": bool(first.converged_),
        }
        print(f"{name:36} nmi {found[name]['nmi']:.3f} converged {found[name]['converged']}", flush=True)
    return found


def _fitted(model: Any, data: Any, seed: int) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return model.set_params(random_state=seed).fit(data)


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for every run that is not what it was."""
    messages = []
    for name, old in before.items():
        new, solver = now[name], name.split()[1]
        if solver in STOCHASTIC:
            if abs(new["nmi"] - old["nmi"]) > 0.02:
                messages.append(f"{name}: NMI {old['nmi']:.3f} -> {new['nmi']:.3f}")
            continue
        moved = np.abs(np.subtract(new["eigenvalues"], old["eigenvalues"]))
        allowed = 1e-6 if solver in EXACT else np.add(new["residuals"], old["residuals"]) + 1e-9
        if old["converged"] and (moved > allowed).any():
            messages.append(f"{name}: eigenvalues moved by {moved.max():.2g}")
        agreement = metrics.score(np.array(old["labels"]), np.array(new["labels"]))["ari"]
        if old["converged"] and agreement < 0.999:
            messages.append(f"{name}: labels agree with ARI {agreement:.4f}")
        if old["converged"] and not new["converged"]:
            messages.append(f"{name}: no longer converged")
    return messages


if __name__ == "__main__":
    verb, file = sys.argv[1], Path(sys.argv[2])
    if verb == "record":
        file.write_text(json.dumps(measured()))
    else:
        messages = differences(json.loads(file.read_text()), measured())
        print("\n".join(messages) or "the same")
        sys.exit(bool(messages))
