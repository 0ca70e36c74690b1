"""docker-compose.yml: valid for each profile, and everything that it names exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Tool
from tests.tools.cache import PROJECT
from vllm_length_exporter.commands.replay import PACKAGED, replay
from vllm_length_exporter.commands.serve import LISTEN_ADDRESS, serve
from vllm_length_exporter.mixin.alertmanager import SECRETS, TEMPLATES
from vllm_length_exporter.mixin.kubernetes import LOG_SCRIPT, MIDDLEWARE

FILE = PROJECT / "docker-compose.yml"
PROFILES = ("replay", "gpu", "cpu")
COMMON = {"prepare", "exporter", "prometheus", "alertmanager", "pager", "grafana"}


def compose(tool: Tool, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"]}  # nothing of the user's own: .env alone
    done = subprocess.run(
        [tool("docker-compose"), "--file", FILE, *arguments],
        capture_output=True, text=True, check=False, env=environment, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a variable that is not set"
    return done.stdout


def model(tool: Tool, profile: str | None) -> dict[str, Any]:
    chosen = () if profile is None else ("--profile", profile)
    loaded: dict[str, Any] = json.loads(compose(tool, *chosen, "config", "--format", "json"))
    return loaded


@pytest.fixture(scope="module", params=PROFILES)
def services(request: pytest.FixtureRequest, tool: Tool) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = model(tool, request.param)["services"]
    return found


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_compose_accepts_each_profile(tool: Tool, profile: str | None) -> None:
    compose(tool, *(() if profile is None else ("--profile", profile)), "config", "--quiet")
    assert set(model(tool, profile)["services"]) == COMMON | {f"vllm-{profile or 'replay'}"}


def test_everything_that_is_mounted_exists(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists(), mount["source"]
                assert mount["read_only"], f"{mount['source']} could be changed from within"


def test_named_volumes_are_prepared_for_their_users(services: dict[str, dict[str, Any]]) -> None:
    prepared = {mount["target"] for mount in services["prepare"]["volumes"]}
    script = " ".join(services["prepare"]["command"])
    for name, service in services.items():
        for mount in service.get("volumes", []):
            ours = service["user"] == "65532:65532"
            if ours and mount["type"] == "volume" and not mount.get("read_only"):
                assert f"/{mount['source']}" in prepared
                assert f"/{mount['source']}" in script
                assert service["depends_on"]["prepare"]["condition"] == "service_completed_successfully", name


def test_nothing_runs_as_root_with_rights_and_roots_are_read_only(
    services: dict[str, dict[str, Any]],
) -> None:
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        user = service["user"].split(":")[0]
        if name == "prepare":
            assert service["cap_add"] == ["CHOWN"]
            assert service["network_mode"] == "none"
        else:
            assert user not in ("0", "root"), name
        if name not in ("vllm-gpu", "vllm-cpu"):  # these compile kernels where they please
            assert service["read_only"], name


def test_ports_are_open_to_this_machine_alone_and_listened_on(services: dict[str, dict[str, Any]]) -> None:
    listened = {
        "exporter": int(LISTEN_ADDRESS.rpartition(":")[2]), "prometheus": 9090, "alertmanager": 9093, "grafana": 3000,
        "vllm-replay": 8000, "vllm-gpu": 8000, "vllm-cpu": 8000,
    }  # fmt: skip
    for name, service in services.items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
            assert port["target"] == listened[name], name
    assert "ports" not in services["pager"]


def test_images_are_pinned(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), (name, service["image"])


def test_prometheus_is_one_that_keeps_the_colons_of_vllm(services: dict[str, dict[str, Any]]) -> None:
    assert services["prometheus"]["image"].startswith("prom/prometheus:v3.")


def test_every_service_that_stays_has_a_health_check_and_comes_back(
    services: dict[str, dict[str, Any]],
) -> None:
    dockerfile = (PROJECT / "exporter" / "Dockerfile").read_text(encoding="utf-8")
    assert "HEALTHCHECK" in dockerfile
    for name, service in services.items():
        if name != "prepare":
            assert "healthcheck" in service or name == "exporter", name
            assert service["restart"] in ("unless-stopped", "on-failure:3"), name


def test_flags_exist_in_the_code(services: dict[str, dict[str, Any]]) -> None:
    commands = {"exporter": serve, "vllm-replay": replay}
    for name, command in commands.items():
        if name in services:
            flags = {flag for parameter in command.params for flag in parameter.opts}
            assert {word for word in services[name]["command"] if word.startswith("--")} <= flags
            assert services[name]["command"][0] == command.name


def test_the_recordings_are_packaged() -> None:
    text = (PROJECT / ".env").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if "packaged recording" in line)
    names = re.findall(r"[a-z]+(?:-[a-z]+)*(?= or|\.)", line.partition(":")[2])
    assert len(names) == 2
    for name in [*names, re.search(r"RECORDING=(\S+)", text)[1]]:  # type: ignore[index]
        assert (PACKAGED / f"{name}.jsonl.gz").is_file(), name


def test_environment_variables_exist_where_they_are_read(services: dict[str, dict[str, Any]]) -> None:
    script = LOG_SCRIPT.read_text(encoding="utf-8")
    boards = (PROJECT / "dashboards" / "provisioning" / "datasources" / "prometheus.yml").read_text(
        encoding="utf-8"
    )
    for name, service in services.items():
        for variable in service.get("environment") or {}:
            if variable == "LOG_FILE":
                assert "${LOG_FILE:" in script
            elif variable == "PROMETHEUS_URL":
                assert "${PROMETHEUS_URL}" in boards
            elif name == "grafana":
                assert variable.startswith("GF_")
            else:
                known = (
                    "VLLM_CACHE_ROOT",
                    "VLLM_NO_USAGE_STATS",
                    "VLLM_CPU_KVCACHE_SPACE",
                    "HF_HOME",
                    "HF_TOKEN_PATH",
                )
                assert variable in (*known, "PYTHONPATH", "HOME", "USER"), variable


def test_every_variable_of_the_file_is_in_dot_env_and_every_one_of_dot_env_is_used() -> None:
    text = FILE.read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)[^}]*\}", text)) | {"COMPOSE_PROFILES"}
    given = set(re.findall(r"^(\w+)=", (PROJECT / ".env").read_text(encoding="utf-8"), re.MULTILINE))
    assert used == given


def test_vllm_runs_by_the_script_with_the_middleware_and_its_log_in_the_volume(tool: Tool) -> None:
    for profile in ("gpu", "cpu"):
        service = model(tool, profile)["services"][f"vllm-{profile}"]
        mounts = {mount["target"]: mount["source"] for mount in service["volumes"]}
        assert mounts[service["entrypoint"][1]] == str(LOG_SCRIPT)
        path = Path(service["environment"]["PYTHONPATH"])
        module = MIDDLEWARE.rpartition(".")[0].split(".")
        assert mounts[str(path / module[0] / module[1])] == str(PROJECT / "exporter" / module[0] / module[1])
        assert f"--middleware={MIDDLEWARE}" in service["command"]
        assert str(Path(service["environment"]["LOG_FILE"]).parent) in mounts


def test_the_exporter_reads_what_vllm_writes(services: dict[str, dict[str, Any]]) -> None:
    (vllm,) = [service for name, service in services.items() if name.startswith("vllm-")]
    command = services["exporter"]["command"]
    log = command[command.index("--log") + 1]
    assert log in (vllm.get("environment", {}).get("LOG_FILE"), *vllm["command"])
    source = {mount["source"] for mount in vllm["volumes"] if mount["target"] == str(Path(log).parent)}
    assert source == {
        mount["source"]
        for mount in services["exporter"]["volumes"]
        if mount["target"] == str(Path(log).parent)
    }
    assert "http://vllm:8000" in command
    assert vllm["networks"]["default"]["aliases"] == ["vllm"]
    # a start that fails is what it has to tell: it does not wait for a healthy server
    assert not any(d["condition"] == "service_healthy" for d in services["exporter"]["depends_on"].values())


def test_configurations_are_mounted_where_they_look_for_each_other(
    services: dict[str, dict[str, Any]], tool: Tool
) -> None:
    manager = {mount["target"]: mount["source"] for mount in services["alertmanager"]["volumes"]}
    folder = Path(manager["/etc/alertmanager"])
    assert (
        (folder / Path(SECRETS).relative_to("/etc/alertmanager") / "webhook_url")
        .read_text()
        .startswith("http://pager:9833")
    )
    assert list(folder.glob(str(Path(TEMPLATES).relative_to("/etc/alertmanager"))))
    assert 'PORT = int(os.environ.get("PAGER_PORT", "9833"))' in (PROJECT / "compose" / "pager.py").read_text(
        encoding="utf-8"
    )
    prometheus = {mount["target"]: mount["source"] for mount in services["prometheus"]["volumes"]}
    configuration = yaml.safe_load(
        Path(prometheus["/etc/prometheus/prometheus.yml"]).read_text(encoding="utf-8")
    )
    assert "/etc/prometheus/rules" in prometheus
    assert configuration["rule_files"] == ["rules/*.yml"]
    targets = {
        target
        for job in configuration["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert {target.split(":")[0] for target in targets} - {"localhost"} <= set(services)
    grafana = {mount["target"]: mount["source"] for mount in services["grafana"]["volumes"]}
    provider = (PROJECT / "dashboards" / "provisioning" / "dashboards" / "vllm-length.yml").read_text(
        encoding="utf-8"
    )
    place = next(target for target, source in grafana.items() if source.endswith("/dashboards/generated"))
    assert f"path: {place}" in provider
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (Path(grafana[place]) / Path(home).name).is_file()


def test_prometheus_accepts_its_configuration(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "rules").symlink_to(PROJECT / "alerts" / "rules")
    (tmp_path / "prometheus.yml").write_text(
        (PROJECT / "compose" / "prometheus.yml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    done = subprocess.run(
        [tool("promtool"), "check", "config", "--lint=all", "--lint-fatal", tmp_path / "prometheus.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rule files found" in done.stdout


def test_no_password_and_no_key_stands_in_the_file(services: dict[str, dict[str, Any]]) -> None:
    for service in services.values():
        for variable, value in (service.get("environment") or {}).items():
            if re.search(r"PASSWORD|TOKEN|KEY|SECRET", variable):
                assert value.startswith(("/run/secrets/", "/passwords/")), variable
    kept = subprocess.run(
        ["git", "ls-files", "alerts/alertmanager/secrets"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {Path(name).name for name in kept.stdout.split()} == {".gitignore", "webhook_url"}
