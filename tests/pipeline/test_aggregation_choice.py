"""``aggregation="auto"``: what it compares, what it chooses, and what its result promises."""

import os
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from spectrograd import (
    Graph,
    GraphError,
    GraphWarning,
    MultilayerGraph,
    MultilayerSpectralClustering,
    MultilayerSpectralEmbedding,
    datasets,
    metrics,
    read_graph,
)
from spectrograd.aggregation import layer_operators, with_neutral_nodes
from spectrograd.pipeline import Settings, cluster
from spectrograd.pipeline.layer_embeddings import embed_layer
from spectrograd.pipeline.merge import merge
from spectrograd.pipeline.rough_solve import UNMEASURED, certify_rough, rough_embed

N, K = 240, 3
LABELS = np.arange(N) % K


@cache
def block_layer(random_share=0.3, seed=0, groups=K, degree=12):
    """Random edges, the share of them between any two nodes, the rest inside a group."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N) % groups
    one, other = rng.integers(N, size=(2, N * degree * 2))
    keep = (one != other) & ((labels[one] == labels[other]) | (rng.random(len(one)) < random_share / groups))
    pairs = np.column_stack([one, other])[keep][: N * degree // 2]
    half = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(N, N)).tocsr()
    return sp.csr_array(((half + half.T) > 0).astype(float))


def fit(layers, **options):
    return MultilayerSpectralClustering(K, random_state=0, **options).fit(layers)


@cache
def mixture():
    return datasets.make_multilayer_gmm(400, 3, 4, separation=2.5, random_state=0)


def test_the_choice_is_told_with_the_next_best():
    model = fit(mixture().graph)
    assert model.aggregation_ in ("mean", "sum", "geometric")
    assert "of what clusters can tell about the edges" in model.aggregation_reason_
    assert "next:" in model.aggregation_reason_
    assert model.converged_
    assert model.certificate_.converged


def test_a_single_good_layer_among_random_ones_is_taken_alone():
    layers = [block_layer(0.1), block_layer(3.0, 1), block_layer(3.0, 2), block_layer(3.0, 3)]
    model = fit(layers)
    assert metrics.nmi(LABELS, model.labels_) > 0.95
    assert model.converged_


def test_a_layer_taken_alone_has_all_the_weight_and_all_the_influence():
    """Articles by text and by picture: on made layers a merge has always been better."""
    folder = Path(os.environ.get("SPECTROGRAD_DATA", "../shared/data")) / "wikipedia_articles"
    files = sorted(folder.glob("layer_*.npz"))
    if len(files) != 2:
        pytest.skip(f"the layers of the articles are not in {folder}: set SPECTROGRAD_DATA to its parent")
    merged = merge(read_graph(*files), 10, Settings(seed=0), aggregation="auto")
    assert merged.chosen.layer == 1
    assert merged.weights.tolist() == [0, 2]
    assert merged.layers_behind == ()


def test_names_are_what_they_were():
    model = fit(mixture().graph, aggregation="projection")
    assert (model.aggregation_, model.aggregation_reason_) == ("projection", "asked for")


def test_alpha_makes_it_the_projection():
    model = fit(mixture().graph, alpha=0.3)
    assert model.aggregation_ == "projection"
    assert "alpha was given" in model.aggregation_reason_


def test_one_layer_is_nothing_to_merge():
    assert fit([mixture().graph.layers[0]]).aggregation_ == "mean"


@pytest.mark.parametrize("solver", ["sgd", "multilevel", "shift-invert"])
def test_solvers_that_need_edges_get_an_operator_with_edges(solver):
    model = fit(mixture().graph, solver=solver)
    assert model.aggregation_ in ("mean", "sum")
    assert model.solver_ == solver


def test_the_embedding_is_chosen_by_the_same_rule():
    chosen = MultilayerSpectralEmbedding(K, drop_first=False, random_state=0).fit(mixture().graph)
    assert chosen.aggregation_ == fit(mixture().graph).aggregation_


def test_auto_has_no_parameters():
    with pytest.raises(ValueError, match="'auto' has no parameter 'p'"):
        fit(mixture().graph, aggregation_params={"p": -2})


def test_new_nodes_find_their_cluster():
    data = mixture()
    model = fit(data.graph)
    rows = [layer.matrix[:20].toarray() for layer in data.graph.layers]
    assert (model.predict(rows) == model.labels_[:20]).mean() > 0.8


def test_saved_models_keep_the_choice(tmp_path):
    import spectrograd

    model = fit(mixture().graph)
    model.save(tmp_path / "model")
    again = spectrograd.load(tmp_path / "model")
    assert (again.aggregation_, again.aggregation_reason_) == (model.aggregation_, model.aggregation_reason_)


def test_the_result_does_not_depend_on_who_asks():
    first, second = (cluster(mixture().graph, Settings(n_components=4, seed=0)) for _ in range(2))
    assert first.vectors.tobytes() == second.vectors.tobytes()


# --- Rough solves and layers in components.


def test_rough_vectors_are_those_of_the_certified_solve():
    operator = layer_operators(mixture().graph, "symmetric")[0]
    rough = rough_embed(operator, 4, Settings(seed=0))
    assert rough.certificate.known == UNMEASURED
    certified = certify_rough(operator, rough, Settings(seed=0))
    assert certified.certificate.converged
    cosines = np.linalg.svd(rough.embedding.vectors.T @ certified.embedding.vectors)[1]
    assert cosines.min() > 1 - 1e-6


def blocks_of(sizes, n):
    """Complete graphs of these sizes, and nodes without an edge up to n."""
    blocks = [np.ones((s, s)) - np.eye(s) for s in sizes]
    matrix = sp.block_diag([*blocks, np.zeros((n - sum(sizes),) * 2)], format="csr")
    return Graph.from_matrix(sp.csr_array(matrix))


@pytest.mark.parametrize("kind", ["symmetric", "unnormalized"])
@pytest.mark.parametrize("solve", [rough_embed, None])
def test_components_of_a_layer_are_its_null_vectors(kind, solve):
    graph = MultilayerGraph((blocks_of([30, 20, 10], 100), blocks_of([50, 50], 100)), ("a", "b"))
    operators = layer_operators(graph, kind)
    for operator, sizes in zip(operators, ([30, 20, 10], [50, 50]), strict=True):
        found = embed_layer(operator, 4, Settings(seed=0), **({"solve": solve} if solve else {}))
        U = found.embedding.vectors
        assert U.shape == (100, 4)
        np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-8)
        assert np.abs(found.embedding.eigenvalues[: len(sizes)]).max() < 1e-12
        ends = np.cumsum([0, *sizes])
        for column, (start, end) in enumerate(pairwise(ends)):
            assert np.abs(U[start:end, column]).min() > 0.1
            assert np.linalg.norm(U[start:end, column]) == pytest.approx(1)


def test_of_more_components_than_columns_the_largest_enter_exactly():
    graph = MultilayerGraph((blocks_of([5, 30, 10, 20], 65), blocks_of([65], 65)), ("a", "b"))
    found = embed_layer(layer_operators(graph, "symmetric")[0], 3, Settings(seed=0))
    sizes = (found.embedding.vectors != 0).sum(axis=0)
    assert sizes.tolist() == [30, 20, 10]
    assert found.certificate.converged
    assert "3 largest of 4 components" in found.certificate.sentence


def test_a_layer_of_few_nodes_is_embedded_on_them_alone():
    rng = np.random.default_rng(0)
    near = np.triu(rng.random((40, 40)) < 0.3, 1)
    small = Graph.from_edges(*np.nonzero(near), n_nodes=200)
    graph = MultilayerGraph((small, blocks_of([200], 200)), ("few", "all"))
    found = embed_layer(layer_operators(graph, "symmetric")[0], 3, Settings(seed=0))
    assert found.embedding.vectors.shape == (200, 3)
    assert not found.embedding.vectors[40:].any()
    assert found.certificate.converged


def test_absent_nodes_are_neutral_in_a_sum():
    graph = MultilayerGraph((blocks_of([30], 40), blocks_of([40], 40)), ("a", "b"))
    absent = with_neutral_nodes(layer_operators(graph, "symmetric")[0])
    assert absent.diagonal[30:].tolist() == [1.0] * 10
    plain = layer_operators(graph, "unnormalized")[0]
    assert with_neutral_nodes(plain) is plain


def test_nodes_that_few_layers_know_do_not_make_the_clusters():
    """Each node misses from two layers in five: with zeros for them the merge saw little else."""
    rng = np.random.default_rng(3)
    layers = []
    for seed in range(5):
        here = sp.diags_array((rng.random(N) < 0.6).astype(float))
        layers.append(sp.csr_array(here @ block_layer(0.6, seed, degree=16) @ here))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for aggregation in ("mean", "projection", "auto"):
            assert metrics.nmi(LABELS, fit(layers, aggregation=aggregation).labels_) > 0.9


def test_layers_without_a_common_node_are_refused():
    one = Graph.from_edges(["a", "b", "c"], ["b", "c", "a"])
    two = Graph.from_edges(["d", "e", "f"], ["e", "f", "d"])
    with pytest.raises(GraphError, match="no node in common"):
        MultilayerSpectralClustering(2, random_state=0).fit({"one": one, "two": two})


def test_the_command_says_what_it_chose(tmp_path):
    import json

    from spectrograd.cli import main

    for name, layer in zip("ab", mixture().graph.layers, strict=False):
        rows = sp.triu(layer.matrix).tocoo()
        lines = [f"{i},{j},{w}" for i, j, w in zip(*rows.coords, rows.data, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["src,dst,weight", *lines]))
    files = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    targets = ["-o", str(tmp_path / "labels.csv"), "--summary-json", str(tmp_path / "s.json")]
    assert main(["cluster", *files, "-k", "4", *targets]) == 0
    chosen = json.loads((tmp_path / "s.json").read_text())["aggregation"]
    assert chosen["sentence"].endswith(chosen["reason"])
    assert len(chosen["relative_information"]) >= 3


@pytest.mark.parametrize("aggregation", ["mean", "sum"])
def test_more_clusters_of_layers_than_the_evidence_supports_are_said(aggregation):
    graphs = [
        datasets.make_block_model(600, 3, mean_degree=20, mixing=0.1, random_state=0).graph for _ in range(2)
    ]
    layers = MultilayerGraph.from_layers(graphs)
    with pytest.warns(GraphWarning, match="12 clusters were asked for.*speak clearly for 3"):
        result = cluster(layers, Settings(n_components=12, aggregation=aggregation, seed=0))
    assert result.n_clusters == 12


def test_a_layer_without_edges_is_said_once_and_needs_no_certificate():
    graph = datasets.make_block_model(200, 3, random_state=0).graph
    nothing = Graph.from_matrix(sp.csr_array((200, 200)))
    layers = MultilayerGraph.from_layers([graph, nothing])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MultilayerSpectralClustering(3, aggregation="joint", random_state=0).fit(layers)
    assert [str(each.message) for each in caught] == ["layers without any edge are left out: '1'"]
    assert model.converged_
