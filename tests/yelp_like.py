"""Made-up files in the schema of the Yelp data, which may not be passed on."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any, TextIO

import numpy as np

TONES = (
    ["awful", "terrible", "horrible", "disgusting", "worst", "bad", "poor", "nasty", "boring", "dirty"],
    ["okay", "average", "fair", "decent", "ordinary", "acceptable", "plain", "usual", "normal", "common"],
    ["excellent", "wonderful", "perfect", "delicious", "great", "best", "amazing", "awesome", "superb"],
)
FILLER = ["we", "came", "for", "food", "and", "the", "staff", "at", "our", "table", "on", "a", "day", "with"]
STARS = ((1.0, 1.5, 2.0, 2.5), (3.0, 3.5), (4.0, 4.5, 5.0))
# Mean votes per review of each class: every aspect separates some classes and blurs others.
RATES = {"cool": (2.0, 6.0, 40.0), "useful": (60.0, 8.0, 12.0), "funny": (30.0, 25.0, 3.0)}


def write_yelp_like(
    directory: str | os.PathLike[str],
    n_businesses: int = 11_160,
    *,
    reviews_per_business: int = 4,
    schema: str = "flat",
    compress: bool = False,
    seed: int | np.random.Generator | None = None,
) -> Path:
    """Write ``yelp_academic_dataset_business.json`` and ``..._review.json`` with three rating classes.

    Parameters
    ----------
    directory
        Made if it is not there.
    n_businesses, reviews_per_business
        Sizes; the paper has 11,160 businesses.
    schema
        ``"flat"``: votes beside the text; ``"votes"``: inside ``votes``, as in older releases.
    compress
        Write ``.json.gz``.
    seed
        The same seed writes the same files.

    Returns
    -------
    Path
        The directory.
    """
    if schema not in ("flat", "votes"):
        raise ValueError(f"schema={schema!r}: expected 'flat' or 'votes'")
    if n_businesses < 1 or reviews_per_business < 1:
        raise ValueError("at least one business and one review of each are needed")
    rng = np.random.default_rng(seed)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    classes = rng.integers(3, size=n_businesses)
    with _opened(folder, "business", compress) as handle:
        for number, which in enumerate(classes):
            stars = float(rng.choice(STARS[which]))
            _write(handle, {"business_id": f"b{number:06d}", "name": f"Place {number}", "stars": stars})
    with _opened(folder, "review", compress) as handle:
        for number in range(n_businesses * reviews_per_business):
            business = number % n_businesses
            _write(handle, _review(number, business, int(classes[business]), schema, rng))
    return folder


def _review(number: int, business: int, which: int, schema: str, rng: np.random.Generator) -> dict[str, Any]:
    votes = {name: int(rng.poisson(rate[which] * rng.gamma(4.0, 0.25))) for name, rate in RATES.items()}
    # one word in five is of another tone: classes overlap, as they do in life
    tones = [which if rng.random() < 0.8 else int(rng.integers(3)) for _ in range(6)]
    words = [str(rng.choice(TONES[tone])) for tone in tones] + [str(word) for word in rng.choice(FILLER, 6)]
    review = {
        "review_id": f"r{number:07d}",
        "business_id": f"b{business:06d}",
        "stars": int(np.clip(2 * which + 1 + rng.integers(-1, 2), 1, 5)),
        "text": " ".join(words[at] for at in rng.permutation(len(words))),
    }
    return review | ({"votes": votes} if schema == "votes" else votes)


def _opened(folder: Path, kind: str, compress: bool) -> TextIO:
    path = folder / f"yelp_academic_dataset_{kind}.json"
    if compress:
        return gzip.open(f"{path}.gz", "wt", encoding="utf-8")
    return open(path, "w", encoding="utf-8")


def _write(handle: TextIO, value: dict[str, Any]) -> None:
    handle.write(json.dumps(value) + "\n")
