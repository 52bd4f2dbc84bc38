"""Tables of documents and their words: generated ones with planted topics, and reviews of clothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

ZIPF = 1.1  # exponent of the frequencies of words, whatever the topic
TOPIC_SHARE = 0.3  # of the words of a document that its topic has chosen
TOPIC_WORDS = 400  # words that a topic uses more than others
BLOCK_ROWS = 50_000
MAX_SHARE = 0.5  # of the documents: more frequent words are left out, as `max_df` of scikit-learn does


def make_documents(
    n_rows: int, n_words: int, length: int, n_topics: int, seed: int = 0
) -> tuple[sp.csr_array, np.ndarray[Any, Any]]:
    """tf-idf of documents of planted topics, float32, and their topics.

    Parameters
    ----------
    n_rows, n_words, n_topics : int
    length : int
        Words drawn for every document; a word that is drawn twice is one entry.
    seed : int
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_topics, n_rows)
    cumulated = np.cumsum(np.arange(1, n_words + 1) ** -ZIPF)
    cumulated /= cumulated[-1]
    own_words = rng.integers(0, n_words, (n_topics, TOPIC_WORDS))
    blocks = []
    for start in range(0, n_rows, BLOCK_ROWS):
        topics = labels[start : start + BLOCK_ROWS]
        shape = (len(topics), length)
        # 1. words of the language, and of the topic, each by Zipf's law
        words = np.searchsorted(cumulated, rng.random(shape))
        ranks = (TOPIC_WORDS ** rng.random(shape)).astype(np.int64) - 1
        words = np.where(rng.random(shape) < TOPIC_SHARE, own_words[topics[:, None], ranks], words)
        # 2. counts
        pointers = np.arange(len(topics) + 1) * length
        ones = np.ones(words.size, np.float32)
        counts = sp.csr_array((ones, words.ravel().astype(np.int32), pointers), shape=(len(topics), n_words))
        counts.sum_duplicates()
        blocks.append(counts)
    return tf_idf(sp.csr_array(sp.vstack(blocks, format="csr"))), labels


def tf_idf(counts: sp.csr_array) -> sp.csr_array:
    """``(1 + log tf) idf`` without words in more than half of the documents."""
    n_rows, n_words = counts.shape
    frequency = np.bincount(counts.indices, minlength=n_words)
    rare = np.log((1 + n_rows) / (1 + frequency)).astype(np.float32) + 1
    rare[frequency > MAX_SHARE * n_rows] = 0
    counts.data = (1 + np.log(counts.data)) * rare[counts.indices]
    counts.eliminate_zeros()
    return counts


def reviews_of_clothing(folder: Path) -> tuple[sp.csr_array, np.ndarray[Any, Any]]:
    """tf-idf of the words of the reviews, and the class of garment of each (those of 100 reviews or more)."""
    import pandas as pd
    from sklearn.feature_extraction.text import TfidfVectorizer

    table = pd.read_csv(folder / "clothing_reviews" / "reviews.csv.gz")
    table = table[table["review_text"].notna() & table["class"].notna()]
    size = table.groupby("class")["class"].transform("size")
    table = table[size >= 100]
    words = TfidfVectorizer(min_df=3, max_df=MAX_SHARE, sublinear_tf=True, stop_words="english")
    Z = words.fit_transform(table["review_text"]).astype(np.float32)
    filled = np.flatnonzero(np.diff(Z.indptr))
    return sp.csr_array(Z[filled]), pd.factorize(table["class"].to_numpy()[filled])[0]
