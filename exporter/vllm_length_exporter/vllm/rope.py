"""How vLLM lets RoPE scaling change a model's length: rules by version, and the parameters that they read.

Source: vLLM 0.4.3, 0.8.5 to 0.32.0; between two versions that were read, both of their rules may hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from vllm_length_exporter.vllm.model_values import Config, ModelConfigError, kind, number, positive, shown


@dataclass(frozen=True, slots=True)
class RopeRule:
    """How a range of versions, both ends included, lets RoPE scaling change the length."""

    name: str
    first: str
    last: str | None
    unscaled: frozenset[str]  # types whose factor does not count
    yarn_from_original: bool  # yarn starts from original_max_position_embeddings
    longrope_from_original: bool  # without --max-model-len, longrope stays at the original length
    keys: tuple[str, ...]  # where the parameters are, the first that is there


_ONLY_SCALING, _PARAMETERS = ("rope_scaling",), ("rope_scaling", "rope_parameters")
_STATED = frozenset({"su", "longrope", "llama3"})
ROPE_RULES = (
    RopeRule("scaled-but-su", "0.4.3", "0.4.3", frozenset({"longrope"}), True, False, _ONLY_SCALING),
    RopeRule("yarn-from-original", "0.8.5", "0.11.0", _STATED, True, False, _ONLY_SCALING),
    RopeRule("longrope-original", "0.11.2", "0.12.0", _STATED, True, True, _ONLY_SCALING),
    RopeRule("rope-parameters", "0.13.0", "0.29.0", _STATED, True, True, _PARAMETERS),
    RopeRule(
        "yarn-as-stated",
        "0.30.0",
        None,
        _STATED | {"yarn", "deepseek_yarn", "deepseek_llama_scaling"},
        False,
        True,
        _PARAMETERS,
    ),
)
# Types that vLLM renames when it loads the file; 0.4.3 knew longrope as su only.
_RENAMED = {"su": "longrope", "mrope": "default", "telechat3-yarn": "yarn"}


def rope_rules(version: Version | None) -> list[RopeRule]:
    """The rules that may hold: one, or both neighbours where the version lies between those that were read."""
    if version is None:
        return list(ROPE_RULES)
    release = Version(".".join(map(str, version.release[:3])))
    before = [rule for rule in ROPE_RULES if Version(rule.first) <= release]
    after = [rule for rule in ROPE_RULES if rule.last is None or release <= Version(rule.last)]
    both = [rule for rule in before if rule in after]
    return both or before[-1:] + after[:1]


def rope_parameters(text: Config, rule: RopeRule) -> Iterator[Config]:
    """The RoPE parameters: one mapping, or one a layer type where they are nested by type."""
    value = next((text[key] for key in rule.keys if text.get(key)), None)
    if value is None:
        return
    if not isinstance(value, dict):
        name = next(key for key in rule.keys if text.get(key))
        raise ModelConfigError(f"config.json: {name}: expected an object, found {kind(value)}")
    nested = [inner for inner in value.values() if isinstance(inner, dict)]
    if nested and not {"rope_type", "type", "factor"} & value.keys():
        yield from (inner for inner in nested if inner)
    else:
        yield value


def rope_type(parameters: Config) -> str:
    """The type's present name."""
    name = str(parameters.get("rope_type") or parameters.get("type") or "default")
    return _RENAMED.get(name, name)


def rope_factor(parameters: Config, otherwise: float) -> float:
    """The factor, `otherwise` where there is none; a null counts as 1. Raises ModelConfigError where it is none."""
    if "factor" not in parameters:
        return otherwise
    if parameters["factor"] is None:
        return 1.0
    factor = number(parameters["factor"])
    if factor is None or factor <= 0:
        found = shown(parameters["factor"])
        raise ModelConfigError(f"config.json: rope factor: expected a positive number, found {found}")
    return factor


def original_length(text: Config, parameters: Config, rule: RopeRule) -> int | None:
    """The length before scaling, or None where this version stops for want of it."""
    name = "original_max_position_embeddings"
    if parameters.get(name) is not None:
        return positive(parameters, name)
    if rule.keys == _ONLY_SCALING:
        return None
    if text.get(name) is not None:
        return positive(text, name)
    return (
        positive(text, "max_position_embeddings") if text.get("max_position_embeddings") is not None else None
    )
