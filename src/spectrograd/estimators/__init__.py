"""scikit-learn skins over the line graph -> operator -> embedding -> clusters; no mathematics here."""

from spectrograd.estimators.multilayer import MultilayerSpectralClustering, MultilayerSpectralEmbedding
from spectrograd.estimators.persistence import load_model as load
from spectrograd.estimators.single import SpectralClustering, SpectralEmbedding

__all__ = [
    "MultilayerSpectralClustering",
    "MultilayerSpectralEmbedding",
    "SpectralClustering",
    "SpectralEmbedding",
    "load",
]
