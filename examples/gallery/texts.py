"""Texts: words that occur together make topics; documents by the cosine of their tf-idf rows."""

import matplotlib
import numpy as np
import scipy.sparse as sp

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.feature_extraction.text import TfidfTransformer

from spectrograd import SpectralClustering, SpectralEmbedding, metrics

# 1. Counts of 2,000 words in 3,000 documents: each of five topics has words of its own.
rng = np.random.default_rng(0)
topics = rng.integers(5, size=3_000)
own = 400 * topics[:, None] + rng.integers(400, size=(3_000, 25))
common = rng.integers(2_000, size=(3_000, 35))
words = np.concatenate([own, common], axis=1)
documents = np.repeat(np.arange(3_000), words.shape[1])
counts = sp.coo_array((np.ones(words.size), (documents, words.ravel())), shape=(3_000, 2_000)).tocsr()
tfidf = TfidfTransformer().fit_transform(counts)

# 2. Cosines as weights.
model = SpectralClustering(5, affinity="cosine", random_state=0).fit(tfidf)
print(f"NMI {metrics.nmi(topics, model.labels_):.2f}; {model.certificate_.sentence}")

# 3. The picture.
embedding = SpectralEmbedding(2, affinity="cosine", random_state=0).fit_transform(tfidf)
figure, axes = plt.subplots(figsize=(4, 3.2))
axes.scatter(*embedding.T, s=2, c=model.labels_, cmap="tab10")
axes.set_title("documents by topic")
figure.savefig("texts.png", dpi=100, bbox_inches="tight")
