"""Can a local control plane be started here? For `workbench doctor`."""

from __future__ import annotations

from workbench.doctor import Check
from workbench.errors import WorkbenchError


def checks() -> list[Check]:
    """One check: the provider that was found, or what is missing to build one."""
    from workbench.scaletest.localcluster import binaries, building

    what = "control plane"
    try:
        found = binaries.find()
    except WorkbenchError as error:
        mend = binaries.BUILD
        try:
            building.go()
        except WorkbenchError as no_go:
            mend = f"{no_go.facts['do']}; then {binaries.BUILD}"
        return [Check(what, error.what, "cluster", "missing", mend)]
    kai = (found.kai_version or "of no known version") if found.kai else None
    return [Check(what, f"provider {found.provider}, {f'with KAI {kai}' if kai else 'without KAI'}", "cluster")]
