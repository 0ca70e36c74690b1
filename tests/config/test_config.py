"""The configuration: what is read from a file and from flags, and the one line that each mistake gets."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vllm_length_exporter.config import (
    Config,
    ConfigError,
    Duration,
    FileLog,
    LogFormat,
    LogLevel,
    Server,
    StdinLog,
    load,
    missing_files,
    single_server,
)

HERE = Path(__file__).parent
INVALID = sorted(HERE.glob("invalid-*.yml"))
MINIMAL = "servers: [{url: 'http://vllm:8000'}]\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "exporter.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def the_error(path: Path, **flags: object) -> str:
    with pytest.raises(ConfigError) as raised:
        load(path, **flags)
    return str(raised.value)


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem.removeprefix("invalid-"))
def test_each_mistake_gets_its_line(path: Path) -> None:
    first = path.read_bytes().splitlines()[0].decode()
    assert first.startswith("# expect: FILE:"), f"{path.name} does not say what is expected"
    assert the_error(path) == first.removeprefix("# expect: ").replace("FILE", str(path))


def test_every_key_is_read(tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client.key", "token", "config.json"):
        (tmp_path / name).touch()
    (tmp_path / "state").mkdir()
    (tmp_path / "web.yml").write_text("basic_auth_users: {}\n")
    config = load(written(tmp_path, (HERE / "complete.yml").read_text()))
    assert (config.listen_address.host, config.listen_address.port) == ("::1", 9900)
    assert (config.poll_interval, config.window) == (2.5, 600.0)
    assert (config.workload_window, config.models_interval) == (5400.0, 120.0)
    assert config.state_dir == tmp_path / "state"
    assert config.web_config_file == tmp_path / "web.yml"
    assert config.web_enable_lifecycle is True
    assert (config.log_level, config.log_format) == (LogLevel.DEBUG, LogFormat.JSON)
    plain, gateway, proxied = config.servers
    assert (plain.name, plain.url) == ("vllm-a:8000", "http://vllm-a:8000")
    assert plain.log == FileLog(tmp_path / "logs/a.log")
    assert plain.timeout == 5.0
    assert (gateway.name, gateway.url) == ("long context", "https://gateway.example/team")
    assert gateway.log == StdinLog()
    assert gateway.bearer_token_env == "VLLM_API_KEY"
    assert gateway.ca_file == tmp_path / "ca.pem"
    assert (gateway.client_cert_file, gateway.client_key_file) == (
        tmp_path / "client.pem",
        tmp_path / "client.key",
    )
    assert gateway.timeout == 3.0
    assert gateway.model_config == tmp_path / "config.json"
    assert (proxied.name, proxied.bearer_token_file) == ("[::1]:80", tmp_path / "token")
    assert proxied.proxy_from_environment is True
    set_keys = {
        field for field in Config.__struct_fields__ if getattr(config, field) != default(Config, field)
    }
    assert set_keys == set(Config.__struct_fields__), "a key of Config is missing in complete.yml"
    seen = {
        field
        for server in config.servers
        for field in Server.__struct_fields__
        if getattr(server, field) != default(Server, field)
    }
    assert seen == set(Server.__struct_fields__), "a key of Server is missing in complete.yml"


def default(struct: type[msgspec.Struct], name: str) -> object:
    return next(field.default for field in msgspec.structs.fields(struct) if field.name == name)


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    config = load(written(tmp_path, MINIMAL))
    assert config == single_server("http://vllm:8000")
    assert config.listen_address == "0.0.0.0:9832"
    assert (config.poll_interval, config.window, config.workload_window) == (5.0, 300.0, 3600.0)
    assert (config.state_dir, config.web_config_file, config.servers[0].log) == (None, None, None)
    assert config.web_enable_lifecycle is False


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("1m", 60.0), ("1h", 3600.0), ("2d", 172800.0), ("250ms", 0.25),
     ("1h30m", 5400.0), ("7", 7.0), (7, 7.0), (0.5, 0.5)],
)  # fmt: skip
def test_durations(text: object, seconds: float) -> None:
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "s", " 5s", "5s ", "-5s", "5S", "5s5", "0s", "1e3s", "inf",
     "٥s", "9" * 400 + "s", None, [], -1, 0, 1e300, float("inf")],
)  # fmt: skip
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 5s, 1m or 1h, got "):
        Duration.parse(text)


class TestFlags:
    def test_they_make_one_server(self) -> None:
        config = single_server(
            "https://vllm:8000/", log="a.log", name="a", timeout="2s", poll_interval=1.0, listen_address=":0"
        )
        assert config.servers[0].name == "a"
        assert config.servers[0].log == FileLog(Path("a.log"))
        assert config.servers[0].timeout == 2.0
        assert config.poll_interval == 1.0
        assert config.listen_address == "0.0.0.0:0"

    def test_none_is_not_given(self) -> None:
        assert single_server("http://vllm:8000", log=None, name=None, window=None) == single_server(
            "http://vllm:8000"
        )

    @pytest.mark.parametrize(
        ("flags", "line"),
        [
            ({"url": "vllm:8000"}, "--server: expected http://HOST:PORT or https://HOST:PORT, got 'vllm:8000'"),
            ({"poll_interval": "soon"}, "--poll-interval: expected a duration such as 5s, 1m or 1h, got 'soon'"),
            ({"bearer_token_env": "a b"}, "--bearer-token-env: expected the name of an environment variable"),
            ({"log_level": "loud"}, "--log-level: expected one of debug, info, warning, error"),
            ({"window": "1s"}, "--window: expected at least two poll intervals (10s), got 1s"),
        ],
    )  # fmt: skip
    def test_a_mistake_names_the_flag(self, flags: dict[str, str], line: str) -> None:
        url = flags.pop("url", "http://vllm:8000")
        with pytest.raises(ConfigError) as raised:
            single_server(url, **flags)  # type: ignore[arg-type]  # any flag
        assert str(raised.value) == line

    def test_they_win_over_the_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "poll_interval: 9s\nwindow: 7m\n" + MINIMAL)
        config = load(path, poll_interval="2s", window=None)
        assert (config.poll_interval, config.window) == (2.0, 420.0)

    def test_a_mistake_in_one_names_it_beside_a_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, MINIMAL)
        assert the_error(path, listen_address="nine") == (
            "--listen-address: expected HOST:PORT such as 0.0.0.0:9832 or [::]:9832, got 'nine'"
        )

    def test_their_paths_are_of_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "etc").mkdir()
        path = written(tmp_path / "etc", "web_config_file: web.yml\n" + MINIMAL)
        (tmp_path / "state").mkdir()
        (tmp_path / "etc/web.yml").write_text("{}\n")
        monkeypatch.chdir(tmp_path)
        config = load(path, state_dir="state")
        assert config.state_dir == tmp_path / "state"
        assert config.web_config_file == tmp_path / "etc/web.yml"


class TestUnreadable:
    def test_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "absent.yml"
        assert the_error(path) == f"{path}: cannot be read: No such file or directory"

    def test_directory(self, tmp_path: Path) -> None:
        assert the_error(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"

    def test_binary(self, tmp_path: Path) -> None:
        path = written(tmp_path, b"servers: \x00\x01")
        assert the_error(path) == f"{path}:1: expected YAML: control characters are not allowed"

    @pytest.mark.parametrize(
        "text",
        ["[" * 100_000, "- " * 100_000, "[" * 500 + "]" * 500, '{"a":' * 5000, "? " * 100_000],
        ids=["lists", "lists of lines", "closed lists", "keys", "lists as keys"],
    )
    def test_nested_without_end(self, text: str, tmp_path: Path) -> None:
        path = written(tmp_path, text)
        deep = ("nested more than 100 deep", "while increasing flow level, exceeded maximum nesting depth")
        assert the_error(path) in [f"{path}:1: expected YAML: {said}" for said in deep]  # ours, or libyaml's

    def test_nested_far_from_the_margin(self, tmp_path: Path) -> None:
        path = written(tmp_path, "".join(f"{' ' * level}a:\n" for level in range(3000)))
        assert the_error(path) == f"{path}:100: expected YAML: nested more than 100 deep"

    def test_mistakes_do_not_repeat_secrets(self) -> None:
        for name in ("invalid-token-itself.yml", "invalid-url-userinfo.yml"):
            assert not re.search("sk-0123|hunter2|admin", the_error(HERE / name))


def test_a_server_that_has_not_changed_is_equal(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    before = load(path)
    written(tmp_path, "poll_interval: 9s\n" + MINIMAL)
    after = load(path)
    assert before != after
    assert before.servers == after.servers
    assert hash(before.servers[0]) == hash(after.servers[0])


def test_anchors_and_merges_are_yaml(tmp_path: Path) -> None:
    text = (
        "servers:\n"
        "- &one {url: 'http://a:1', timeout: 2s}\n"
        "- {<<: *one, url: 'http://b:1'}\n"
    )  # fmt: skip
    servers = load(written(tmp_path, text)).servers
    assert [(server.url, server.timeout) for server in servers] == [("http://a:1", 2.0), ("http://b:1", 2.0)]


class TestMissingFiles:
    @pytest.mark.parametrize(
        ("key", "line"),
        [
            ("bearer_token_file", 4),
            ("ca_file", 4),
            ("client_cert_file", 4),
            ("model_config", 4),
        ],
    )
    def test_of_a_server(self, tmp_path: Path, key: str, line: int) -> None:
        path = written(tmp_path, f"servers:\n  - name: a\n    url: https://a:1\n    {key}: absent\n")
        expected = (
            f"{path}:{line}: servers[0].{key}: {tmp_path}/absent: cannot be read: No such file or directory"
        )
        assert the_error(path) == expected
        (tmp_path / "absent").touch()
        assert missing_files(load(path)) == []

    def test_of_a_flag(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as raised:
            single_server("https://a:1", ca_file=tmp_path / "absent")
        assert str(raised.value) == (
            f"--ca-file: {tmp_path}/absent: cannot be read: No such file or directory"
        )

    def test_state_dir(self, tmp_path: Path) -> None:
        path = written(tmp_path, "state_dir: state\n" + MINIMAL)
        assert the_error(path) == f"{path}:1: state_dir: {tmp_path}/state: expected a directory"

    def test_web_config_file(self, tmp_path: Path) -> None:
        path = written(tmp_path, "web_config_file: web.yml\n" + MINIMAL)
        assert the_error(path) == f"{tmp_path}/web.yml: cannot be read: No such file or directory"
        (tmp_path / "web.yml").write_text("tls: {}\n")
        assert the_error(path).startswith(f"{tmp_path}/web.yml:1: tls: unknown key; ")

    def test_a_log_may_appear_later(self, tmp_path: Path) -> None:
        path = written(tmp_path, "servers: [{url: 'http://a:1', log: later.log}]\n")
        assert load(path).servers[0].log == FileLog(tmp_path / "later.log")


KEYS = st.sampled_from(
    [*Config.__struct_fields__, "url", "name", "log", "timeout", "bearer_token_env", "ca_file", "x"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=8)
    | st.sampled_from(["http://a:1", "5s", "-", "[::1]:1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(content=st.dictionaries(KEYS, VALUES, max_size=5))
@example(content={"servers": [{"url": "http://a:1", "name": "x" * 300}]})
def test_whatever_is_written_is_a_config_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    import yaml

    text = yaml.safe_dump(content, allow_unicode=True)
    path = written(tmp_path_factory.mktemp("any"), text.encode("utf-8", "surrogatepass"))
    line = ""
    try:
        load(path)
    except ConfigError as error:
        line = str(error)
    if line:
        assert line.startswith(f"{path}:")
        assert len(line.splitlines()) == 1
        assert "`" not in line, "a type of the program's shows through"


@given(text=st.text() | st.text(alphabet="ab:-[]{}&*#!|>'\"\n \t?,%@"))
def test_whatever_is_in_the_file_is_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.mktemp("any"), text.encode("utf-8", "surrogatepass"))
    error = the_error(path)
    assert error.startswith(f"{path}:")
    assert len(error.splitlines()) == 1
