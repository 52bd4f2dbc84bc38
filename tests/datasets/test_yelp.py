import gzip
import json
import sqlite3
import sys
import warnings

import numpy as np
import pytest

from spectrograd import GraphError, GraphWarning, MultilayerSpectralClustering, datasets, metrics
from spectrograd.datasets import load_reviews, load_yelp
from spectrograd.datasets.reviews import Scorer, polarity, rating_classes
from spectrograd.points.knn_graph import knn_graph
from yelp_like import write_yelp_like

pytest.importorskip("textblob")


def dump(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def review(business, text="good food", **more):
    return {"business_id": business, "text": text, "stars": 4, "cool": 1, "useful": 2, "funny": 0} | more


@pytest.fixture
def folder(tmp_path):
    dump(tmp_path / "business.json", [{"business_id": f"b{i}", "stars": 1 + i % 5} for i in range(10)])
    dump(tmp_path / "review.json", [review(f"b{i}", cool=i) for i in range(10)])
    return tmp_path


def load(folder, **options):
    return load_yelp(folder, **({"cache": None} | options))


@pytest.mark.parametrize(("schema", "compress"), [("flat", False), ("votes", True)])
def test_generated_files_give_four_layers(tmp_path, schema, compress):
    write_yelp_like(tmp_path, 300, schema=schema, compress=compress, seed=0)
    data = load(tmp_path)
    assert data.graph.layer_names == ("polarity", "cool", "useful", "funny")
    assert data.graph.n_nodes == 300
    assert data.graph.node_names[0] == "b000000"
    assert set(data.labels.tolist()) == {0, 1, 2}
    assert data.report.n_reviews == 1200
    assert np.abs(data.points[0]).max() <= 1
    model = MultilayerSpectralClustering(3, random_state=0).fit(data.graph)
    assert metrics.nmi(data.labels, model.labels_) > 0.5


def test_both_schemas_and_any_number_of_processes_agree(tmp_path, monkeypatch):
    monkeypatch.setattr("spectrograd.datasets.reviews.WORTH_PROCESSES", 1)
    for schema in ("flat", "votes"):
        write_yelp_like(tmp_path / schema, 60, schema=schema, seed=1)
    one, two = load(tmp_path / "flat"), load(tmp_path / "votes", n_jobs=2)
    for first, second in zip(one.points, two.points, strict=True):
        np.testing.assert_array_equal(first, second)


def test_same_seed_same_files(tmp_path):
    texts = [
        (write_yelp_like(tmp_path / name, 20, seed=5) / "yelp_academic_dataset_review.json").read_text()
        for name in "ab"
    ]
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="expected 'flat' or 'votes'"):
        write_yelp_like(tmp_path, 5, schema="new")
    with pytest.raises(ValueError, match="at least one business"):
        write_yelp_like(tmp_path, 0)


def test_sums_and_classes(folder):
    dump(
        folder / "review.json",
        [review(f"b{i}", cool=i, votes={"cool": 1, "useful": 0, "funny": 3}) for i in range(10)] * 2,
    )
    data = load(folder)
    assert data.points[3].tolist() == [6.0] * 10
    assert data.labels.tolist() == [0, 0, 1, 2, 2] * 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"business_id": "b1", ', "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ('{"text": "fine"}', "business_id, text or votes missing"),
        (json.dumps(review("b1", cool=None)), "business_id, text or votes missing"),
        (json.dumps(review("b1", votes=3)), "business_id, text or votes missing"),
    ],
)
def test_broken_lines_are_skipped_or_fatal(folder, line, why):
    with open(folder / "review.json", "a") as handle:
        handle.write("\n" + line + "\n")
    with pytest.warns(GraphWarning, match=rf"1 broken lines skipped \(review.json, line 12: {why}"):
        data = load(folder)
    assert (data.report.n_broken, data.report.n_reviews) == (1, 10)
    with pytest.raises(GraphError, match=rf"review.json, line 12: {why}.*on_error='skip'"):
        load(folder, on_error="raise")


def test_unknown_businesses_and_businesses_without_reviews(folder):
    dump(folder / "review.json", [review(f"b{i}") for i in range(8)] + [review("elsewhere")] * 3)
    with pytest.warns(GraphWarning) as caught:
        data = load(folder)
    messages = {str(warning.message) for warning in caught}
    assert "3 reviews of unknown businesses skipped" in messages
    assert "2 businesses without reviews left out" in messages
    assert data.graph.n_nodes == 8


def test_empty_and_foreign_texts_do_not_count(folder):
    rows = [review(f"b{i}") for i in range(10)]
    rows += [
        review("b0", ""),
        review("b0", "  "),
        review("b1", "Das Essen war wunderbar"),
        review("b2", "food"),
    ]
    dump(folder / "review.json", rows)
    data = load(folder)
    assert (data.report.n_empty_texts, data.report.n_unscored_texts) == (2, 2)
    assert data.points[0][0] == data.points[0][1] == data.points[0][3]
    dump(folder / "review.json", [review(f"b{i}", "Bonjour") for i in range(10)])
    assert load(folder).points[0].tolist() == [0.0] * 10


def test_stars_of_the_reviews_stand_in(folder):
    dump(folder / "business.json", [{"business_id": f"b{i}"} for i in range(10)])
    assert load(folder).labels.tolist() == [2] * 10


def test_bad_folders(folder, tmp_path):
    with pytest.raises(GraphError, match="no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="expected 'skip' or 'raise'"):
        load(folder, on_error="ignore")
    (folder / "review2.json").write_text("")
    with pytest.raises(
        GraphError, match=r"one file \*review\*.json or .json.gz expected, found review.json, rev"
    ):
        load(folder)
    (folder / "review2.json").unlink()
    dump(folder / "review.json", [review("b1")])
    with pytest.warns(GraphWarning), pytest.raises(GraphError, match="1 items with reviews: 5 neighbours"):
        load(folder)
    (folder / "business.json").write_text("\n")
    with pytest.raises(GraphError, match="no business in it"):
        load(folder)
    (folder / "business.json").unlink()
    (folder / "business.json.gz").write_bytes(gzip.compress(b'{"business_id": "a"}\n' * 50)[:-9])
    with pytest.raises(GraphError, match="broken gzip file"):
        load(folder)
    (folder / "business.json.gz").unlink()
    with pytest.raises(GraphError, match="found none"):
        load(folder)


def test_progress_is_called(folder, monkeypatch):
    monkeypatch.setattr("spectrograd.datasets.yelp.REPORT_EVERY", 4)
    seen = []
    load(folder, progress=seen.append)
    assert seen == [4, 8]


def test_cache_is_used_and_keeps_no_text(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "polarity.sqlite"
    texts = [(0, "a wonderful day"), (1, "xyzzy"), (0, "a wonderful day")]
    first = list(Scorer(path).score(texts))
    assert first == [(0, 1.0), (1, None), (0, 1.0)]
    monkeypatch.setattr("spectrograd.datasets.reviews.polarity", lambda text: pytest.fail("analysed twice"))
    assert list(Scorer(path).score(texts)) == first
    assert b"wonderful" not in path.read_bytes()
    assert sqlite3.connect(path).execute("SELECT count(*) FROM polarity").fetchone() == (2,)
    path.write_text("not a database " * 100)
    with pytest.raises(ValueError, match="cannot be used as polarity cache"):
        list(Scorer(path).score(texts))


def test_auto_cache_lives_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    list(Scorer().score([(0, "good")]))
    assert (tmp_path / "spectrograd" / "polarity.sqlite").exists()


def test_without_textblob_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "textblob", None)
    with pytest.raises(ImportError, match=r"pip install spectrograd\[reviews\]"):
        list(Scorer(None).score([(0, "good")]))


def test_polarity_has_the_sign_of_the_text():
    assert polarity("excellent, wonderful") > 0.5
    assert polarity("terrible and disgusting") < -0.5
    assert polarity("") is None


def test_ties_are_deterministic_and_exact():
    counts = np.random.default_rng(0).poisson(2.0, 400).astype(float)
    one, two = knn_graph(counts, 5), knn_graph(counts.copy(), 5)
    np.testing.assert_array_equal(one.matrix.toarray(), two.matrix.toarray())
    assert (np.diff(one.matrix.indptr) >= 5).all()
    rows, cols = one.matrix.nonzero()
    crowded = np.bincount(counts.astype(int))[counts.astype(int)] > 5
    assert (counts[rows] == counts[cols])[crowded[rows] & crowded[cols]].all()


TABLE = "item_id,review_text,rating,helpful_votes\n" + "".join(
    f"{i % 8},{'great' if i % 8 > 3 else 'awful'} thing,{5 if i % 8 > 3 else 1},{i % 8}\n" for i in range(24)
)


def test_any_review_table(tmp_path):
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    data = load_reviews(path, cache=None, n_neighbors=3)
    assert data.graph.layer_names == ("polarity", "helpful_votes")
    assert data.labels.tolist() == [0] * 4 + [2] * 4
    assert data.points[1].tolist() == [3.0 * i for i in range(8)]
    assert datasets.ReviewData is type(data)


def test_broken_review_tables(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(TABLE + "3,fine,five,0\n,fine,5,0\n3,,5,0\n")
    with pytest.warns(
        GraphWarning, match=r"2 broken lines skipped \(r.csv, line 26: item_id, rating or votes"
    ):
        data = load_reviews(path, cache=None, n_neighbors=3)
    assert data.report.n_empty_texts == 1
    with pytest.raises(GraphError, match="line 26"):
        load_reviews(path, cache=None, on_error="raise")
    with pytest.raises(GraphError, match="no column 'stars'; it has item_id, review_text"):
        load_reviews(path, cache=None, rating="stars")
    with pytest.raises(ValueError, match="expected 'skip' or 'raise'"):
        load_reviews(path, on_error="?")
    with pytest.raises(GraphError, match="No such file"):
        load_reviews(tmp_path / "none.csv", cache=None)


def test_tertiles_and_bad_rules():
    assert rating_classes(np.arange(9.0), "tertiles").tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="expected 'stars' or 'tertiles'"):
        rating_classes(np.arange(3.0), "halves")


def test_reading_well_formed_files_warns_of_nothing(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(folder)
