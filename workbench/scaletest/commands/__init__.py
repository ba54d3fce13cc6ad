"""Commands of `workbench scaletest`, one module each; those of the Run:ai tool share one.

Options that several commands have stand here, so that they read the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ContextOption = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig.", show_default="$KUBECONFIG or ~/.kube/config"),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="A local cluster of `workbench scaletest cluster up`."),
]
ConfirmOption = Annotated[
    str | None,
    typer.Option(
        "--confirm", metavar="FINGERPRINT", help="The cluster's fingerprint; required once unless the cluster is local."
    ),
]
BackendUrlOption = Annotated[
    str | None,
    typer.Option(
        "--backend-url-env",
        metavar="VARIABLE",
        help="Environment variable that holds the PostgreSQL URL of Run:ai's backend.",
    ),
]
BackendQueryOption = Annotated[
    str | None,
    typer.Option(
        "--backend-query", metavar="SQL", help="SELECT name, time …; %(project)s and %(namespace)s are bound."
    ),
]
BackendParameterOption = Annotated[
    list[str] | None,
    typer.Option("--backend-parameter", metavar="NAME=VALUE", help="Another parameter of the query. Repeatable."),
]
