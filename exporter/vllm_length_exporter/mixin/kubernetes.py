"""Objects for the Prometheus Operator, and a vLLM with the exporter beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .document import groups
from .rule import Group
from .thresholds import Thresholds

NAME = "vllm-length-exporter"
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": NAME}
PORT_NAME = "length-metrics"
PORT = 9832
EXPORTER_IMAGE = "vllm-length-exporter:0.1.0"
VLLM_IMAGE = "vllm/vllm-openai:v0.32.0"
LOG_SCRIPT = Path(__file__).with_name("vllm-with-log.sh")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point; vLLM's processes talk through it
MIDDLEWARE = "vllm_length_exporter.middleware.LengthAccounting"


def prometheus_rule(of: Sequence[Group], thresholds: Thresholds) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": NAME, "labels": {**LABELS, "prometheus": "k8s", "role": "alert-rules"}},
        "spec": groups(of, thresholds),
    }


def pod_monitor() -> dict[str, Any]:
    """Scrapes every pod that carries the label, wherever the exporter runs in it."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {"name": NAME, "labels": LABELS},
        "spec": {
            "selector": {"matchLabels": {"vllm-length-exporter": "sidecar"}},
            "podMetricsEndpoints": [
                {
                    "port": PORT_NAME,
                    "interval": "15s",
                    "relabelings": [{"targetLabel": "job", "replacement": NAME}],
                    # beside each vLLM the exporter calls it 127.0.0.1:8000: the pod's name tells them apart
                    "metricRelabelings": [
                        {
                            "sourceLabels": ["server", "pod"],
                            "regex": ".+;(.+)",
                            "targetLabel": "server",
                            "replacement": "$1",
                        }
                    ],
                }
            ],
        },
    }


def sidecar() -> tuple[dict[str, Any], ...]:
    """An example: vLLM, its log in a volume of the pod, and the exporter that reads both."""
    log, middleware, state = (
        {"name": name, "mountPath": f"/{name}"} for name in ("log", "middleware", "state")
    )
    script = {"name": "script", "mountPath": "/script", "readOnly": True}
    copy = (
        "import pathlib, shutil, vllm_length_exporter as package; "
        "source = pathlib.Path(package.__file__).parent; "
        "target = pathlib.Path('/middleware/vllm_length_exporter'); "
        "shutil.copytree(source / 'middleware', target / 'middleware', dirs_exist_ok=True); "
        "shutil.copy(source / '__init__.py', target)"
    )
    locked = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    exporter = {
        "name": "exporter",
        "image": EXPORTER_IMAGE,
        "args": [
            "serve",
            "--server",
            "http://127.0.0.1:8000",
            "--log",
            "/log/vllm.log",
            "--state-dir",
            "/state",
        ],
        "ports": [{"name": PORT_NAME, "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/-/healthy", "port": PORT_NAME}},
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT_NAME}},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "192Mi"}},
        "securityContext": locked,
        "volumeMounts": [{**log, "readOnly": True}, state],
    }
    vllm = {
        "name": "vllm",
        "image": VLLM_IMAGE,
        "command": ["bash", f"/script/{LOG_SCRIPT.name}"],
        "args": ["Qwen/Qwen3-0.6B", "--middleware", MIDDLEWARE],
        "env": [
            {"name": "LOG_FILE", "value": "/log/vllm.log"},
            {"name": "PYTHONPATH", "value": "/middleware"},
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        # a model takes minutes to load: not ready is not dead
        "startupProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 10,
            "failureThreshold": 180,
        },
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "volumeMounts": [
            log,
            {**middleware, "readOnly": True},
            script,
            {"name": "shm", "mountPath": SHARED_MEMORY},
        ],
    }
    pod = {
        "initContainers": [
            {
                "name": "middleware",
                "image": EXPORTER_IMAGE,
                "command": ["python", "-c", copy],
                "securityContext": locked,
                "volumeMounts": [middleware],
            }
        ],
        "containers": [vllm, exporter],
        "volumes": [
            # both outlive a crash of a container, not the pod
            {"name": "log", "emptyDir": {"sizeLimit": "2Gi"}},
            {"name": "state", "emptyDir": {"sizeLimit": "16Mi"}},
            {"name": "middleware", "emptyDir": {"sizeLimit": "1Mi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
            {"name": "script", "configMap": {"name": "vllm-with-log"}},
        ],
    }
    labels = {"app.kubernetes.io/name": "vllm", "vllm-length-exporter": "sidecar"}
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "vllm-with-log", "labels": LABELS},
            "data": {LOG_SCRIPT.name: LOG_SCRIPT.read_text(encoding="utf-8")},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "vllm", "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )


def dashboards(boards: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """A ConfigMap for each board (file name -> JSON), with the label that Grafana's sidecar looks for."""
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"dashboard-{name.removesuffix('.json')}",
                "labels": {**LABELS, "grafana_dashboard": "1"},
            },
            "data": {name: text},
        }
        for name, text in sorted(boards.items())
    )
