"""Versions of vLLM, compared as versions: "0.13.0+cu129" and "0.14.0rc1.dev2+g7d9f" included."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import InvalidVersion, Version


@lru_cache(maxsize=256)
def parsed(text: str | None) -> Version | None:
    """A version text as a version, or None where it is none."""
    if text is None:
        return None
    try:
        return Version(text)
    except InvalidVersion:
        return None


def release(text: str | None) -> tuple[int, int, int] | None:
    """Major, minor and patch of a version text, or None where it is no version.

    A development or candidate build counts as the release it leads to: it has that release's behaviour.
    """
    version = parsed(text)
    return None if version is None else (version.major, version.minor, version.micro)


def within(text: str | None, first: str | None = None, last: str | None = None) -> bool | None:
    """Whether a version lies in a range, both ends included; None where the version is not known."""
    found = release(text)
    if found is None:
        return None
    low, high = release(first), release(last)
    return (low is None or found >= low) and (high is None or found <= high)
