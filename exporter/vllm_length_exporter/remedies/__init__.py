"""What to do about a message of vLLM's: the exact flag or field, and a value that its own numbers allow.

Every function takes the numbers of one message and returns advice in the order of what helps most.
Advice that the numbers contradict is left out: memory that is short for another reason is not won by
`--gpu-memory-utilization`.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_length_exporter.remedies import request, start
from vllm_length_exporter.remedies.remedy import Advise
from vllm_length_exporter.vllm.events import RefusalCause, StartFailure

REMEDIES: Mapping[str, Advise] = {
    StartFailure.KV_CACHE_TOO_SMALL: start.cache_too_small,
    StartFailure.NO_KV_MEMORY: start.no_memory,
    StartFailure.LIMIT_ABOVE_WINDOW: start.above_window,
    StartFailure.MEMORY_BUSY: start.memory_busy,
    StartFailure.BATCHED_TOKENS_BELOW_LIMIT: start.batched_tokens,
    StartFailure.AUTO_FIT_IMPOSSIBLE: start.auto_fit_impossible,
    StartFailure.OUT_OF_MEMORY: start.out_of_memory,
    StartFailure.CONFIGURATION: start.configuration,
    RefusalCause.PROMPT_TOO_LONG: request.prompt_too_long,
    RefusalCause.PROMPT_PLUS_OUTPUT_TOO_LONG: request.sum_too_long,
    RefusalCause.OUTPUT_TOO_LONG: request.output_too_long,
    RefusalCause.NO_ROOM_FOR_OUTPUT: request.no_room,
}
# Messages whose cause alone does not say what to do.
BY_MESSAGE: Mapping[str, Advise] = {
    "v0_prompt_too_long_1": request.v0_prompt,
    "v0_prompt_too_long_2": request.v0_prompt,
    "v0_prompt_too_long_3": request.v0_prompt,
    "v0_fail_no_blocks": request.v0_prompt,
}
