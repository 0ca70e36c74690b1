"""Every path, over a real port."""

from __future__ import annotations

import json

import prometheus_client
import pytest
import requests
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from prometheus_client.registry import CollectorRegistry

from tests.web.conftest import Listen
from tests.web.published import LIMIT, Daemon, application
from tests.web.wire import exchange, get

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PATHS = ("/", "/metrics", "/api/v1/status", "/-/healthy", "/-/ready", "/static/page.css")


class TestMetrics:
    @pytest.mark.parametrize("accept", [None, "*/*", "text/plain", "text/plain;version=0.0.4", "text/html"])
    def test_text(self, listen: Listen, accept: str | None) -> None:
        answer = requests.get(listen().url + "/metrics", headers={"Accept": accept}, timeout=5)
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        limit, refused = text_families(answer.text)
        assert len(limit.samples) == 120
        assert {sample.value for sample in limit.samples} == {LIMIT}
        assert refused.samples[0].name == "vllm_length_rejections_total"

    @pytest.mark.parametrize("accept", [PROMETHEUS_2, PROMETHEUS_3])
    def test_openmetrics_for_prometheus(self, listen: Listen, accept: str) -> None:
        answer = requests.get(listen().url + "/metrics", headers={"Accept": accept}, timeout=5)
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0;")
        assert answer.text.endswith("# EOF\n")
        limit, refused = openmetrics_families(answer.text)  # type: ignore[no-untyped-call]
        assert (len(limit.samples), refused.samples[0].value) == (120, 3)

    @pytest.mark.parametrize("given", ["x", "1.x", "", "1.0.0; escaping=none", "9" * 5000, "1.0.0<script>"])
    @pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
    def test_a_version_that_is_none_is_no_fault(self, listen: Listen, kind: str, given: str) -> None:
        url = listen().url + "/metrics"
        answer = requests.get(url, headers={"Accept": f"{kind};version={given}"}, timeout=5)
        assert answer.status_code == 200
        assert "vllm_length_max_model_len_tokens" in answer.text
        assert "<" not in answer.headers["Content-Type"]

    @pytest.mark.parametrize(
        ("accepted", "encoding"),
        [("gzip", "gzip"), ("deflate, gzip;q=0.5", "gzip"), ("identity", None), ("gzip;q=0", None)],
    )  # fmt: skip
    def test_gzip_where_it_is_accepted(self, listen: Listen, accepted: str, encoding: str | None) -> None:
        url = listen().url + "/metrics"
        answer = requests.get(url, headers={"Accept-Encoding": accepted}, timeout=5)
        assert answer.headers.get("Content-Encoding") == encoding
        assert answer.text.count("\nvllm_length_max_model_len_tokens{") == 120
        assert answer.headers["Vary"] == "Accept, Accept-Encoding"

    def test_no_created_series(self, listen: Listen) -> None:
        served = Daemon(series=CollectorRegistry())
        listener = listen(application(served))
        counter = prometheus_client.Counter("things", "Things.", registry=None)
        served.series = counter
        counter.inc()
        answer = requests.get(listener.url + "/metrics", headers={"Accept": PROMETHEUS_3}, timeout=5)
        assert "things_total 1.0\n" in answer.text
        assert "_created" not in answer.text

    def test_nothing_in_a_request_chooses_a_target(self, listen: Listen) -> None:
        url = listen().url + "/metrics"
        plain = requests.get(url, timeout=5).text
        assert (
            requests.get(url, params={"target": "http://127.0.0.1:1", "module": "x"}, timeout=5).text == plain
        )


def test_status_is_what_the_report_says(listen: Listen) -> None:
    answer = requests.get(listen().url + "/api/v1/status", timeout=5)
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(answer.text) == {"servers": []}


class TestHealth:
    def test_healthy(self, listen: Listen) -> None:
        served = Daemon()
        url = listen(application(served)).url + "/-/healthy"
        assert (requests.get(url, timeout=5).status_code, requests.get(url, timeout=5).text) == (
            200,
            "healthy\n",
        )
        served.fault = "the loop\nhas stopped"
        answer = requests.get(url, timeout=5)
        assert (answer.status_code, answer.text) == (503, "not healthy: the loop has stopped\n")

    def test_ready(self, listen: Listen) -> None:
        served = Daemon(is_ready=False)
        url = listen(application(served)).url + "/-/ready"
        assert requests.get(url, timeout=5).status_code == 503
        served.is_ready = True
        assert (requests.get(url, timeout=5).status_code, requests.get(url, timeout=5).text) == (
            200,
            "ready\n",
        )


class TestReload:
    def test_it_is_off_by_default(self, listen: Listen) -> None:
        calls: list[int] = []
        served = Daemon(on_reload=lambda: calls.append(1))
        answer = requests.post(listen(application(served)).url + "/-/reload", timeout=5)
        assert answer.status_code == 403
        assert answer.text == "reload over HTTP is off; start with --web-enable-lifecycle, or send SIGHUP\n"
        assert calls == []

    def test_it_reloads(self, listen: Listen) -> None:
        calls: list[int] = []
        served = Daemon(on_reload=lambda: calls.append(1))
        url = listen(application(served, lifecycle=True)).url + "/-/reload"
        assert (requests.get(url, timeout=5).status_code, calls) == (405, [])
        answer = requests.post(url, data=b"", timeout=5)
        assert (answer.status_code, answer.text, calls) == (200, "reloaded\n", [1])

    def test_a_bad_configuration_is_told(self, listen: Listen) -> None:
        served = Daemon(on_reload=lambda: "exporter.yml:3: servers[0].url: expected …")
        answer = requests.post(listen(application(served, lifecycle=True)).url + "/-/reload", timeout=5)
        assert answer.status_code == 500
        assert answer.text == "kept the old configuration: exporter.yml:3: servers[0].url: expected …\n"

    @pytest.mark.parametrize(
        ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200)]
    )
    def test_it_is_not_for_other_sites(self, listen: Listen, site: str, status: int) -> None:
        url = listen(application(lifecycle=True)).url + "/-/reload"
        assert requests.post(url, headers={"Sec-Fetch-Site": site}, timeout=5).status_code == status


class TestEveryPath:
    @pytest.mark.parametrize("path", PATHS)
    def test_head_is_get_without_body(self, listen: Listen, path: str) -> None:
        url = listen().url + path
        whole, head = requests.get(url, timeout=5), requests.head(url, timeout=5)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("Content-Type", "Content-Length", "Content-Encoding"):
            assert head.headers.get(name) == whole.headers.get(name)

    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
    def test_other_methods_are_refused(self, listen: Listen, path: str, method: str) -> None:
        answer = requests.request(method, listen().url + path, timeout=5)
        assert answer.status_code == 405
        assert answer.headers["Allow"] == "GET, HEAD"
        assert answer.text == "method not allowed; expected GET, HEAD\n"

    @pytest.mark.parametrize("path", [*PATHS, "/nowhere", "/-/reload"])
    def test_headers_for_the_browser(self, listen: Listen, path: str) -> None:
        headers = requests.get(listen().url + path, timeout=5).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["Server"] == "vllm-length-exporter"

    @pytest.mark.parametrize(
        "path", ["/nowhere", "/metrics/", "/Metrics", "/metrics/x", "/-/", "/probe?target=http://x"]
    )
    def test_nothing_else_is_there(self, listen: Listen, path: str) -> None:
        answer = requests.get(listen().url + path, timeout=5, allow_redirects=False)
        assert answer.status_code == 404
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert len(answer.text.splitlines()) == 1

    @pytest.mark.parametrize(
        "path",
        [
            "/static/../application.py",
            "/static/%2e%2e/application.py",
            "/static/..%2fapplication.py",
            "/static/..%5capplication.py",
            "/static//etc/passwd",
            "/static/%2fetc%2fpasswd",
            "/static/page.css/",
            "/static/page.css%00",
            "/static/",
            "/static/.",
            "/../../../../etc/passwd",
        ],
    )
    def test_static_leads_nowhere_else(self, listen: Listen, path: str) -> None:
        status, answer = exchange(listen(), get(path))
        assert status == 404
        assert b"root:" not in answer
        assert b"import " not in answer

    def test_static_files_are_asked_for_once(self, listen: Listen) -> None:
        url = listen().url + "/static/page.css"
        first = requests.get(url, timeout=5)
        again = requests.get(url, headers={"If-None-Match": first.headers["ETag"]}, timeout=5)
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")

    def test_a_page_links_only_to_what_is_there(self, listen: Listen) -> None:
        url = listen().url
        for path in ("/static/page.css", "/static/icon.svg"):
            assert f'href="{path}"' in requests.get(url, timeout=5).text
            assert requests.get(url + path, timeout=5).status_code == 200
