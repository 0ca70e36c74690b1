"""The model's window, derived from its config.json as vLLM derives it (facts sheet, section 5).

The smallest of the known length keys, scaled by RoPE where this version of vLLM scales. Where versions differ
and the version is not known, nothing is derived.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from packaging.version import Version

from vllm_length_exporter.vllm.model_defaults import CLASS_DEFAULTS, NO_LENGTH
from vllm_length_exporter.vllm.model_values import NO_LIMIT, Config, ModelConfigError, kind, positive
from vllm_length_exporter.vllm.rope import RopeRule, original_length, rope_factor, rope_parameters, rope_rules
from vllm_length_exporter.vllm.rope import rope_type as rope_type_name

__all__ = [
    "LENGTH_KEYS",
    "Config",
    "Derived",
    "ModelConfigError",
    "accepts",
    "checked_config",
    "read_config",
    "text_config",
    "window",
]

# The smallest of them counts (0.2.7-0.33; max_target_positions 0.7.0+).
LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
REPLACING_KEY = "model_max_length"  # where present, it is the length whatever the others say (0.8.5+)
FALLBACK = 2048  # tokens, where a model knows no length
# Where a model of several kinds of input keeps the configuration of its language model.
TEXT_CONFIGS = ("text_config", "thinker_config", "llm_config", "language_config", "decoder", "generator")
SCALED_ALREADY = "gemma3"  # a type with this in its name states a length that is scaled already


@dataclass(frozen=True, slots=True)
class Derived:
    """What vLLM makes of a config.json, in tokens.

    `window` is the largest --max-model-len it accepts; `default_limit` is what it takes without that flag,
    which is less for longrope. `key` is the config's key that decided, None where there was none.
    """

    window: int
    default_limit: int
    key: str | None
    rope_rule: str | None = None
    rope_type: str | None = None
    rope_factor: float | None = None


def read_config(body: bytes | str, name: str = "config.json") -> Config:
    """The JSON object in a config.json.

    Raises:
        ModelConfigError: it is no JSON object; one line that names the file.
    """
    try:
        value = json.loads(body)
    except RecursionError:
        raise ModelConfigError(f"{name}: nested too deeply to be a model's configuration") from None
    except json.JSONDecodeError as error:
        raise ModelConfigError(f"{name}: not JSON: {error.msg} (line {error.lineno})") from None
    except ValueError:  # not Unicode, or a number of more digits than Python reads
        raise ModelConfigError(f"{name}: not JSON: neither UTF-8 text nor numbers of a sane size") from None
    if not isinstance(value, dict):
        raise ModelConfigError(f"{name}: expected a JSON object, found {kind(value)}")
    return value


def checked_config(body: bytes | str, name: str = "config.json") -> Config:
    """The same, and its length keys can be read.

    Raises:
        ModelConfigError: it is no JSON object, or a key holds what cannot be a length; one line.
    """
    config = read_config(body, name)
    try:
        window(config, None)
    except ModelConfigError as error:
        raise ModelConfigError(f"{name}: {error}") from None
    return config


def text_config(config: Config) -> Config:
    """The language model's own part of a configuration, with what its class would fill in."""
    found = config
    for _ in range(3):  # thinker_config.text_config is the deepest that is published
        inner = next((found[key] for key in TEXT_CONFIGS if isinstance(found.get(key), dict)), None)
        if not isinstance(inner, dict) or not inner:
            break
        found = inner
    defaults = CLASS_DEFAULTS.get(str(found.get("model_type")), {})
    return {**defaults, **found}


def window(
    config: Config,
    version: Version | None,
    *,
    sentence_transformers: Config | None = None,
    tokenizer: Config | None = None,
    disable_sliding_window: bool = False,
) -> Derived | None:
    """The window that vLLM derives, or None where the inputs do not decide it.

    `sentence_transformers` is the content of sentence_bert_config.json, `tokenizer` that of
    tokenizer_config.json, where the model's folder has them. None means: the version decides and is not
    known, or the file names no length and the model's type is unknown to us.

    Raises:
        ModelConfigError: a key holds what cannot be a length or a factor; one line.
    """
    text = text_config(config)
    decided = _stated(text)
    if decided is None:
        return None
    length, key = decided
    sliding = positive(text, "sliding_window") if text.get("sliding_window") else None
    if disable_sliding_window and sliding is not None and sliding < length:
        length, key = sliding, "sliding_window"
    if _is_pooling(config) and text.get("position_embedding_type") == "absolute":
        if tokenizer is None:
            return None  # its model_max_length would count too (0.10+)
        held = positive(tokenizer, "model_max_length") if "model_max_length" in tokenizer else length
        if held < length:
            length, key = held, "model_max_length of the tokenizer"
    whole = positive(sentence_transformers or {}, "max_seq_length") if sentence_transformers else None
    # Every rule that may hold must say the same.
    return _agreed({_derive(text, length, key, rule, whole) for rule in rope_rules(version)})


def accepts(derived: Derived, config: Config, max_model_len: int) -> bool:
    """Whether vLLM takes this --max-model-len without VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.

    A model that names no length takes any.
    """
    if derived.key is None:
        return True
    text = text_config(config)
    larger = positive(text, REPLACING_KEY) if text.get(REPLACING_KEY) is not None else 0
    return max_model_len <= max(derived.window, larger)


def _stated(text: Config) -> tuple[int, str | None] | None:
    lengths = {key: positive(text, key) for key in LENGTH_KEYS if text.get(key) is not None}
    if not lengths:
        return (FALLBACK, None) if str(text.get("model_type")) in NO_LENGTH else None
    if REPLACING_KEY in lengths:
        return lengths[REPLACING_KEY], REPLACING_KEY
    key = min(lengths, key=lambda name: lengths[name])
    return lengths[key], key


def _derive(text: Config, length: int, key: str | None, rule: RopeRule, whole: int | None) -> Derived | None:
    parameters = list(rope_parameters(text, rule))
    factor, rope_type = 1.0, None
    if SCALED_ALREADY not in str(text.get("model_type", "")):
        for found in parameters:
            name = rope_type_name(found)
            rope_type = name if name != "default" else rope_type
            if name in rule.unscaled:
                continue
            factor = rope_factor(found, factor)
            if name == "yarn" and rule.yarn_from_original:
                start = original_length(text, found, rule)
                if start is None:
                    return None  # this version stops with a KeyError
                length, key = start, "original_max_position_embeddings"
    if not 1 <= length * factor <= NO_LIMIT:
        return None  # no length of a model
    scaled = int(length * factor)
    if whole is not None:
        scaled, key = whole, "max_seq_length of sentence-transformers"
    default = scaled
    if rule.longrope_from_original and any(rope_type_name(found) == "longrope" for found in parameters):
        outer = text.get("original_max_position_embeddings")
        default = scaled if outer is None else positive(text, "original_max_position_embeddings")
    counted = factor if factor != 1 else None
    return Derived(scaled, default, key, rule.name if rope_type else None, rope_type, counted)


def _agreed(found: set[Derived | None]) -> Derived | None:
    """The one answer, if all rules lead to the same lengths. Their names are then of no account."""
    lengths = {None if one is None else (one.window, one.default_limit) for one in found}
    if len(lengths) != 1 or None in lengths:
        return None
    named = sorted((one for one in found if one is not None), key=lambda one: one.rope_rule or "")
    return named[0]


def _is_pooling(config: Config) -> bool:
    """Whether the architecture embeds or scores, rather than generates."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return False
    return not any("ForCausalLM" in str(name) or "Generation" in str(name) for name in names)
