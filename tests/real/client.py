"""A client of a vLLM server that remembers what it saw: the truth that the exporter is compared with."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import requests

from tests.real.vllm_server import MODEL_NAME

TIMEOUT = 300  # seconds
FIRST_TOKEN, LAST_TOKEN = 2, 257  # the tiny model's bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got."""

    status: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None


class Client:
    def __init__(self, base_url: str, seed: int = 7) -> None:
        self._base_url = base_url
        self._random = random.Random(seed)

    def tokens(self, count: int) -> list[int]:
        """A prompt of exactly so many tokens; no two alike, so that no prefix is cached."""
        return [self._random.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]

    def complete(self, prompt: list[int] | str, **body: object) -> Answer:
        return self._send("/v1/completions", {"prompt": prompt, **body})

    def chat(self, text: str, **body: object) -> Answer:
        return self._send("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **body})

    def crowd(self, count: int, prompt_tokens: int, max_tokens: int) -> list[Answer]:
        """So many requests at once, each generating exactly `max_tokens`."""
        prompts = [self.tokens(prompt_tokens) for _ in range(count)]
        with ThreadPoolExecutor(count) as pool:
            return list(
                pool.map(
                    lambda prompt: self.complete(prompt, max_tokens=max_tokens, ignore_eos=True), prompts
                )
            )

    def models(self) -> list[dict[str, object]]:
        """The cards of /v1/models."""
        reply = requests.get(f"{self._base_url}/v1/models", timeout=10)
        reply.raise_for_status()
        cards: list[dict[str, object]] = reply.json()["data"]
        return cards

    def _send(self, path: str, body: dict[str, object]) -> Answer:
        reply = requests.post(self._base_url + path, json={"model": MODEL_NAME, **body}, timeout=TIMEOUT)
        if not reply.ok:
            return Answer(reply.status_code, error=reply.text)
        answer = reply.json()
        usage, choice = answer["usage"], answer["choices"][0]
        return Answer(
            reply.status_code, usage["prompt_tokens"], usage["completion_tokens"], choice["finish_reason"]
        )
