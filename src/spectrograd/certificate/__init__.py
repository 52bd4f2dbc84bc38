"""Error bounds of a subspace: residuals, intervals, probes for skipped eigenvectors, edge insertion."""

from spectrograd.certificate.certificate import (
    Certificate,
    certify,
    exact_certificate,
    unmeasured_certificate,
)

__all__ = ["Certificate", "certify", "exact_certificate", "unmeasured_certificate"]
