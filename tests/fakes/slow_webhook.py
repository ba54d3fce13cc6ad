"""An admission webhook that takes its time: HTTPS on loopback, with a local cluster's own certificate."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workbench.kubernetes.client import load_target
from workbench.scaletest.cluster_api.connection import Connection
from workbench.scaletest.local_cluster import control_plane
from workbench.scaletest.local_cluster.cluster_lifecycle import LocalCluster

HOOK = "slow.example.org"
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextlib.contextmanager
def slow_webhook(
    on: LocalCluster, namespace: str, *, group: str, resource: str, takes_s: float, allows: bool = True
) -> Iterator[None]:
    """Called for each new object of this resource in the namespace; it answers after this time."""
    keys = control_plane.find_workdir(on.folder, on.name) / "pki"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _build_handler(takes_s, allows))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    authority = base64.b64encode((keys / "ca.crt").read_bytes()).decode()
    hook = {
        "name": HOOK,
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_address[1]}/", "caBundle": authority},
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    asyncio.run(_call(on, "POST", _PATH, {**kind, "metadata": {"name": "slow"}, "webhooks": [hook]}))
    try:
        yield
    finally:
        asyncio.run(_call(on, "DELETE", f"{_PATH}/slow"))
        server.shutdown()
        server.server_close()
        thread.join()


async def _call(on: LocalCluster, method: str, path: str, body: Any = None) -> None:
    async with Connection(load_target(on.kubeconfig, on.context)) as api:
        await api.json(method, path, body)


def _build_handler(takes_s: float, allows: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(takes_s)
            answer = {"uid": review["request"]["uid"], "allowed": allows}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Silent."""

    return Handler
