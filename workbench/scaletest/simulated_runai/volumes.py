"""The provisioner of simulated-runai: a volume that only exists in the API for each claim of its storage class."""

from __future__ import annotations

from datetime import UTC, datetime

from workbench.scaletest.connection import ApiError, Connection
from workbench.scaletest.simulated_runai.definitions import OURS, PROVISIONER
from workbench.scaletest.simulated_runai.objects import MARK, Json
from workbench.scaletest.simulated_runai.watch import Following
from workbench.scaletest.simulated_runai.work import Work

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
_ASKED = "volume.kubernetes.io/storage-provisioner"


class Volumes:
    """Claims to volumes; volumes whose claim is gone are deleted. Binding is the real controller-manager's."""

    def __init__(self, api: Connection, work: Work) -> None:
        self.api, self.work = api, work

    def follows(self, selector: str) -> list[Following]:
        """The watches that it needs."""
        return [
            Following(self.api, CLAIMS, self._claim, selector=selector),
            Following(self.api, VOLUMES, self._volume, selector=selector),
        ]

    def _claim(self, event: str, claim: Json) -> None:
        metadata = claim["metadata"]
        asked = (metadata.get("annotations") or {}).get(_ASKED) == PROVISIONER
        if event != "DELETED" and asked and not claim["spec"].get("volumeName"):
            self.work.add(("volume", metadata["uid"]), lambda: self._make(claim))

    async def _make(self, claim: Json) -> None:
        try:
            await self.api.json("POST", VOLUMES, volume_of(claim))
        except ApiError as error:
            if error.status != 409:
                raise
            return
        path = f"/api/v1/namespaces/{claim['metadata']['namespace']}/events"
        await self.api.json("POST", path, event_of(claim))

    def _volume(self, event: str, volume: Json) -> None:
        name = volume["metadata"]["name"]
        if event != "DELETED" and (volume.get("status") or {}).get("phase") == "Released":
            self.work.add(("release", name), lambda: self._remove(name))

    async def _remove(self, name: str) -> None:
        await self.api.json("DELETE", f"{VOLUMES}/{name}")


def volume_of(claim: Json) -> Json:
    """The volume of a claim; named by its uid, so that it is made once."""
    metadata, spec = claim["metadata"], claim["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"]}
    name = f"pvc-{metadata['uid']}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": OURS | {MARK: "true"}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": spec.get("storageClassName", ""),
            "claimRef": {**reference, "name": metadata["name"], "uid": metadata["uid"]},
            "csi": {"driver": PROVISIONER.replace("/", "."), "volumeHandle": name},
        },
    }


def event_of(claim: Json) -> Json:
    """What a provisioner says when it is done."""
    metadata = claim["metadata"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {**about, "name": metadata["name"], "uid": metadata["uid"]},
        "reason": "ProvisioningSucceeded",
        "message": f"simulated volume pvc-{metadata['uid']}",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": PROVISIONER},
    }
