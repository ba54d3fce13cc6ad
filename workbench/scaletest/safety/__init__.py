"""Between a scale test and somebody's cluster: confirmation, fence, guard, limits, rights, what setup makes."""

from workbench.scaletest.safety.confirming import confirm
from workbench.scaletest.safety.findings import Finding, refuse
from workbench.scaletest.safety.looking import TargetFacts, fingerprint, look
from workbench.scaletest.safety.preflight import preflight
from workbench.scaletest.safety.recording import record_run
from workbench.scaletest.safety.setting_up import setup

__all__ = ["Finding", "TargetFacts", "confirm", "fingerprint", "look", "preflight", "record_run", "refuse", "setup"]
