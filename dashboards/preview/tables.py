"""A table panel's rows: the answers of its queries, through the transformations that its JSON names."""

from __future__ import annotations

from typing import Any

from .answers import Series

Json = dict[str, Any]
Cell = float | str
Row = dict[str, Cell]


def rows_of(panel: Json, series: list[Series]) -> list[Row]:
    """Rows by column title, sorted as the panel sorts.

    Raises:
        KeyError: the panel uses a transformation that is not known here.
    """
    several = len({target["refId"] for target in panel["targets"]}) > 1
    frames: dict[str, list[Row]] = {}
    for found in series:
        name = f"Value #{found.query}" if several else "Value"
        labels = {key: value for key, value in found.labels.items() if key != "__name__"}
        frames.setdefault(found.query, []).append({**labels, name: found.last})
    rows = [row for frame in frames.values() for row in frame]
    for step in panel["transformations"]:
        rows = _TRANSFORMATIONS[step["id"]](rows, step["options"], list(frames.values()))
    for order in panel["options"].get("sortBy", []):
        title = order["displayName"]
        rows.sort(key=lambda row, title=title: _key(row.get(title)), reverse=order["desc"])  # type: ignore[misc]
    return rows


def _key(cell: Cell | None) -> tuple[bool, float, str]:
    if cell is None:
        return (False, 0.0, "")
    return (True, cell, "") if isinstance(cell, float) else (True, 0.0, cell)


def _merge(rows: list[Row], options: Json, frames: list[list[Row]]) -> list[Row]:
    del options
    if len(frames) < 2:
        return rows
    shared = set.intersection(*({key for row in frame for key in row} for frame in frames))
    merged: list[Row] = []
    for row in rows:
        for present in merged:
            same = all(present.get(key) == row.get(key) for key in shared)
            if same and not any(key in present and present[key] != value for key, value in row.items()):
                present |= row
                break
        else:
            merged.append(dict(row))
    return merged


def _matrix(rows: list[Row], options: Json, frames: list[list[Row]]) -> list[Row]:
    del frames
    column, row_field, value = options["columnField"], options["rowField"], options["valueField"]
    corner = f"{row_field}\\{column}"
    made: dict[Cell, Row] = {}
    for row in rows:
        made.setdefault(row[row_field], {corner: row[row_field]})[str(row[column])] = row[value]
    return list(made.values())


def _convert(rows: list[Row], options: Json, frames: list[list[Row]]) -> list[Row]:
    del frames
    for conversion in options["conversions"]:
        name = conversion["targetField"]
        rows = [{**row, name: float(row[name])} if name in row else row for row in rows]
    return rows


def _filter(rows: list[Row], options: Json, frames: list[list[Row]]) -> list[Row]:
    del frames
    names = options["include"]["names"]
    return [{key: cell for key, cell in row.items() if key in names} for row in rows]


def _organize(rows: list[Row], options: Json, frames: list[list[Row]]) -> list[Row]:
    del frames
    titles = options["renameByName"]
    return [{titles[key]: cell for key, cell in row.items()} for row in rows]


_TRANSFORMATIONS = {
    "merge": _merge,
    "groupingToMatrix": _matrix,
    "convertFieldType": _convert,
    "filterFieldsByName": _filter,
    "organize": _organize,
}
