"""scikit-learn skins over the line graph -> operator -> embedding -> clusters; no mathematics here."""

from spectrograd.estimators.coclustering import SpectralCoclustering
from spectrograd.estimators.diffusion import DiffusionMap
from spectrograd.estimators.multilayer import MultilayerSpectralClustering, MultilayerSpectralEmbedding
from spectrograd.estimators.persistence import load_model as load
from spectrograd.estimators.single import SpectralClustering, SpectralEmbedding

__all__ = [
    "DiffusionMap",
    "MultilayerSpectralClustering",
    "MultilayerSpectralEmbedding",
    "SpectralClustering",
    "SpectralCoclustering",
    "SpectralEmbedding",
    "load",
]
