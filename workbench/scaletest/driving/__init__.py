"""What is planned goes to the cluster when it is due: journalled before, acknowledged after, never twice."""

from workbench.scaletest.driving.figures import Live, Outcome
from workbench.scaletest.driving.limits import Aborts, Asked, Health, Limits
from workbench.scaletest.driving.submission import Bursts, submit

__all__ = ["Aborts", "Asked", "Bursts", "Health", "Limits", "Live", "Outcome", "submit"]
