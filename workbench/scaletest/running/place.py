"""Which cluster a run goes to, and as whom: to measure; on a local cluster of ours also as its administrator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.scaletest.connection import Target, target

if TYPE_CHECKING:
    from workbench.scaletest.localcluster.cluster import LocalCluster


@dataclass(frozen=True)
class Place:
    """A cluster, by what gives access to it.

    Attributes
    ----------
    kubeconfig, context
        Of the measuring identity.
    own
        The local cluster that it is; null for any other.
    """

    kubeconfig: Path | None
    context: str
    own: LocalCluster | None = None

    @property
    def target(self) -> Target:
        """Where and as whom to measure."""
        return target(self.kubeconfig, self.context)

    @property
    def admin(self) -> Target | None:
        """The administrator of a local cluster of ours, who makes what a test needs; null for any other cluster."""
        return None if self.own is None else target(self.own.kubeconfig, self.own.context)


def place(cluster: str | None = None, kubeconfig: str | Path | None = None, context: str | None = None) -> Place:
    """A cluster as it was named: a local one by its name, any other by context and kubeconfig.

    Raises
    ------
    ConfigError
        None is named, or two; there is no such cluster or context.
    """
    if cluster is not None:
        if context is not None or kubeconfig is not None:
            raise ConfigError("one cluster, please", where="--cluster, --context, --kubeconfig", do="leave one away")
        from workbench.scaletest.localcluster.cluster import find

        own = find(cluster)
        return Place(own.measure_kubeconfig, own.measure_context, own)
    if context is None and kubeconfig is None:
        raise ConfigError(
            "which cluster?",
            where="--cluster or --context",
            do="workbench scaletest cluster up makes a local one for --cluster local; no cluster is ever guessed",
        )
    file = None if kubeconfig is None else Path(kubeconfig)
    return Place(file, target(file, context).context)
