# ruff: noqa: E501 - a table of texts
"""Why vLLM does not start, and why it refuses a request for its length, by release (0.2.7-0.33.0).

The text is that of the exception: the last line of a traceback, or the `message` of an answer.
A request error may end in " (parameter=<name>, value=<value>)" (0.14+) or " None" (chat, 0.9.0-0.14.1).
"""

from __future__ import annotations

from vllm_length_exporter.vllm.events import EventName, StartFailure
from vllm_length_exporter.vllm.messages import Found, Kind, Message
from vllm_length_exporter.vllm.messages_log import ABOVE_WINDOW

_F = StartFailure


_Texts = tuple[str, ...]
_FITS = "the estimated maximum model length is {estimated_limit:int}"


def _start(
    id_: str, cause: StartFailure, first: str, last: str, template: str,
    also: _Texts = (), has: _Texts = (), lacks: _Texts = (),
) -> Message:  # fmt: skip
    fixed = {"cause": str(cause)}
    kind, event = Kind.STARTUP_ERROR, EventName.START_FAILED
    aside = _FITS if cause is StartFailure.KV_CACHE_TOO_SMALL else None
    return Message(id_, kind, event, template, first, last, "ERROR", fixed, also, has, lacks, aside=aside)


def _request(id_: str, first: str, last: str, template: str, also: _Texts = (), has: _Texts = ()) -> Message:
    kind, event = Kind.REQUEST_ERROR, EventName.REFUSED
    return Message(id_, kind, event, template, first, last, "ERROR", also=also, has=has)


_SEE_DOCS = " See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
_TRY = "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
_ESTIMATE = f"Based on the available memory, {_FITS}."


def _too_small(model: str, unit: str, tail: str) -> str:
    # The bracket that is never closed is vLLM's own, and people who retype the text leave it out.
    return (
        f"To serve at least one request with the {model} max seq len ({{limit:int}}), "
        f"[[(]]{{needed_bytes:gib}} {unit} KV cache is needed, which is larger than the available KV cache memory "
        f"({{available_bytes:gib}} {unit}).‖{tail}"
    )


_DEVICE = "({free_bytes:gib}/{total_bytes:gib} GiB)"
_DESIRED = "({gpu_memory_utilization:num}, {desired_bytes:gib} GiB)"
_NODE = f"Available memory on node {{_:int}} {_DEVICE} on startup is less than desired CPU memory utilization {_DESIRED}."

STARTUP_ERRORS = (
    _start("no_kv_memory_1", _F.NO_KV_MEMORY, "0.2.7", "0.12.0",
           "No available memory for the cache blocks.‖ Try increasing `gpu_memory_utilization` when initializing the "
           "engine."),
    _start("no_kv_memory_2", _F.NO_KV_MEMORY, "0.4.3", "0.9.2",
           "No available memory for the cache blocks.‖ Try increasing `VLLM_CPU_KVCACHE_SPACE` when initializing the "
           "engine."),
    _start("no_kv_memory_3", _F.NO_KV_MEMORY, "0.13.0", "0.21.0",
           "No available memory for the cache blocks.‖ Try increasing `gpu_memory_utilization` when initializing the "
           f"engine.{_SEE_DOCS}"),
    _start("no_kv_memory_4", _F.NO_KV_MEMORY, "0.22.1", "0.33.0",
           "No available memory for the cache blocks.‖ Try increasing `gpu_memory_utilization` when initializing the "
           f"engine (this flag also controls CPU memory reservation on the CPU backend, despite its name).{_SEE_DOCS}"),
    _start("no_kv_memory_5", _F.NO_KV_MEMORY, "0.33.0", "0.33.0",
           "The worker already uses {taken_bytes:gib} GiB (model weights and runtime), more than the {reserved_bytes:gib} GiB "
           "of CPU memory reserved for it on node {_:int}, leaving none for the KV cache.‖ On the CPU backend, the "
           "`--gpu-memory-utilization` flag controls the fraction of CPU memory reserved (despite its name). To resolve: "
           "increase `--gpu-memory-utilization` to more than {least_utilization:num}, or set the KV cache size explicitly "
           "with `--kv-cache-memory-bytes` or VLLM_CPU_KVCACHE_SPACE."),
    # 0.7 writes GB and means GiB.
    _start("kv_too_small_1", _F.KV_CACHE_TOO_SMALL, "0.7.0", "0.7.3", _too_small("models's", "GB", f" {_TRY}")),
    _start("kv_too_small_2", _F.KV_CACHE_TOO_SMALL, "0.8.5", "0.9.0.1",
           _too_small("models's", "GiB", f"[[{_ESTIMATE}]]{{_:gap}}{_TRY}")),
    _start("kv_too_small_3", _F.KV_CACHE_TOO_SMALL, "0.8.5", "0.12.0",
           _too_small("models's", "GiB", f" [[{_ESTIMATE}]]{{_:gap}}{_TRY}"), also=("kv_too_small_2",)),
    _start("kv_too_small_4", _F.KV_CACHE_TOO_SMALL, "0.13.0", "0.13.0",
           _too_small("models's", "GiB", f" [[{_ESTIMATE} ]] {_TRY}{_SEE_DOCS}")),
    _start("kv_too_small_5", _F.KV_CACHE_TOO_SMALL, "0.13.0", "0.21.0",
           _too_small("models's", "GiB", f" [[{_ESTIMATE} ]]{_TRY}{_SEE_DOCS}"), also=("kv_too_small_4",)),
    _start("kv_too_small_6", _F.KV_CACHE_TOO_SMALL, "0.22.1", "0.33.0",
           _too_small("model's", "GiB", f" [[{_ESTIMATE} ]]Try increasing `gpu_memory_utilization` (which also controls "
                      "CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine."
                      f"{_SEE_DOCS}")),
    _start("kv_too_small_v0_1", _F.KV_CACHE_TOO_SMALL, "0.2.7", "0.10.2",
           "The model's max seq len ({limit:int}) is larger than the maximum number of tokens that can be stored in KV "
           f"cache ({{capacity_tokens:int}}).‖ {_TRY}"),
    _start("kv_too_small_v0_2", _F.KV_CACHE_TOO_SMALL, "0.4.3", "0.9.2",
           "The model's max seq len ({limit:int}) is larger than the maximum number of tokens that can be stored in KV "
           "cache ({capacity_tokens:int}).‖ Try increasing `VLLM_CPU_KVCACHE_SPACE` or decreasing `max_model_len` when "
           "initializing the engine."),
    _start("user_len_gt_derived_1", _F.LIMIT_ABOVE_WINDOW, "0.2.7", "0.3.3",
           f"{ABOVE_WINDOW}‖ This may lead to incorrect model outputs or CUDA errors. Make sure the value is correct and "
           "within the model context size.", lacks=(" or model_max_length=",)),
    _start("user_len_gt_derived_2", _F.LIMIT_ABOVE_WINDOW, "0.4.3", "0.4.3",
           f"{ABOVE_WINDOW}‖ This may lead to incorrect model outputs or CUDA errors. Make sure the value is correct and "
           "within the model context size.", has=(" or model_max_length=",)),
    _start("user_len_gt_derived_3", _F.LIMIT_ABOVE_WINDOW, "0.5.5", "0.10.1.1",
           f"{ABOVE_WINDOW}‖[[ This may lead to incorrect model outputs or CUDA errors.]] To allow overriding this "
           "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", also=("user_len_gt_derived_msg",)),
    _start("user_len_gt_derived_4", _F.LIMIT_ABOVE_WINDOW, "0.10.2", "0.33.0",
           f"{ABOVE_WINDOW}‖ To allow overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. "
           "{_:rest}", also=("user_len_gt_derived_msg",)),
    _start("autofit_fail", _F.AUTO_FIT_IMPOSSIBLE, "0.14.1", "0.33.0",
           "Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.‖ Try increasing "
           "`gpu_memory_utilization`."),
    _start("batched_lt_len", _F.BATCHED_TOKENS_BELOW_LIMIT, "0.2.7", "0.33.0",
           "max_num_batched_tokens ({max_num_batched_tokens:int}) is smaller than max_model_len ({limit:int}).‖ This "
           "effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer "
           "sequences. Please increase max_num_batched_tokens or decrease max_model_len."),
    _start("batched_lt_seqs", _F.CONFIGURATION, "0.2.7", "0.33.0",
           "max_num_batched_tokens ({max_num_batched_tokens:int}) must be greater than or equal to max_num_seqs "
           "({max_num_seqs:int})."),
    _start("long_prefill_thr", _F.CONFIGURATION, "0.7.3", "0.33.0",
           "long_prefill_token_threshold ({threshold:int}) cannot be greater than the max_model_len ({limit:int})."),
    _start("free_mem_lt_util_1", _F.MEMORY_BUSY, "0.9.1", "0.13.0",
           f"Free memory on device {_DEVICE} on startup is less than desired GPU memory utilization {_DESIRED}.‖ Decrease "
           "GPU memory utilization or reduce GPU memory used by other processes."),
    _start("free_mem_lt_util_2", _F.MEMORY_BUSY, "0.14.1", "0.33.0",
           f"Free memory on device {{device:word}} {_DEVICE} on startup is less than desired GPU memory utilization "
           f"{_DESIRED}.‖ Decrease GPU memory utilization or reduce GPU memory used by other processes."),
    _start("free_mem_lt_util_3", _F.MEMORY_BUSY, "0.32.0", "0.33.0",
           "Externally held weights on device {device:word} ({held_bytes:gib}/{total_bytes:gib} GiB) exceed the desired "
           f"GPU memory utilization {_DESIRED}.‖ Increase GPU memory utilization or reduce GPU memory used by other "
           "processes."),
    _start("free_mem_lt_util_4", _F.MEMORY_BUSY, "0.32.0", "0.33.0",
           f"Free memory on device {{device:word}} {_DEVICE} on startup is less than the engine's budget after excluding "
           f"external process's weights {_DESIRED}.‖ Decrease GPU memory utilization or reduce GPU memory used by other "
           "processes."),
    _start("cpu_mem_lt_1", _F.MEMORY_BUSY, "0.20.2", "0.21.0",
           f"{_NODE}‖ Decrease --gpu-memory-utilization or reduce CPU memory used by other processes."),
    _start("cpu_mem_lt_4", _F.MEMORY_BUSY, "0.22.1", "0.32.0",
           f"{_NODE}‖ On the CPU backend, the `--gpu-memory-utilization` flag controls the fraction of CPU memory reserved "
           "(despite its name). To resolve: decrease `--gpu-memory-utilization` (e.g. `--gpu-memory-utilization 0.5`) or "
           "reduce CPU memory used by other processes."),
    _start("cpu_mem_lt_2", _F.MEMORY_BUSY, "0.20.2", "0.33.0",
           f"Available memory on node {{_:int}} {_DEVICE} on kv cache allocation is less than requested memory for kv "
           "({desired_bytes:gib} GiB).‖ Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory "
           "used by other processes."),
    _start("cpu_mem_lt_3", _F.MEMORY_BUSY, "0.20.2", "0.33.0",
           f"Available memory on node {{_:int}} {_DEVICE} on kv cache allocation is less than requested memory for kv "
           "({desired_bytes:gib}/{_:num} GiB).‖ Reduce CPU memory used by other processes."),
    _start("util_gt_1", _F.CONFIGURATION, "0.2.7", "0.11.0",
           "GPU memory utilization must be less than 1.0. Got {gpu_memory_utilization:num}."),
    _start("max_len_not_int_1", _F.CONFIGURATION, "0.9.1", "0.12.0",
           "max_model_len must be an integer after __post_init__."),
    _start("max_len_not_int_2", _F.CONFIGURATION, "0.13.0", "0.33.0",
           "max_model_len must be a positive integer, got {_:text}.‖ Example: max_model_len=2048"),
    _start("hybrid_unify", _F.CONFIGURATION, "0.9.1", "0.26.0",
           "Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type."),
    _start("mm_item_gt_batched", _F.CONFIGURATION, "0.8.5", "0.33.0",
           "Chunked MM input disabled but max_tokens_per_mm_item ({max_tokens_per_mm_item:int}) is larger than "
           "max_num_batched_tokens ({max_num_batched_tokens:int}).‖ Please increase max_num_batched_tokens."),
    _start("sampler_oom", _F.OUT_OF_MEMORY, "0.8.5", "0.33.0",
           "CUDA out of memory occurred when warming up sampler with {_:int} dummy requests.‖ Please try lowering "
           "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."),
    _start("unknown_kv_dtype_1", _F.CONFIGURATION, "0.3.3", "0.11.0", "Unknown kv cache dtype: {kv_cache_dtype:word}"),
    _start("unknown_kv_dtype_2", _F.CONFIGURATION, "0.3.3", "0.33.0", "Invalid kv cache dtype: {kv_cache_dtype:word}"),
    _start("spec_len_1", _F.CONFIGURATION, "0.4.3", "0.33.0",
           "speculative_max_model_len={_:int} cannot be larger than draft_max_model_len={_:int}"),
    _start("spec_len_2", _F.CONFIGURATION, "0.4.3", "0.33.0",
           "speculative_max_model_len={_:int} cannot be larger than target_max_model_len={limit:int}"),
    _start("hybrid_cp", _F.CONFIGURATION, "0.20.2", "0.25.1",
           "Hybrid KV cache groups with multiple block sizes do not support context parallelism "
           "(dcp_world_size/pcp_world_size > 1)."),
    _start("active_gt_seqs", _F.CONFIGURATION, "0.31.0", "0.33.0",
           "max_num_active_seqs ({max_num_active_seqs:int}) cannot be greater than max_num_seqs ({max_num_seqs:int})."),
    # Not vLLM's words but torch's, on every backend; the sizes in them are of one allocation.
    _start("torch_oom", _F.OUT_OF_MEMORY, "0.2.7", "0.32.0", "{_:name} out of memory. Tried to allocate ‖{_:rest}"),
    _start("cuda_error_oom", _F.OUT_OF_MEMORY, "0.2.7", "0.32.0", "{_:name} error: out of memory‖{_:rest}"),
)  # fmt: skip

_CONTEXT = "This model's maximum context length is {limit:int} tokens. However, "
_SHORTER_PROMPT = "Please reduce the length of the input prompt."
_SHORTER_EITHER = "Please reduce the length of the input prompt or the number of requested output tokens."
_UPPER_BOUND = (
    "{prompt_characters:int} characters (more than {prompt_characters_at_most:int} characters, which is the upper bound for "
    "{input_tokens_at_most:int} input tokens)."
)
_ENGINE_PROMPT = "The {_:prompt} prompt (length {prompt_tokens:int})"
_LONGER = " longer than the maximum model length of {limit:int}.‖ {_:rest}"
_ENCODER = (
    "which exceeds the pre-allocated encoder cache size {_:int}.‖ Please reduce the input size or increase the encoder "
    "cache size by setting --limit-mm-per-prompt at startup."
)

REQUEST_ERRORS = (
    _request("sum_gt_len_1", "0.2.7", "0.10.0",
             f"{_CONTEXT}you requested {{total_tokens:int}} tokens ({{prompt_tokens:int}} in the messages, "
             "{output_tokens:int} in the completion).‖ Please reduce the length of the messages or completion."),
    _request("sum_gt_len_2", "0.4.3", "0.10.0",
             f"{_CONTEXT}you requested {{prompt_tokens:int}} tokens in the messages,‖ Please reduce the length of the "
             "messages."),
    _request("sum_gt_len_3", "0.18.1", "0.19.1",
             f"{_CONTEXT}you requested {{output_tokens:int}} output tokens and your prompt contains "
             "{prompt_tokens:count} input tokens, for a total of {total_tokens:count} tokens ({_:int} + {_:int} = {_:int} "
             f"> {{_:int}}).‖ {_SHORTER_EITHER}"),
    _request("sum_gt_len_4", "0.18.1", "0.31.0",
             f"{_CONTEXT}you requested {{output_tokens:int}} output tokens and your prompt contains "
             f"{{prompt_tokens:count}} input tokens, for a total of {{total_tokens:count}} tokens.‖ {_SHORTER_EITHER}"),
    _request("sum_gt_len_5", "0.18.1", "0.31.0",
             f"{_CONTEXT}you requested {{output_tokens:int}} output tokens and your prompt contains {_UPPER_BOUND}"
             f"‖ {_SHORTER_EITHER}"),
    _request("prompt_gt_len_2", "0.10.1.1", "0.19.1",
             f"{_CONTEXT}your request has {{prompt_tokens:int}} input tokens.‖ Please reduce the length of the input "
             "messages.", also=("prompt_gt_len_4",)),
    _request("prompt_gt_len_3", "0.10.2", "0.10.2",
             "This maximum context length is {limit:int} tokens. However, your request has {prompt_tokens:int} input "
             "tokens.‖ Please reduce the length of the input messages."),
    _request("prompt_gt_len_5", "0.32.0", "0.33.0",
             f"{_CONTEXT}your prompt contains {{prompt_tokens:count}} input tokens, which exceeds this limit even without "
             f"any output tokens.‖ {_SHORTER_PROMPT}"),
    _request("prompt_chars_gt_2", "0.32.0", "0.33.0",
             f"{_CONTEXT}your prompt contains {_UPPER_BOUND}‖ {_SHORTER_PROMPT}"),
    _request("decision_prompt_gt", "0.33.0", "0.33.0",
             "question {_:text}: the prompt has {prompt_tokens:int} tokens, more than max_model_len={limit:int}; nothing is "
             "truncated"),
    _request("max_tokens_too_large_1", "0.10.1.1", "0.17.1",
             "'max_tokens' or 'max_completion_tokens' is too large: {output_tokens:int}. This model's maximum context "
             "length is {limit:int} tokens and your request has {prompt_tokens:int} input tokens‖ ({_:int} > {_:int} - "
             "{_:int}).", also=("max_tokens_too_large_2",)),
    _request("max_tokens_gt_len", "0.14.1", "0.15.1",
             "'max_tokens' ({output_tokens:int}) cannot be greater than the model's maximum context length "
             "({limit:int})."),
    _request("max_output_gt_total_1", "0.16.0", "0.19.1",
             "{_:id}={output_tokens:int}cannot be greater than {_:id}=max_total_tokens={limit:int}.‖ Please request fewer "
             "output tokens."),
    _request("max_output_gt_total_2", "0.20.2", "0.30.0",
             "{_:id}={output_tokens:int} cannot be greater than {_:id}=max_total_tokens={limit:int}.‖ Please request "
             "fewer output tokens."),
    _request("max_output_gt_total_3", "0.31.0", "0.33.0",
             "{_:id}={output_tokens:int} cannot be greater than {_:id}={limit:int}. Please request fewer output tokens."),
    # 0.16 and 0.17 cut a text before they count, and do not say so: see `refusals`.
    _request("you_passed_1", "0.16.0", "0.17.1",
             "You passed {counted_tokens:int} input tokens and requested {output_tokens:int} output tokens. However, the "
             "model's context length is only {limit:int} tokens, resulting in a maximum input length of "
             f"{{input_tokens_at_most:int}} tokens.‖ {_SHORTER_PROMPT}"),
    _request("you_passed_2", "0.16.0", "0.17.1",
             "You passed {prompt_characters:int} input characters and requested {output_tokens:int} output tokens. "
             "However, the model's context length is only {limit:int} tokens, resulting in a maximum input length of "
             f"{{input_tokens_at_most:int}} tokens (at most {{prompt_characters_at_most:int}} characters).‖ {_SHORTER_PROMPT}"),
    _request("embed_len_1", "0.4.3", "0.18.1",
             f"{_CONTEXT}you requested {{prompt_tokens:int}} tokens in the input for ‖embedding generation. Please reduce "
             "the length of the input.", also=("embed_len_2", "embed_len_3")),
    _request("embed_len_4", "0.19.1", "0.19.1",
             f"{_CONTEXT}you requested {{prompt_tokens:int}} tokens in the input for ‖{{_:text}}. {_SHORTER_PROMPT}"),
    _request("embed_len_2", "0.7.0", "0.18.1",
             f"{_CONTEXT}you requested {{prompt_tokens:int}} tokens in the input for ‖{{_:text}}. Please reduce the length "
             "of the input.", also=("embed_len_3",)),
    _request("engine_prompt_gt_1", "0.6.0", "0.7.3",
             "The prompt (total length {prompt_tokens:int}) is too long to fit into the model (context length "
             "{limit:int}).‖ {_:rest}"),
    _request("engine_prompt_gt_2", "0.7.3", "0.7.3",
             "Prompt length of {prompt_tokens:int} is longer than the maximum model length of {limit:int}."),
    _request("engine_prompt_gt_3", "0.8.5", "0.33.0", f"{_ENGINE_PROMPT} is{_LONGER}", also=("engine_prompt_gt_9",)),
    _request("engine_prompt_gt_5", "0.11.2", "0.33.0",
             f"{_ENGINE_PROMPT} plus the number of requested output tokens (at least 1) is{_LONGER}",
             also=("engine_prompt_gt_10",)),
    _request("engine_prompt_gt_4", "0.8.5", "0.33.0", "The {_:prompt} prompt cannot be empty",
             also=("engine_prompt_gt_8", "prompt_empty_2", "prompt_empty_3")),
    _request("engine_prompt_gt_6", "0.16.0", "0.19.1",
             f"The {{_:prompt}} prompt contains a(n) {{_:word}} item with length {{_:int}}, {_ENCODER}"),
    _request("engine_prompt_gt_7", "0.20.2", "0.33.0",
             f"The {{_:prompt}} prompt contains a(n) {{_:word}} item with {{_:int}} embedding tokens, {_ENCODER}",
             also=("engine_prompt_gt_11",)),
    _request("input_len_exceeds", "0.18.1", "0.33.0",
             "Input length ({prompt_tokens:int}) exceeds model's maximum context length ({limit:int})."),
    _request("responses_prompt_len", "0.11.2", "0.33.0",
             "The engine prompt length {prompt_tokens:int} exceeds the max_model_len {limit:int}.‖ Please reduce prompt."),
    _request("truncate_gt_1", "0.6.3", "0.18.1",
             "truncate_prompt_tokens value is greater than max_model_len. Please, select a smaller truncation size.",
             also=("truncate_gt_6",)),
    _request("truncate_gt_2", "0.7.0", "0.15.1",
             "truncate_prompt_tokens value ({truncate_prompt:int}) is greater than max_model_len ({limit:int}).‖ Please, "
             "select a smaller truncation size."),
    _request("truncate_gt_3", "0.10.2", "0.11.0",
             "truncate_prompt_tokens ({truncate_prompt:int}) cannot be greater than max_length ({limit:int}).‖ Please "
             "select a smaller truncation size."),
    _request("truncate_gt_4", "0.11.2", "0.15.1",
             "truncate_prompt_tokens={truncate_prompt:int} cannot be greater than max_length={limit:int}.‖ Please select a "
             "smaller truncation size."),
    _request("truncate_gt_5", "0.16.0", "0.31.0",
             "{_:id}={truncate_prompt:int} cannot be greater than {_:id} - {_:id} = {input_tokens_at_most:int}.‖ Please "
             "request a smaller truncation size."),
    _request("truncate_gt_7", "0.19.1", "0.33.0",
             "truncate_prompt_tokens value is greater than max_model_len. Please request a smaller truncation size.",
             also=("truncate_gt_8",)),
    _request("truncate_gt_9", "0.32.0", "0.33.0",
             "{_:id}={truncate_prompt:int} cannot be greater than {_:id} = {input_tokens_at_most:int}.‖ Please request a "
             "smaller truncation size."),
    _request("truncate_lt1_1", "0.4.3", "0.10.1.1", "truncate_prompt_tokens must be >= 1, got {truncate_prompt:int}"),
    _request("truncate_lt1_2", "0.10.2", "0.16.0",
             "truncate_prompt_tokens must be an integer >= 1 or -1, got {truncate_prompt:int}", also=("truncate_lt1_3",)),
    _request("truncate_mm", "0.31.0", "0.33.0",
             "truncate_prompt_tokens={truncate_prompt:int} would split or drop a(n) {_:word} item, which spans tokens "
             "{_:int} to {_:int} of the {prompt_tokens:int}-token prompt.‖ {_:rest}"),
    _request("max_tokens_lt1_1", "0.2.7", "0.33.0", "max_tokens must be at least 1, got {output_tokens:int}.",
             also=("max_tokens_lt1_3", "max_tokens_lt1_5")),
    _request("max_tokens_lt1_5", "0.28.0", "0.33.0", "{_:id} must be at least 1, got {output_tokens:int}.",
             has=("_tokens must",)),
    _request("max_tokens_lt1_2", "0.11.2", "0.33.0", "max_tokens must be positive"),
    _request("max_tokens_lt1_4", "0.27.1", "0.33.0", "max_tokens must be non-negative", also=("max_tokens_lt1_6",)),
    _request("min_gt_max_1", "0.4.3", "0.33.0",
             "min_tokens must be less than or equal to max_tokens={output_tokens:int}, got {min_tokens:int}.",
             also=("min_gt_max_2",)),
    _request("thinking_budget", "0.31.0", "0.33.0", "thinking.budget_tokens must be less than max_tokens"),
    _request("prompt_empty_1", "0.5.5", "0.7.3", "Prompt cannot be empty"),
    _request("mm_too_many_4", "0.8.5", "0.10.0",
             "At most {_:int} {_:word}(s) may be provided in one request.‖ You can set `--limit-mm-per-prompt` to increase "
             "this limit if the model supports it."),
    _request("mm_too_many_1", "0.6.0", "0.7.3", "At most {_:int} {_:word}(s) may be provided in one request."),
    _request("mm_too_many_2", "0.8.5", "0.10.0",
             "The model only supports at most {_:int} {_:word} items, but you passed {_:int} {_:word} items in the same "
             "prompt."),
    _request("mm_too_many_3", "0.8.5", "0.10.0",
             "You set or defaulted to '{_:text}' in `--limit-mm-per-prompt`, but passed {_:int} {_:word} items in the same "
             "prompt."),
    _request("score_max_tokens", "0.20.2", "0.33.0",
             "{_:id} ({output_tokens:int}) must be less than max_model_len ({limit:int})."),
    _request("n_gt_seqs", "0.22.1", "0.33.0",
             "sampling_params.n must be at most the server's max_num_seqs ({max_num_seqs:int}), got {_:int}."),
    _request("prompt_embeds_len_1", "0.26.0", "0.33.0",
             "prompt_logprobs length ({_:int}) in response '{_:text}' exceeds max_model_len ({limit:int})."),
    _request("prompt_embeds_len_2", "0.26.0", "0.33.0",
             "token_ids length ({_:int}) in choice {_:int} exceeds max_model_len ({limit:int})."),
    _request("prompt_embeds_len_3", "0.26.0", "0.33.0",
             "logprobs.content length ({_:int}) in choice {_:int} exceeds max_model_len ({limit:int})."),
    _request("prompt_embeds_len_4", "0.31.0", "0.33.0",
             "prompt_token_ids length ({prompt_tokens:int}) plus output_token_ids length ({_:int}) plus delta ({_:int}) "
             "exceeds max_model_len ({limit:int})."),
    _request("prompt_embeds_len_5", "0.32.0", "0.33.0",
             "prompt_token_ids length ({prompt_tokens:int}) exceeds max_model_len ({limit:int})."),
    _request("queue_overflow", "0.29.0", "0.33.0",
             "The engine is currently busy and cannot accept new requests. Please try again later or on a different "
             "instance."),
)  # fmt: skip

# argparse refuses an option before anything is logged.
USAGE_ERROR = Found(
    _start("usage_error", _F.CONFIGURATION, "0.2.7", "0.32.0", ""),
    {"cause": str(_F.CONFIGURATION)},
    whole=True,
)
