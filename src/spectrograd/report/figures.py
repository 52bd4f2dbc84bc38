"""The pictures of reports, drawn by matplotlib without a display, and the overlap of subspaces."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrograd.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1d2430"  # titles and lines
SOFT = "#5b6675"  # ticks
MOST_NUMBERS = 12  # rows up to which every cell shows its number
LONGEST_NAME = 14


@dataclass(frozen=True, eq=False)
class Agreement:
    """Pairwise overlaps of subspaces: 1 is the same, 0 what chance gives."""

    names: tuple[str, ...]
    overlaps: Array


def draw_agreement(axis: Axes, agreement: Agreement) -> None:
    """A square of numbers, darker where two subspaces share more."""
    size = len(agreement.names)
    axis.imshow(agreement.overlaps, cmap="Blues", vmin=0, vmax=1)
    shown = [
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in agreement.names
    ]
    axis.set_xticks(range(size), shown, rotation=40 if max(map(len, shown)) > 4 else 0, ha="center")
    axis.set_yticks(range(size), shown)
    axis.tick_params(colors=SOFT, labelsize=8, length=0)
    axis.spines[:].set_visible(False)
    axis.set_title("Agreement of the subspaces", fontsize=11, color=INK)
    if size > MOST_NUMBERS:
        return
    for row, values in enumerate(agreement.overlaps):
        for column, value in enumerate(values):
            colour = "white" if value > 0.6 else INK
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=9)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


# --- The picture: layers and embedding coloured by cluster, convergence over time; matplotlib, no display.

# Okabe & Ito: distinct with any kind of colour vision. Beyond these, matplotlib's tab20 goes on.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#555555")
LINE_COLOURS = ("#1d2430", "#D55E00", "#0072B2", "#009E73", "#CC79A7")
SHOWN_POINTS = 20_000
MOST_CORNERS = 12
WORST_CONDITION = 30.0
FARTHEST = 3.0  # from the middle, where corners are at 1: rows beyond would make dots of the clusters
MISSING = -1  # the label of excluded nodes
GREY = "#b4bcc6"
# Gaps below this are rounding: the objective is known to about this fraction of its size.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Curve:
    """A method's objective and residual over time; a direct method has a single measurement."""

    name: str
    seconds: Array
    objective: Array
    residual: Array

    @classmethod
    def of(cls, name: str, history: Sequence[object]) -> Curve:
        """From the measurements of a run."""
        columns = ("seconds", "objective", "residual")
        return cls(name, *(np.array([getattr(point, column) for point in history]) for column in columns))

    @property
    def is_direct(self) -> bool:
        """Whether there is a single point, hence no curve."""
        return len(self.seconds) < 2


@dataclass(frozen=True, eq=False)
class Picture:
    """What to draw.

    ``clouds`` are the points each layer was made from, where they are known, under ``cloud_titles``;
    ``agreement`` is how much the layers have in common.
    """

    title: str
    vectors: Array
    labels: Any
    curves: tuple[Curve, ...] = ()
    clouds: tuple[Array, ...] = ()
    cloud_titles: tuple[str, ...] = ()
    subtitle: str = ""
    agreement: Agreement | None = None


def draw(picture: Picture) -> bytes:
    """Draw the picture as PNG."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    has_curves = any(not curve.is_direct for curve in picture.curves)
    widths = [1.0, *([1.0] if has_curves else []), *([0.62] if picture.agreement else [])]
    across = 12.5 if picture.clouds and len(widths) < 3 else 2.5 + 5 * sum(widths)
    size = (across, 9.6 if picture.clouds else 6.0)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure: Any = Figure(figsize=size, dpi=130, layout=layout)
    figure.suptitle(picture.title, fontsize=15, fontweight="bold", color=INK)
    below = figure
    if picture.clouds:
        above, below = figure.subfigures(2, 1, height_ratios=(1, 1.6))
        _draw_clouds(above, picture)
    axes = below.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    draw_embedding(axes[0], picture.vectors, picture.labels)
    axes[0].set_title(f"Embedding{picture.subtitle}", fontsize=11, color=INK)
    if has_curves:
        _draw_curves(axes[1], picture.curves)
    if picture.agreement is not None:
        draw_agreement(axes[-1], picture.agreement)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def project(vectors: Array, labels: Array) -> tuple[Array, str]:
    """A linear view of the rows, scaled to unit length, in the plane; and what it shows.

    With three to twelve clusters the view puts the mean of each cluster on a corner of a regular polygon:
    two principal components would lay some clusters over others. Otherwise, and where the means are too
    close to dependent for that or some rows would lie far out, it is the first two principal components.
    Nodes of no cluster (label -1) have no say in it.
    """
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.where(norms == 0, 1, norms)
    inside = np.asarray(labels) != MISSING
    own = rows[inside] if inside.any() else rows
    centred = rows - own.mean(axis=0)
    axes = np.linalg.eigh((own - own.mean(axis=0)).T @ (own - own.mean(axis=0)))[1][:, ::-1][:, :2]
    ranks = np.unique(np.asarray(labels)[inside], return_inverse=True)[1]
    n_clusters = int(ranks.max(initial=-1)) + 1
    if 3 <= n_clusters <= min(MOST_CORNERS, rows.shape[1]):
        means = np.stack([own[ranks == rank].mean(axis=0) for rank in range(n_clusters)])
        turn = 2 * np.pi * np.arange(n_clusters) / n_clusters + np.pi / 2
        corners = np.column_stack([np.cos(turn), np.sin(turn)])[_around(means @ axes)]
        view = rows @ (np.linalg.pinv(means) @ corners)
        if np.linalg.cond(means) < WORST_CONDITION and np.linalg.norm(view, axis=1).max() <= FARTHEST:
            return view, "a linear view, the mean of each cluster in a corner,"
    flat = centred @ axes
    if flat.shape[1] < 2:
        flat = np.column_stack([flat, np.zeros(len(flat))])
    return flat, "the first two principal components"


def _around(points: Array) -> Array:
    """The place of each point when they are walked round their middle: neighbours get near corners."""
    offset = points - points.mean(axis=0)
    return np.argsort(np.argsort(np.arctan2(offset[:, 1], offset[:, 0])))


def _draw_clouds(figure: Figure, picture: Picture) -> None:
    colours = _colours(picture.labels)
    panels = figure.subplots(1, len(picture.clouds), squeeze=False)[0]
    for axis, cloud, title in zip(panels, picture.clouds, picture.cloud_titles, strict=True):
        _scatter(axis, cloud[:, :2], colours)
        axis.set_title(title, fontsize=11, color=INK)
        axis.set_xlabel("first coordinate", color=SOFT)
        axis.set_ylabel("second coordinate", color=SOFT)
        axis.set_aspect("equal", adjustable="datalim")


def draw_embedding(axis: Axes, vectors: Array, labels: Array) -> None:
    """The view of :func:`project`, coloured by cluster."""
    points, view = project(vectors, labels)
    draw_points(axis, points, labels)
    axis.set_xlabel(f"unit rows, {view.rstrip(',')}", color=SOFT)
    axis.set_aspect("equal", adjustable="datalim")


def draw_points(axis: Axes, points: Array, labels: Array | None) -> None:
    """Points in the plane, coloured by cluster where there are clusters; a legend where they are few."""
    from matplotlib.lines import Line2D

    _scatter(axis, points, _colours(np.zeros(len(points)) if labels is None else labels))
    if labels is None:
        return
    clusters, sizes = np.unique(np.asarray(labels)[np.asarray(labels) != MISSING], return_counts=True)
    if len(clusters) > MOST_CORNERS:
        return
    handles = [
        Line2D([], [], marker="o", linestyle="", color=_colour(rank), label=f"cluster {name} ({size:,})")
        for rank, (name, size) in enumerate(zip(clusters, sizes, strict=True))
    ]
    if n_out := len(labels) - int(sizes.sum()):
        handles.append(Line2D([], [], marker="o", linestyle="", color=GREY, label=f"no cluster ({n_out:,})"))
    _legend_below(axis, handles=handles, ncol=3)


def _draw_curves(axis: Axes, curves: Sequence[Curve]) -> None:
    """Several methods against the best of them; a single one, which has no such measure, by its residual."""
    if len(curves) == 1:
        (curve,) = curves
        axis.plot(curve.seconds, curve.residual, color=LINE_COLOURS[0], marker="o", markersize=3.5)
        axis.set_title(f"Convergence of {curve.name}", fontsize=11, color=INK)
        axis.set_ylabel("largest residual", color=SOFT)
    else:
        _draw_gaps(axis, curves)
        axis.set_xscale("log")
        axis.set_title("Convergence: objective above the best found", fontsize=11, color=INK)
        axis.set_ylabel("objective $-$ best", color=SOFT)
        _legend_below(axis, ncol=2)
    axis.set_yscale("log")
    axis.set_xlabel("seconds (measuring excluded)", color=SOFT)
    axis.grid(True, which="major", color="#e6e9ee")
    _plain_frame(axis)


def _draw_gaps(axis: Axes, curves: Sequence[Curve]) -> None:
    """Objective above the best against seconds; a direct method is the moment it was done."""
    best = min(float(curve.objective.min()) for curve in curves)
    smallest = ROUNDING * max(abs(best), 1.0)
    for rank, curve in enumerate(curves):
        colour = LINE_COLOURS[rank % len(LINE_COLOURS)]
        done = float(curve.seconds[-1])
        gap = curve.objective - best
        if curve.is_direct:
            axis.axvline(done, color=colour, linestyle="--", label=f"{curve.name}: done at {done:.2f} s")
            continue
        # The best itself is zero above the best: no point of a logarithmic axis.
        seen = gap > smallest
        end = f"{gap[-1]:.2g}" if seen[-1] else "the best"
        label = f"{curve.name}: {end} at {done:.2f} s"
        seconds = np.maximum(curve.seconds, 1e-3)
        axis.plot(seconds[seen], gap[seen], color=colour, marker="o", markersize=3.5, label=label)


def _legend_below(axis: Axes, **options: object) -> None:
    """Out of the way of the data."""
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False, fontsize=9, **options)


def _scatter(axis: Axes, points: Array, colours: Array) -> None:
    """Small points in random order, so that no cluster hides another."""
    order = np.random.default_rng(0).permutation(len(points))[:SHOWN_POINTS]
    size = float(np.clip(20_000 / max(1, len(order)), 2.0, 18.0))
    x, y = points[order].T
    axis.scatter(x, y, c=colours[order], s=size, alpha=0.55, linewidths=0, rasterized=True)
    _plain_frame(axis)


def _plain_frame(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#c3cad3")
    axis.tick_params(which="both", colors=SOFT, labelsize=8)


def _colours(labels: Any) -> Array:
    kinds, ranks = np.unique(labels, return_inverse=True)
    real = kinds != MISSING
    places = np.cumsum(real) - 1
    table = np.array([_colour(place) if own else GREY for place, own in zip(places, real, strict=True)])
    return np.asarray(table[ranks])


def _colour(rank: int) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return PALETTE[rank] if rank < len(PALETTE) else str(to_hex(colormaps["tab20"](rank % 20)))
