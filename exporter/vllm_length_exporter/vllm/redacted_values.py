"""What may be kept of a value in a line of vLLM's, and what stands for the rest.

A value is kept where its kind leaves no room for words, or where it is one of the words listed here.
"""

from __future__ import annotations

import http
import re
from collections.abc import Callable, Mapping

from vllm_length_exporter.vllm.arguments import CONFIG_FIELDS, parts
from vllm_length_exporter.vllm.events import ARGUMENT_FIELDS
from vllm_length_exporter.vllm.release import parsed

_NUMBERS = frozenset({"int", "maybe", "num", "gib", "percent", "engine", "count", "gap", "logo", "prompt"})
_LONGEST_NUMBER = 24  # characters

# --- secrets, in what is kept

_SECRETS = re.compile(
    r"(?i)\bbearer\s+[\w.~+/=-]+"
    r"|\b(?:hf|sk|pk|rk|ghp|gho|glpat|xox[a-z]|npm|pypi|api|org)[_-][\w-]{8,}"
    r"|\bAKIA[0-9A-Z]{12,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?<=://)[^/@\s\"']+(?=@)"
    r"|(?<=[?&])(?:[\w-]*(?:key|token|secret|signature|password|sig))=[^&\s\"']+"
    r"|--(?:api|hf)[-_](?:key|token)[= ]+[^\s\"']+"
)  # fmt: skip
MASK = "[secret]"


def without_secrets(text: str) -> str:
    """The text with keys, tokens and the user names and passwords of URLs masked."""
    return _SECRETS.sub(MASK, text)


# --- texts that a value may be

_DEVICES = re.compile(r"(?i:GPU|[CTHXN]PU|CUDA|ROCM)(?::\d{1,3}| \+ (?:host|disk|cpu))?")
_WINDOW_KEYS = frozenset(
    {
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length",
        "max_sequence_length", "max_seq_length", "seq_len", "max_target_positions", "max_model_len",
    }
)  # fmt: skip
_METHODS = frozenset(map(str, http.HTTPMethod))
_PHRASES = frozenset(status.phrase for status in http.HTTPStatus)
_MODES = re.compile(r"(?:PreemptionMode\.)?(?:SWAP|RECOMPUTE|swap|recompute)")
_DTYPES = re.compile(
    r"(?:auto|fp\d{1,2}|int\d{1,2}|bfloat16|float16|half|nvfp4)(?:_\w{1,20})?|turboquant\w{0,10}"
)
_COUNTED = re.compile(r"(?:max|min)_(?:completion_|output_|new_)?tokens")
_SIGNALS = re.compile(r"SIG[A-Z]{3,6}|\d{1,2}")
_LOCAL = re.compile(r"(?:g[0-9a-f]{6,40}|cu\d+|rocm\d+|cpu|tpu|xpu|d\d{8}|precompiled|\.)+")
# Paths of vLLM's server; what follows one is a client's.
_PATHS = re.compile(
    r"/(?:v1/(?:chat/completions|completions|responses|embeddings|models|messages|audio/\w{4,14}|score|rerank|"
    r"load_lora_adapter|unload_lora_adapter)|v2/(?:rerank|embed)|inference/v1/generate|v1|v2|inference|invocations|"
    r"generate|generative_scoring|score|rerank|pooling|classify|embed|metrics|health|version|ping|tokenize|detokenize|"
    r"tokenizer_info|load|sleep|wake_up|is_sleeping|reset_prefix_cache|docs|openapi\.json|start_profile|stop_profile)"
    r"(?:/render|/count_tokens|/)?(?![\w.-])"
)
_STATISTIC = re.compile(
    r"(?:Running|Waiting|Pending|Swapped|Deferred|Preemptions|Corrupted|(?:GPU |CPU |TPU |XPU )?KV cache usage|"
    r"(?:External prefix|Prefix|MM) cache hit rate): -?[\d.]{1,12}(?: reqs|%)?\.?"
)
_NAMING = ("model", "model_tag", "served_model_name", "middleware")  # strings that an operator gave as names
_WORDS = re.compile(r"""['"]?[a-z][a-z0-9_]{0,24}['"]?|<\w[\w.]{0,60}: '[a-z0-9_]{1,24}'>""")
_PLAIN = re.compile(r"-?[\d.]{1,24}(?:e[+-]?\d{1,3})?|True|False|None")


def placeholder(text: str) -> str:
    """What stands for a text: its length, and the indent that tells a frame's line from an exception's."""
    shown = text.lstrip(" ")
    return text[: len(text) - len(shown)] + f"[{len(shown)} characters]" if shown else ""


def kept_value(name: str, kind: str, value: str) -> str:
    """A value as it may be kept; in its place, something of the same kind."""
    if kind in _NUMBERS:
        return value if len(value) <= _LONGEST_NUMBER or kind in ("gap", "logo") else "0"
    if name == "_suffix":
        return value if value.strip() in ("", "None") else " (parameter=[redacted])"
    if kind == "id":
        return value if _COUNTED.fullmatch(value) else "other_tokens"
    if name.startswith("_"):
        if kind == "rest" and (phrase := value.strip()) in _PHRASES:
            return phrase
        return {"rest": placeholder(value), "name": "redacted"}.get(kind, "[redacted]")
    match kind:
        case "arguments":
            return "{" + ", ".join(_arguments(value[1:], ARGUMENT_FIELDS, "'{}': {}")) + "}"
        case "namespace":
            return ", ".join(_arguments(value, ARGUMENT_FIELDS, "{}={}"))
        case "config":
            return ", ".join(_arguments(value, tuple(CONFIG_FIELDS), "{}={}"))
        case "statistics":
            return ", ".join(
                part if _STATISTIC.fullmatch(part) else "[redacted]" for part in value.split(", ")
            )
    return _KEPT[name](value) if name in _KEPT else "redacted"


def untrusted_value(name: str, kind: str, value: str) -> str:
    """The same where clients can write: of arguments, the known ones that are no names."""
    if kind not in ("arguments", "namespace", "config"):
        return kept_value(name, kind, value)
    shape = "'{}': {}" if kind == "arguments" else "{}={}"
    known = (*ARGUMENT_FIELDS, *CONFIG_FIELDS)
    made = ", ".join(
        shape.format(key, raw)
        for key, raw in parts(value.removeprefix("{"))
        if key in known and _PLAIN.fullmatch(raw)
    )
    return "{" + made + "}" if kind == "arguments" else made


def _path(path: str) -> str:
    known = _PATHS.match(path)
    if known is None:
        return "/redacted"
    rest = path[known.end() :].partition("?")[0]
    return known.group() + ("/redacted" if rest else "")


def _version(text: str) -> str:
    version = parsed(text)
    if version is None or len(text) > 60:
        return "redacted"
    if version.local is None or _LOCAL.fullmatch(version.local):
        return text
    return version.public


_KEPT: Mapping[str, Callable[[str], str]] = {
    "path": _path,
    "version": _version,
    "method": lambda text: text if text in _METHODS else "X",
    "device": lambda text: text if _DEVICES.fullmatch(text) else "DEVICE",
    "window_key": lambda text: text if text in _WINDOW_KEYS else "redacted",
    "mode": lambda text: text if _MODES.fullmatch(text) else "redacted",
    "kv_cache_dtype": lambda text: text if _DTYPES.fullmatch(text) else "redacted",
    "signal": lambda text: text if _SIGNALS.fullmatch(text) else "redacted",
}


def _arguments(text: str, known: tuple[str, ...], shape: str) -> list[str]:
    """The arguments that are read, with their values; of the others, which were given."""
    made = []
    for key, value in parts(text):
        raw = value
        if key in _NAMING:
            raw = without_secrets(value)
        elif not (_PLAIN.fullmatch(value) or (key in known and _WORDS.fullmatch(value))):
            raw = "[redacted]"
        made.append(shape.format(key[:60], raw))
    return made
