"""From a subspace to what may be believed of it: residuals, intervals, evidence, probes."""

from spectrograd.certificate.certificate import Certificate, certify, exact, unmeasured

__all__ = ["Certificate", "certify", "exact", "unmeasured"]
