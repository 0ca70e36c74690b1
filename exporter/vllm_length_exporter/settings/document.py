"""A YAML file as plain objects, with the line of each key, and nothing in it that YAML would silently drop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .mistake import ConfigError, KeyPath, dotted

try:  # libyaml's parser where PyYAML was built with it: five hundred servers are read in a tenth of the time
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]

DEEPEST = 100  # keys and lists one in another: nothing of ours has more than ten
MERGE = "tag:yaml.org,2002:merge"


class Loader(SafeLoader):
    """Nodes are made by recursion, which older libyaml leads out of the stack: the process would be gone."""

    _depth = 0

    def descend_resolver(self, current_node: yaml.Node | None, current_index: Any) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            mark = None if current_node is None else current_node.start_mark
            raise yaml.MarkedYAMLError(problem=f"nested more than {DEEPEST} deep", problem_mark=mark)
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()


@dataclass(frozen=True, slots=True)
class Document:
    """`content` is what the file says; `root` its nodes, which know their lines."""

    path: Path
    content: Any
    root: yaml.Node

    def place(self, path: KeyPath) -> str:
        """File, line and key, as an error begins: `exporter.yml:7: servers[0].url`."""
        node, line = self.root, self.root.start_mark.line + 1
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        key = dotted(path)
        return f"{self.path}:{line}: {key}" if key else f"{self.path}:{line}"


def read(path: Path) -> Document:
    """Read a file with one YAML document.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, not YAML, empty, or names a key twice.
    """
    document = read_or_empty(path)
    if document is None:
        raise ConfigError(f"{path}: is empty")
    return document


def read_or_empty(path: Path) -> Document | None:
    """The same, None where the file is empty or holds comments only.

    Raises:
        ConfigError: as `read`.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path}:{line}: expected UTF-8, got the byte 0x{error.object[error.start]:02x}"
        ) from error
    loader = None
    try:
        loader = Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_twice(path, root)
        return Document(path, loader.construct_document(root), root)
    except yaml.YAMLError as error:
        raise ConfigError(_syntax(path, text, error)) from error
    except ValueError as error:  # a date that is none: 2024-13-45
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: a value is no YAML: {error}; put it in quotes") from error
    finally:
        if loader is not None:
            loader.dispose()


def _refuse_twice(path: Path, root: yaml.Node) -> None:
    """YAML keeps the last of two equal keys; a person meant both."""
    seen_nodes: set[int] = set()
    waiting: list[tuple[KeyPath, yaml.Node]] = [((), root)]
    while waiting:
        place, node = waiting.pop()
        if id(node) in seen_nodes:  # an alias: once is enough, and it may hold itself
            continue
        seen_nodes.add(id(node))
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
                    if key.value in lines:
                        name = dotted((*place, key.value))
                        raise ConfigError(
                            f"{path}:{line}: {name}: expected once, is also in line {lines[key.value]}"
                        )
                    lines[key.value] = line
                waiting.append(((*place, getattr(key, "value", "?")), value))
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(((*place, index), value) for index, value in enumerate(node.value))


def _child(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None


def _syntax(path: Path, text: str, error: yaml.YAMLError) -> str:
    """One line of a syntax error: YAML's own has four, with an excerpt."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        said = ", ".join(part for part in (error.context, error.problem) if part)
    else:
        position = getattr(error, "position", None)
        place = f"{path}:{text.count(chr(10), 0, position) + 1}" if isinstance(position, int) else str(path)
        said = str(getattr(error, "reason", error))
    return f"{place}: expected YAML: {' '.join(said.split())}"
