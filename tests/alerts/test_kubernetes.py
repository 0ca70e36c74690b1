"""The objects for the Prometheus Operator, and the vLLM with the exporter beside it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts import rendered
from tests.conftest import Tool
from tests.tools.cache import PROJECT
from vllm_length_exporter.commands.serve import LISTEN_ADDRESS, serve
from vllm_length_exporter.mixin.kubernetes import LOG_SCRIPT

FOLDER = rendered.ALERTS / "kubernetes"


def objects(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")) if one]


def pod() -> tuple[dict[str, Any], dict[str, Any]]:
    deployment = next(one for one in objects("sidecar.yaml") if one["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    return template, {container["name"]: container for container in template["spec"]["containers"]}


def test_the_rule_object_holds_the_same_rules(tool: Tool, tmp_path: Path) -> None:
    (rule,) = objects("prometheus-rule.yaml")
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"]["groups"] == list(rendered.groups())[::-1] or rule["spec"]["groups"] == [
        *yaml.safe_load(rendered.RULE_FILES[1].read_text())["groups"],
        *yaml.safe_load(rendered.RULE_FILES[0].read_text())["groups"],
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    done = subprocess.run(
        [tool("promtool"), "check", "rules", tmp_path / "rules.yml"], check=False, capture_output=True
    )
    assert done.returncode == 0


def test_the_pod_monitor_finds_the_sidecar() -> None:
    (monitor,) = objects("pod-monitor.yaml")
    template, containers = pod()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in containers["exporter"]["ports"]}
    assert ports == {endpoint["port"]: int(LISTEN_ADDRESS.rpartition(":")[2])}
    job = next(rule["replacement"] for rule in endpoint["relabelings"] if rule["targetLabel"] == "job")
    up = next(rule for rule in rendered.alerts() if rule["alert"] == "VLLMLengthExporterDown")
    assert f'job="{job}"' in up["expr"]


@pytest.mark.parametrize(("server", "pod_name", "expected"), [
    ("127.0.0.1:8000", "vllm-0", "vllm-0"), ("", "vllm-0", None), ("127.0.0.1:8000", "", None),
])  # fmt: skip
def test_the_pods_name_replaces_the_loopback_address(
    server: str, pod_name: str, expected: str | None
) -> None:
    (monitor,) = objects("pod-monitor.yaml")
    (rule,) = monitor["spec"]["podMetricsEndpoints"][0]["metricRelabelings"]
    assert rule["sourceLabels"] == ["server", "pod"]
    found = re.fullmatch(rule["regex"], f"{server};{pod_name}")
    assert (found.expand(rule["replacement"].replace("$", "\\")) if found else None) == expected


def test_every_mount_has_a_volume_and_every_flag_exists() -> None:
    template, containers = pod()
    spec = template["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    flags = {flag for parameter in serve.params for flag in parameter.opts}
    command, *arguments = containers["exporter"]["args"]
    assert command == "serve"
    assert {argument for argument in arguments if argument.startswith("--")} <= flags
    log = arguments[arguments.index("--log") + 1]
    assert {"name": "LOG_FILE", "value": log} in containers["vllm"]["env"]


def test_the_exporter_may_nothing_it_does_not_need() -> None:
    _, containers = pod()
    context = containers["exporter"]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert context["runAsNonRoot"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_middleware_is_copied_as_vllm_imports_it(tmp_path: Path) -> None:
    """The init container's own command, with another target; then an import that has nothing but the copy."""
    template, containers = pod()
    (copy,) = template["spec"]["initContainers"]
    code = copy["command"][2].replace("/middleware/", f"{tmp_path}/")
    subprocess.run([sys.executable, "-c", code], check=True)
    path = containers["vllm"]["args"][containers["vllm"]["args"].index("--middleware") + 1]
    module, _, name = path.rpartition(".")
    seen = subprocess.run(
        [sys.executable, "-c", f"import {module} as m; print(m.__file__, m.{name}.__name__)"],
        env={"PYTHONPATH": str(tmp_path)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert seen.stdout.split()[0].startswith(str(tmp_path))


def test_the_script_is_the_tested_one() -> None:
    script = next(one for one in objects("sidecar.yaml") if one["kind"] == "ConfigMap")
    _, containers = pod()
    assert script["data"] == {LOG_SCRIPT.name: LOG_SCRIPT.read_text(encoding="utf-8")}
    assert shlex.split(" ".join(containers["vllm"]["command"]))[1].endswith(LOG_SCRIPT.name)


def test_every_dashboard_is_a_config_map() -> None:
    maps = {name: text for one in objects("dashboards.yaml") for name, text in one["data"].items()}
    boards = {
        path.name: path.read_text(encoding="utf-8")
        for path in (PROJECT / "dashboards" / "generated").glob("*.json")
    }
    assert maps == boards
    for one in objects("dashboards.yaml"):
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", one["metadata"]["name"])
        assert len(json.dumps(one)) < 1_000_000, "a ConfigMap holds 1 MiB"
