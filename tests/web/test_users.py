"""Users of our own port."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bcrypt
import pytest
import requests

from tests.deadline import wait_for
from tests.web.conftest import Listen
from tests.web.published import application
from vllm_length_exporter.web import guard

RIGHT = ("prometheus", "péché mortel: 1")
LONG = "x" * 100


def hashed(password: str, rounds: int = 4) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(rounds)).decode()


def configured(folder: Path, **users: str) -> Path:
    path = folder / "web.yml"
    fresh = folder / "web.yml.new"
    lines = "".join(f"  {name}: {stored}\n" for name, stored in users.items())
    fresh.write_text(
        f"basic_auth_users:\n{lines}http_server_config:\n  headers:\n    X-Frame-Options: SAMEORIGIN\n"
    )
    fresh.replace(path)
    return path


@pytest.fixture
def url(listen: Listen, tmp_path: Path) -> str:
    users = {
        "prometheus": hashed(RIGHT[1]),
        "apache": hashed("p").replace("$2b$", "$2y$"),
        "long": hashed(LONG),
    }
    return listen(application(lifecycle=True), web_config_file=configured(tmp_path, **users)).url


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The hashes that bcrypt is asked about."""
    seen: list[bytes] = []
    check = bcrypt.checkpw

    def spy(password: bytes, stored: bytes) -> bool:
        seen.append(stored)
        return check(password, stored)

    monkeypatch.setattr(bcrypt, "checkpw", spy)
    return seen


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def status(url: str, user: str, password: str, path: str = "/metrics") -> int:
    return requests.get(url + path, headers=basic(user, password), timeout=5).status_code


@pytest.mark.parametrize(("user", "password"), [RIGHT, ("apache", "p"), ("long", LONG)])
def test_the_right_password(url: str, user: str, password: str) -> None:
    assert status(url, user, password) == 200


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("prometheus", "wrong"),
        ("prometheus", ""),
        ("Prometheus", RIGHT[1]),
        ("apache", RIGHT[1]),
        ("", ""),
        ("nobody", "p"),
        ("apache", "p\0"),
        ("apache", "\0p"),
        ("apache", LONG),
    ],
)
def test_a_wrong_one(url: str, user: str, password: str) -> None:
    answer = requests.get(url + "/metrics", headers=basic(user, password), timeout=5)
    assert answer.status_code == 401
    assert answer.text == "wrong user name or password\n"
    assert answer.headers["WWW-Authenticate"].startswith('Basic realm="vllm-length-exporter"')


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"nocolon").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
        "Bearer abc",
        'Digest username="prometheus"',
    ],
)
def test_no_password(url: str, header: str | None) -> None:
    answer = requests.get(url + "/metrics", headers={"Authorization": header}, timeout=5)
    assert answer.status_code == 401
    assert "vllm_length" not in answer.text


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/api/v1/status", "/-/healthy", "/static/page.css", "/nowhere"]
)
def test_every_path_is_behind_it(url: str, path: str) -> None:
    assert requests.get(url + path, timeout=5).status_code == 401
    assert status(url, *RIGHT, path) == (404 if path == "/nowhere" else 200)


def test_reload_is_behind_it(url: str) -> None:
    assert requests.post(url + "/-/reload", timeout=5).status_code == 401


def test_its_headers_replace_ours_everywhere(url: str) -> None:
    for headers, expected in (({}, 401), (basic(*RIGHT), 200)):
        answer = requests.get(url + "/metrics", headers=headers, timeout=5)
        assert (answer.status_code, answer.headers["X-Frame-Options"]) == (expected, "SAMEORIGIN")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


class TestCost:
    def test_a_right_password_is_hashed_once(self, url: str, checked: list[bytes]) -> None:
        for _ in range(5):
            assert status(url, *RIGHT) == 200
        assert len(checked) == 1
        assert status(url, "prometheus", "wrong") == 401
        assert status(url, "prometheus", "wrong") == 401
        assert len(checked) == 3

    def test_an_unknown_user_costs_as_much(
        self, listen: Listen, tmp_path: Path, checked: list[bytes]
    ) -> None:
        url = listen(web_config_file=configured(tmp_path, a=hashed("p", 6))).url
        assert status(url, "a", "wrong") == 401
        assert status(url, "nobody", "wrong") == 401
        known, unknown = checked
        assert known[:7] == unknown[:7] == b"$2b$06$"
        assert len(known) == len(unknown)

    def test_a_flood_is_turned_away(
        self, listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = listen(web_config_file=configured(tmp_path, a=hashed("p"))).url
        assert status(url, "a", "p") == 200
        monkeypatch.setattr(guard, "PATIENCE", 0.05)
        go_on, waiting = threading.Event(), threading.Semaphore(0)

        def slow(password: bytes, stored: bytes) -> bool:
            del password, stored
            waiting.release()
            assert go_on.wait(20)
            return False

        monkeypatch.setattr(bcrypt, "checkpw", slow)
        with ThreadPoolExecutor(guard.AT_ONCE) as pool:
            guesses = [pool.submit(status, url, "a", str(guess)) for guess in range(guard.AT_ONCE)]
            try:
                for _ in guesses:
                    assert waiting.acquire(timeout=5)
                assert status(url, "a", "another") == 429
                assert status(url, "a", "p") == 200  # who was right before is let in
            finally:
                go_on.set()
            assert [guess.result() for guess in guesses] == [401] * guard.AT_ONCE

    def test_what_is_remembered_is_bounded(self) -> None:
        passwords = guard.Passwords()
        for number in range(guard.REMEMBERED + 5):
            assert passwords.is_right({"a": hashed(str(number))}, "a", str(number))
        assert len(passwords._right) <= guard.REMEMBERED


class TestChanges:
    def test_a_new_hash_counts_at_once(self, listen: Listen, tmp_path: Path) -> None:
        url = listen(web_config_file=configured(tmp_path, a=hashed("old"), b=hashed("b"))).url
        assert status(url, "a", "old") == status(url, "b", "b") == 200
        configured(tmp_path, a=hashed("new"))
        assert status(url, "a", "old") == 401
        assert status(url, "b", "b") == 401
        assert status(url, "a", "new") == 200

    def test_a_bad_file_leaves_the_old_users(
        self, listen: Listen, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = configured(tmp_path, a=hashed("p"))
        url = listen(web_config_file=path).url
        path.write_text("basic_auth_users:\n  a: not a hash\n")
        assert status(url, "a", "p") == 200
        assert status(url, "a", "wrong") == 401
        (record,) = caplog.records
        assert "not a hash" not in str(vars(record))
        path.unlink()
        assert status(url, "a", "p") == 200
        wait_for(lambda: len(caplog.records) == 2, seconds=2, what="the missing file is told")
