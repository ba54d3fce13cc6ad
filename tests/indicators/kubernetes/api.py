"""A control plane on loopback, as far as a session asks it: it keeps objects, and its pods are logs made beforehand."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

KINDS = {"configmaps": "ConfigMap", "secrets": "Secret", "networkpolicies": "NetworkPolicy", "jobs": "Job"}
PATH = re.compile(r"/(?:api|apis/[a-z0-9.]+)/v1/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(log))?")
NODE = "worker-17.example.internal"
Object = dict[str, Any]


def succeeded() -> Object:
    return {"phase": "Succeeded", "containerStatuses": [{"name": "measure", "state": {"terminated": {"exitCode": 0}}}]}


@dataclass
class Plane:
    """What is on it.

    `status_of` gives a pod's status by its index, `log_of` its log, null if it is gone; `refuse` may answer a
    request in its place (method, kind, dry run) with a status and a message. `asked` has all requests in their order.
    """

    log_of: Callable[[int], bytes | None]
    status_of: Callable[[int], Object] = lambda _: succeeded()
    refuse: Callable[[str, str, bool], tuple[int, str] | None] = lambda *_: None
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    asked: list[tuple[str, str, bool]] = field(default_factory=list)
    submitted: list[Object] = field(default_factory=list)
    shown: int = 0
    uids: int = 0

    def pods(self) -> list[Object]:
        """One pod more each time, as long as the Job's rounds last."""
        job = next((one for (kind, _), one in self.objects.items() if kind == "Job"), None)
        if job is None or job["spec"].get("suspend"):
            return []
        self.shown = min(self.shown + 1, job["spec"]["completions"])
        template = job["spec"]["template"]["metadata"]
        index = "batch.kubernetes.io/job-completion-index"
        return [
            {
                "metadata": {
                    "name": f"{job['metadata']['name']}-{number}-abcde",
                    "labels": template["labels"],
                    "annotations": {**template["annotations"], index: str(number)},
                },
                "spec": {"nodeName": NODE},
                "status": self.status_of(number),
            }
            for number in range(self.shown)
        ]

    def job_status(self, job: Object) -> Object:
        statuses = [self.status_of(number)["phase"] for number in range(self.shown)]
        over = [one for one in statuses if one in ("Succeeded", "Failed")]
        if len(over) < job["spec"]["completions"]:
            return {}
        failed = {"type": "Failed", "status": "True", "reason": "FailedIndexes"}
        return {"conditions": [failed if "Failed" in over else {"type": "Complete", "status": "True"}]}

    def answer(self, method: str, url: str, body: Object) -> tuple[int, Object | bytes]:
        parts = urlsplit(url)
        found = PATH.fullmatch(parts.path)
        dry = "dryRun" in parse_qs(parts.query)
        if found is None:
            node = {"metadata": {"labels": {"nvidia.com/gpu.product": "Fake-GPU"}}}
            return (200, node) if parts.path == f"/api/v1/nodes/{NODE}" else (404, {"message": "not found"})
        _, plural, name, log = found.groups()
        kind = KINDS.get(plural, plural)
        self.asked.append((method, kind, dry))
        if refused := self.refuse(method, kind, dry):
            return refused[0], {"message": refused[1]}
        if log:
            text = self.log_of(int(name.split("-")[-2]))
            return (404, {"message": f'pods "{name}" not found'}) if text is None else (200, text)
        if kind == "pods":
            return 200, {"items": self.pods()}
        return self._object(method, kind, name or body["metadata"]["name"], body, dry)

    def _object(self, method: str, kind: str, name: str, body: Object, dry: bool) -> tuple[int, Object]:
        key = (kind, name)
        if method == "POST":
            if key in self.objects:
                return 409, {"message": f'{kind} "{name}" already exists'}
            self.uids += 1
            made = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self.uids}"}}
            if not dry:
                self.objects[key] = made
                self.submitted.append(json.loads(json.dumps(made)))
                self.shown = 0 if kind == "Job" else self.shown
            return 201, made
        if key not in self.objects:
            return 404, {"message": f'{kind} "{name}" not found'}
        if method == "PATCH":
            self.objects[key]["spec"] |= body["spec"]
        if method == "DELETE":
            wanted = (body.get("preconditions") or {}).get("uid")
            if wanted != self.objects[key]["metadata"]["uid"]:
                return 409, {"message": "the UID in the precondition does not match"}
            return 200, self.objects.pop(key)
        one = self.objects[key]
        return 200, {**one, "status": self.job_status(one)} if kind == "Job" else one


class Server:
    """The plane over HTTP; `kubeconfig` writes a file that leads to it."""

    def __init__(self, plane: Plane) -> None:
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                with lock:
                    status, answer = plane.answer(self.command, self.path, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(answer, bytes) else "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = _any  # noqa: N815 - the names that http.server asks for

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, path: Path) -> Path:
        host, port = self._server.server_address[:2]
        clusters = {"here": f"http://{host!s}:{port}", "far": "https://cluster.example:6443"}
        contexts = [{"name": name, "context": {"cluster": name, "user": "me"}} for name in clusters]
        found = {"apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": contexts}
        found["clusters"] = [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()]
        path.write_text(yaml.safe_dump(found | {"users": [{"name": "me", "user": {}}]}))
        return path
