"""What vLLM and its web server write to the log about length, by release (0.2.7-0.33.0).

First and last are releases that were read and hold the text; the true edge may lie in an unread release
between neighbours. Rows without a release range of their own (`*`) were seen in recordings.
"""

from __future__ import annotations

from vllm_length_exporter.vllm.events import EventName
from vllm_length_exporter.vllm.messages import Kind, Message

_LOG = Kind.LOG
_E = EventName


def _log(
    id_: str, event: EventName, first: str, last: str, template: str, level: str = "INFO", **more: object
) -> Message:
    return Message(id_, _LOG, event, template, first, last, level, **more)  # type: ignore[arg-type]


_CONFIG = "with config: {:config}"
_V0_ONLY = {"generation": "V0"}
_V1_ONLY = {"generation": "V1"}
_LOW_MEMORY = "It reduces the GPU memory footprint and boosts the performance. "
_NO_SCALE = "Meanwhile, it may cause accuracy drop without a proper scaling factor"
_TURN_OFF = "Turning off hybrid kv cache manager because "
_TRANSFER = (
    "`--kv-transfer-config` is set. This will reduce the performance of vLLM on LLMs with sliding window "
    "attention or Mamba attention. If you are a developer of kv connector, please consider supporting hybrid "
    "kv cache manager for your connector by making sure your connector is a subclass of `SupportsHMA` defined "
    "in kv_connector/v1/base.py"
)
_SIZE = "KV cache size: {capacity_tokens:int} tokens"
_CONCURRENCY = (
    "Maximum concurrency for {max_model_len:int} tokens per request: {full_length_concurrency:num}x"
)
_ITERATION = (
    "[[Engine {engine:engine}: ]]Iteration({iteration:int}): {_:int} context requests, "
    "{_:int} context tokens, {_:int} generation requests, {_:int} generation tokens, "
    "iteration elapsed time: {_:num} ms"
)
ABOVE_WINDOW = (
    "User-specified max_model_len ({requested:int}) is greater than the derived max_model_len "
    "({window_key:name}={window:int}[[ or model_max_length={model_max_length:maybe}]] in model's config.json)."
)

START = (
    _log("using_max_model_len", _E.MODEL_LENGTH, "0.9.2", "0.33.0", "Using max model len {max_model_len:int}"),
    # The V2 model runner cannot stop speculating beyond what the draft model takes.
    _log("draft_lt_target", _E.DRAFT_LIMIT, "0.33.0", "0.33.0",
         "The draft model's max_model_len ({max_model_len:int}) is smaller than the target model's "
         "({reduced_from:int})‖ and the V2 model runner can't skip speculation for longer sequences; reducing "
         "max_model_len to {_:int}.", "WARNING"),
    _log("non_default_args", _E.ARGUMENTS, "0.9.0.1", "0.33.0", "non-default args: {:arguments}"),
    # All arguments, not only those given: what is None there is absent here.
    _log("args_namespace", _E.ARGUMENTS, "0.4.3", "0.8.5", "args: Namespace({:namespace})"),
    _log("api_server_version", _E.VERSION, "0.4.3", "0.14.1", "vLLM API server version {version:word}"),
    # In place of the logo, where the log is JSON.
    _log("server_version", _E.VERSION, "0.32.0", "0.33.0",
         "vLLM server version {version:word}, serving model {_:rest}"),
    _log("logo_version", _E.VERSION, "0.15.1", "0.33.0", "{_:logo}version {version:word}", within=""),
    _log("api_server_starting_1", _E.OTHER, "0.7.3", "0.9.0.1", "Starting vLLM API server on http://{_:word}",
         also=("api_server_starting_2",)),
    _log("api_server_starting_2", _E.OTHER, "0.8.5", "0.9.0.1", "Starting vLLM API server on https://{_:word}"),
    _log("api_server_starting_3", _E.OTHER, "0.9.1", "0.17.1", "Starting vLLM API server {_:int} on {_:word}"),
    _log("api_server_starting_4", _E.OTHER, "0.18.1", "0.33.0", "Starting vLLM server on {_:word}"),
    # 0.2.7-0.6.3 list the configuration in the call itself; which keys it has tells the release.
    _log("init_engine_1", _E.ENGINE_CONFIG, "0.2.7", "0.2.7", f"Initializing an LLM engine {_CONFIG}",
         fixed=_V0_ONLY, lacks=("kv_cache_dtype=",)),
    _log("init_engine_2", _E.ENGINE_CONFIG, "0.3.3", "0.3.3", f"Initializing an LLM engine {_CONFIG}",
         fixed=_V0_ONLY, has=("kv_cache_dtype=",)),
    _log("init_engine_3", _E.ENGINE_CONFIG, "0.4.3", "0.4.3",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         fixed=_V0_ONLY, has=("rope_scaling=",), lacks=("rope_theta=",)),
    _log("init_engine_4", _E.ENGINE_CONFIG, "0.5.5", "0.5.5",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         fixed=_V0_ONLY, has=("rope_theta=",), lacks=("override_neuron_config=",)),
    _log("init_engine_5", _E.ENGINE_CONFIG, "0.6.0", "0.6.0",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         fixed=_V0_ONLY, has=("rope_theta=", "override_neuron_config="), lacks=("use_cached_outputs=",)),
    _log("init_engine_6", _E.ENGINE_CONFIG, "0.6.3", "0.6.3",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         fixed=_V0_ONLY, has=("rope_theta=", "override_neuron_config=", "use_cached_outputs=")),
    _log("init_engine_8", _E.ENGINE_CONFIG, "0.6.6", "0.7.0",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         fixed=_V0_ONLY, has=("use_cached_outputs=",), lacks=("rope_theta=",)),
    # V1 was on trial; a line that was cut looks the same, so the generation stays open.
    _log("init_engine_7", _E.ENGINE_CONFIG, "0.6.6", "0.7.0",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}",
         has=("enable_prefix_caching=",), lacks=("use_cached_outputs=", "rope_theta=", "rope_scaling=")),
    _log("init_engine_9", _E.ENGINE_CONFIG, "0.7.3", "0.33.0",
         f"Initializing a V1 LLM engine (v{{version:word}}) {_CONFIG}", fixed=_V1_ONLY),
    _log("init_engine_10", _E.ENGINE_CONFIG, "0.7.3", "0.10.2",
         f"Initializing a V0 LLM engine (v{{version:word}}) {_CONFIG}", fixed=_V0_ONLY),
    # A line that was cut before the keys that tell the engine's generation.
    _log("init_engine_cut", _E.ENGINE_CONFIG, "0.4.3", "0.7.0",
         f"Initializing an LLM engine (v{{version:word}}) {_CONFIG}"),
    _log("chunked_prefill_1", _E.SCHEDULER_LIMITS, "0.5.5", "0.33.0",
         "Chunked prefill is enabled with max_num_batched_tokens={max_num_batched_tokens:int}.",
         also=("chunked_prefill_2",)),
    _log("default_batched_tokens", _E.SCHEDULER_LIMITS, "0.11.2", "0.33.0",
         "Defaulting max_num_batched_tokens to {max_num_batched_tokens:int} for {_:text} usage context.", "DEBUG"),
    _log("default_num_seqs", _E.SCHEDULER_LIMITS, "0.11.2", "0.33.0",
         "Defaulting max_num_seqs to {max_num_seqs:int} for {_:text} usage context.", "DEBUG"),
    _log("batched_gt_1", _E.SCHEDULER_LIMITS, "0.9.0.1", "0.9.1",
         "max_num_batched_tokens ({max_num_batched_tokens:int}) exceeds max_num_seqs* max_model_len ({_:int}). "
         "This may lead to unexpected behavior.", "WARNING"),
    _log("batched_gt_2", _E.SCHEDULER_LIMITS, "0.9.2", "0.33.0",
         "max_num_batched_tokens ({max_num_batched_tokens:int}) exceeds max_num_seqs * max_model_len ({_:int}). "
         "This may lead to unexpected behavior.", "WARNING"),
    _log("no_len_keys_1", _E.WINDOW, "0.2.7", "0.13.0",
         "The model's config.json does not contain any of the following keys to determine the original maximum "
         "length of the model: {_:text}. Assuming the model's maximum length is {assumed:int}.", "WARNING"),
    _log("no_len_keys_2", _E.WINDOW, "0.14.1", "0.33.0",
         "The model's config.json does not contain any of the keys to determine the original maximum length of "
         "the model. Assuming the model's maximum length is {assumed:int}.", "WARNING"),
    _log("allow_long_1", _E.WINDOW, "0.5.5", "0.10.1.1",
         ABOVE_WINDOW + "‖[[ This may lead to incorrect model outputs or CUDA errors.]] Make sure the value is "
         "correct and within the model context size.", "WARNING"),
    _log("allow_long_2", _E.WINDOW, "0.10.2", "0.33.0", ABOVE_WINDOW + "‖ {_:text}", "WARNING"),
    _log("allow_long_3", _E.WINDOW, "0.12.0", "0.33.0", ABOVE_WINDOW, "WARNING"),
    _log("sw_cap_1", _E.OTHER, "0.7.0", "0.11.0",
         "{_:word} has interleaved attention, which is currently not supported by the XFORMERS backend. Disabling "
         "sliding window and capping the max length to the sliding window size ({sliding_window:int}).", "WARNING",
         also=("sw_cap_2",)),
    _log("sw_cap_2", _E.OTHER, "0.7.3", "0.11.0",
         "{_:word} has interleaved attention, which is currently not supported by the {_:word} backend. Disabling "
         "sliding window and capping the max length to the sliding window size ({sliding_window:int}).", "WARNING"),
    _log("long_ctx_warn_1", _E.OTHER, "0.5.5", "0.7.3",
         "The model has a long context length ({max_model_len:int}). This may cause OOM errors during the initial "
         "memory profiling phase, or result in low performance due to small KV cache space. Consider setting "
         "--max-model-len to a smaller value.", "WARNING"),
    _log("long_ctx_warn_2", _E.OTHER, "0.8.5", "0.10.2",
         "The model has a long context length ({max_model_len:int}). This may causeOOM during the initial memory "
         "profiling phase, or result in low performance due to small KV cache size. Consider setting "
         "--max-model-len to a smaller value.", "WARNING"),
    _log("init_engine_took_1", _E.OTHER, "0.6.6", "0.19.1",
         "init engine (profile, create kv cache, warmup model) took {_:num} seconds", also=("init_engine_took_2",)),
    _log("init_engine_took_3", _E.OTHER, "0.20.2", "0.33.0",
         "init engine (profile, create kv cache, warmup model) took {_:num} s (compilation: {_:num} s — "
         "language_model: {_:num} s, encoder: {_:num} s)"),
    _log("init_engine_took_4", _E.OTHER, "0.20.2", "0.33.0",
         "init engine (profile, create kv cache, warmup model) took {_:num} s (compilation: {_:num} s)"),
    _log("init_engine_took_5", _E.OTHER, "0.20.2", "0.33.0",
         "init engine (profile, create kv cache, warmup model) took {_:num} s"),
)  # fmt: skip

CAPACITY = (
    _log("available_kv_memory_1", _E.KV_MEMORY, "0.9.1", "0.33.0",
         "Available KV cache memory: {available_bytes:gib} GiB", also=("available_kv_memory_2",)),
    # The CPU backend's own words; its kv_too_small error names the same figure as available.
    _log("cpu_kv_memory_set", _E.KV_MEMORY, "0.22.1", "0.33.0",
         "Explicitly set ({available_bytes:gib}/{_:num}) GiB for KV cache on node {_:int}."),
    _log("cpu_kv_memory_auto", _E.KV_MEMORY, "0.22.1", "0.33.0",
         "Auto set ({available_bytes:gib}/{_:num}) GiB for KV cache on node {_:int}‖, with {_:num} GiB requested "
         "memory for the worker. {_:num} GiB memory was consumed by non-kv usages."),
    _log("reserved_kv_memory", _E.KV_MEMORY, "0.10.2", "0.33.0",
         "Initial free memory {_:num} GiB, reserved {available_bytes:gib} GiB memory for KV Cache as specified by "
         "kv_cache_memory_bytes config‖{_:rest}", fixed={"fixed_by_argument": True}),
    _log("startup_plan", _E.KV_MEMORY, "0.26.0", "0.33.0",
         "Applying persisted startup plan (fingerprint {_:text}): kv_cache_memory_bytes={available_bytes:int} "
         "({_:num} GiB), recorded free-memory baseline {_:num} GiB, current {_:num} GiB. Memory profiling will be "
         "skipped."),
    _log("v0_memory_profile", _E.OTHER, "0.6.6", "0.10.2", "Memory profiling takes {_:num} seconds‖{_:rest}",
         continued=True),
    _log("v0_memory_profile_rest", _E.KV_MEMORY, "0.6.6", "0.10.2",
         "model weights take {_:num}GiB; non_torch_memory takes {_:num}GiB; PyTorch activation peak memory takes "
         "{_:num}GiB; the rest of the memory reserved for KV Cache is {available_bytes:gib}GiB.",
         within="Memory profiling takes "),
    _log("hpu_kv_memory", _E.KV_MEMORY, "0.5.5", "0.9.2",
         "Free device memory: {_:num} GiB, {_:num} GiB usable (gpu_memory_utilization={_:num}), {_:num} GiB "
         "reserved for HPUGraphs (VLLM_GRAPH_RESERVED_MEM={_:num}), {available_bytes:gib} GiB reserved for KV cache"),
    _log("kv_cache_size_1", _E.KV_CAPACITY, "0.8.5", "0.27.1", f"GPU {_SIZE}", also=("kv_cache_size_2",),
         fixed={"device": "GPU"}),
    _log("kv_cache_size_3", _E.KV_CAPACITY, "0.28.0", "0.33.0", f"GPU {_SIZE}, {_CONCURRENCY}",
         fixed={"device": "GPU"}, also=("kv_cache_size_4",)),
    _log("kv_cache_size_4", _E.KV_CAPACITY, "0.30.0", "0.33.0", f"{{device:device}} {_SIZE}, {_CONCURRENCY}"),
    _log("max_concurrency_1", _E.KV_CAPACITY, "0.6.3", "0.27.1", _CONCURRENCY, also=("max_concurrency_2",)),
    _log("num_blocks_1", _E.KV_BLOCKS, "0.2.7", "0.6.6",
         "# GPU blocks: {num_gpu_blocks:int}, # CPU blocks: {num_cpu_blocks:int}"),
    # The CPU backend's blocks take the place of the GPU's.
    _log("num_blocks_2", _E.KV_BLOCKS, "0.4.3", "0.6.6", "# CPU blocks: {num_gpu_blocks:int}"),
    _log("num_blocks_3", _E.KV_BLOCKS, "0.5.5", "0.6.6",
         "# TPU blocks: {num_gpu_blocks:int}, # CPU blocks: {num_cpu_blocks:int}"),
    _log("num_blocks_4", _E.KV_BLOCKS, "0.6.6", "0.7.3", "# GPU blocks: {num_gpu_blocks:int}"),
    _log("num_blocks_5", _E.KV_BLOCKS, "0.6.6", "0.6.6",
         "# HPU blocks: {num_gpu_blocks:int}, # CPU blocks: {num_cpu_blocks:int}"),
    _log("num_blocks_6", _E.KV_BLOCKS, "0.7.0", "0.11.0",
         "# {device:device} blocks: {num_gpu_blocks:int}, # CPU blocks: {num_cpu_blocks:int}"),
    # The sum over all data-parallel engines, so it is no engine's number of blocks.
    _log("cache_config_info_init_1", _E.KV_BLOCKS, "0.9.0.1", "0.9.0.1",
         "vllm cache_config_info with initialization after num_gpu_blocks is: {num_gpu_blocks_total:int}"),
    _log("cache_config_info_init_2", _E.KV_BLOCKS, "0.9.1", "0.33.0",
         "Engine {engine:engine}: vllm cache_config_info with initialization after num_gpu_blocks is: "
         "{num_gpu_blocks_total:int}", also=("cache_config_info_init_3",)),
    _log("cache_config_info_init_4", _E.KV_BLOCKS, "0.11.2", "0.33.0",
         "{num_engines:int} Engines: vllm cache_config_info with initialization after num_gpu_blocks is: "
         "{num_gpu_blocks_total:int}"),
    _log("num_blocks_override", _E.BLOCKS_OVERRIDE, "0.4.3", "0.33.0",
         "Overriding num_gpu_blocks={blocks_before:int} with num_gpu_blocks_override={blocks_after:int}"),
    _log("cp_multiply_1", _E.CAPACITY_TRAP, "0.10.2", "0.11.2",
         "Multiplying the GPU KV cache size by the dcp_world_size {context_parallel_size:int}."),
    _log("cp_multiply_2", _E.CAPACITY_TRAP, "0.12.0", "0.19.1",
         "Multiplying the GPU KV cache size by the cp_world_size {context_parallel_size:int} (pcp_world_size {_:int} "
         "* dcp_world_size {_:int})."),
    _log("auto_fit_1", _E.AUTO_FIT, "0.14.1", "0.33.0",
         "Auto-fit max_model_len: attention-free model, using derived max_model_len={max_model_len:int}"),
    _log("auto_fit_2", _E.AUTO_FIT, "0.14.1", "0.31.0",
         "Auto-fit max_model_len: full model context length {max_model_len:int} fits in available GPU memory"),
    _log("auto_fit_3", _E.AUTO_FIT, "0.14.1", "0.31.0",
         "Auto-fit max_model_len: reduced from {max_model_len_before:int} to {max_model_len:int} to fit in available "
         "GPU memory ({available_bytes:gib} GiB available for KV cache)"),
    _log("auto_fit_4", _E.AUTO_FIT, "0.32.0", "0.33.0",
         "Auto-fit max_model_len: full model context length {max_model_len:int} fits in available KV cache memory"
         "‖ ({available_bytes:gib} GiB {_:name}[[ + {available_host_bytes:gib} GiB host]])"),
    _log("auto_fit_5", _E.AUTO_FIT, "0.32.0", "0.33.0",
         "Auto-fit max_model_len: reduced from {max_model_len_before:int} to {max_model_len:int} to fit in available "
         "KV cache memory‖ ({available_bytes:gib} GiB {_:name}[[ + {available_host_bytes:gib} GiB host]])"),
    _log("updated_max_model_len", _E.AUTO_FIT, "0.14.1", "0.33.0", "Updated max_model_len to {max_model_len:int}",
         "DEBUG"),
    _log("attn_block_size_hybrid_1", _E.BLOCK_SIZE, "0.10.2", "0.33.0",
         "Setting attention block size to {block_size:int} tokens to ensure that attention page size is >= mamba "
         "page size.", fixed={"hybrid": True}),
    _log("attn_block_size_hybrid_2", _E.BLOCK_SIZE, "0.25.1", "0.33.0",
         "Setting attention block size to {block_size:int} tokens so the quantized primary KV page covers the "
         "higher-precision padded-spec page."),
    _log("kv_layout_block_forced_1", _E.BLOCK_SIZE, "0.8.5", "0.17.1",
         "Forcing kv cache block size to {block_size:int} for ‖FlashMLA backend."),
    _log("kv_layout_block_forced_2", _E.BLOCK_SIZE, "0.10.0", "0.10.0",
         "Forcing kv cache block size to {block_size:int} for ‖CUTLASS_MLA_VLLM_V1 backend."),
    _log("kv_layout_block_forced_3", _E.BLOCK_SIZE, "0.10.1.1", "0.17.1",
         "Forcing kv cache block size to {block_size:int} for ‖CUTLASS_MLA backend."),
    _log("kv_layout_block_forced_4", _E.BLOCK_SIZE, "0.10.2", "0.17.1",
         "Forcing kv cache block size to {block_size:int} for ‖FlashInferMLA backend."),
    _log("kv_layout_block_forced_5", _E.BLOCK_SIZE, "0.11.0", "0.17.1",
         "Forcing kv cache block size to {block_size:int} for ‖FlashMLASparse backend."),
    _log("kv_layout_block_forced_6", _E.BLOCK_SIZE, "0.13.0", "0.22.1",
         "[ROCM_AITER_UNIFIED_ATTN]: Setting kv cache block size to {block_size:int}.", "WARNING",
         also=("kv_layout_block_forced_9",)),
    _log("kv_layout_block_forced_7", _E.BLOCK_SIZE, "0.17.1", "0.17.1",
         "Forcing kv cache block size to {block_size:int} for ‖FlashInferMLASparse backend."),
    _log("kv_layout_block_forced_8", _E.BLOCK_SIZE, "0.18.1", "0.30.0",
         "Setting kv cache block size to {block_size:int} for {_:word} backend."),
    _log("kv_layout_block_forced_10", _E.BLOCK_SIZE, "0.31.0", "0.33.0",
         "Setting kv cache block size to {block_size:int} for {_:text} backend(s)."),
    _log("hma_disabled_1", _E.CAPACITY_TRAP, "0.9.1", "0.33.0",
         "Hybrid KV cache manager is disabled for this hybrid model‖, This means we do not enable any optimizations "
         "for saving KV cache memory (e.g., dropping the KV cache outside the sliding window). The compute of layers "
         "like sliding window is still saved.", "WARNING"),
    _log("hma_disabled_2", _E.CAPACITY_TRAP, "0.11.2", "0.12.0", f"{_TURN_OFF}‖{_TRANSFER}.", "WARNING"),
    _log("hma_disabled_3", _E.CAPACITY_TRAP, "0.13.0", "0.21.0",
         f"{_TURN_OFF}‖{_TRANSFER} and use --no-disable-hybrid-kv-cache-manager to start vLLM.", "WARNING"),
    _log("hma_disabled_4", _E.CAPACITY_TRAP, "0.22.1", "0.22.1",
         f"{_TURN_OFF}‖connector {{_:word}} does not subclass `SupportsHMA`. This will reduce performance on models "
         "with sliding window or Mamba attention. See kv_connector/v1/base.py for details.", "WARNING"),
    _log("hma_disabled_5", _E.CAPACITY_TRAP, "0.23.0", "0.33.0",
         f"{_TURN_OFF}‖`--kv-transfer-config` selects a KV connector that does not support it. Impact: {{_:rest}}",
         "WARNING"),
    _log("hma_disabled_6", _E.CAPACITY_TRAP, "0.27.1", "0.33.0",
         "KV cache page sizes cannot be unified; treating sliding-window layers as full attention for cache "
         "allocation. Sliding-window attention compute is unchanged.", "WARNING"),
    _log("padding_layers", _E.CAPACITY_TRAP, "0.9.1", "0.33.0",
         "Add {padding_layers:int} padding layers, may waste at most {waste_ratio:percent}% KV cache memory",
         "WARNING"),
    _log("kv_dtype_1", _E.OTHER, "0.3.3", "0.3.3",
         f"Using fp8_e5m2 data type to store kv cache. {_LOW_MEMORY}But it may cause slight accuracy drop. Currently "
         "we only support fp8 without scaling factors and make e5m2 as a default format.",
         fixed={"kv_cache_dtype": "fp8_e5m2"}),
    _log("kv_dtype_2", _E.OTHER, "0.4.3", "0.33.0",
         f"Using fp8 data type to store kv cache. {_LOW_MEMORY}{_NO_SCALE}", fixed={"kv_cache_dtype": "fp8"},
         also=("kv_dtype_5",)),
    _log("kv_dtype_3", _E.OTHER, "0.10.0", "0.19.1",
         f"Using fp8 data type to store kv cache. {_LOW_MEMORY}{_NO_SCALE}.", fixed={"kv_cache_dtype": "fp8"}),
    _log("kv_dtype_4", _E.OTHER, "0.20.2", "0.33.0",
         f"Using {{kv_cache_dtype:word}} data type to store kv cache. {_LOW_MEMORY}Dynamic per-token-head scales will "
         "be computed at runtime."),
    _log("kv_dtype_5", _E.OTHER, "0.20.2", "0.33.0",
         f"Using {{kv_cache_dtype:word}} data type to store kv cache. {_LOW_MEMORY}{_NO_SCALE}"),
    _log("kv_offload_cpu_blocks_1", _E.OTHER, "0.19.1", "0.27.1",
         "SimpleCPUOffloadWorker: {_:int} unique GPU KV tensors, allocating {_:int} CPU blocks ({_:num} GB)"),
    _log("kv_offload_cpu_blocks_2", _E.OTHER, "0.19.1", "0.27.1",
         "SimpleCPUOffloadScheduler: Allocating {_:int} CPU blocks ({_:num} GB, mode={_:word})"),
    _log("kv_offload_cpu_blocks_9", _E.OTHER, "0.28.0", "0.33.0",
         "SimpleCPUOffloadConnector: role={_:word}, per_rank={_:num} GB, world_size={_:int}, mode={_:word}, "
         "backend={_:word}, disk={_:rest}"),
    _log("kv_offload_cpu_blocks_3", _E.OTHER, "0.19.1", "0.27.1",
         "SimpleCPUOffloadConnector: role={_:word}, per_rank={_:num} GB, world_size={_:int}, mode={_:word}"),
    _log("kv_offload_cpu_blocks_6", _E.OTHER, "0.28.0", "0.33.0",
         "SimpleCPUOffloadWorker [DISK]: {_:int} tensors, {_:int} disk slots ({_:num} GB)"),
    _log("kv_offload_cpu_blocks_7", _E.OTHER, "0.28.0", "0.33.0",
         "SimpleCPUOffloadWorker [CPU]: {_:int} tensors, {_:int} CPU blocks ({_:num} GB)"),
    _log("kv_offload_cpu_blocks_8", _E.OTHER, "0.28.0", "0.33.0",
         "SimpleCPUOffloadScheduler: Allocating {_:int} offload blocks ({_:num} GB, mode={_:word}, backend={_:word})"),
)  # fmt: skip

_RATES = "Avg prompt throughput: {_:num} tokens/s, Avg generation throughput: {_:num} tokens/s, "

SERVING = (
    # V0: with "Pending" and the CPU's share; the final stop came with 0.4.3.
    _log("stats_v0_2", _E.STATISTICS, "0.4.3", "0.10.2", _RATES + "{:statistics}", also=("stats_v0_late",),
         has=("Pending: ", "%."), fixed=_V0_ONLY),
    _log("stats_v0_1", _E.STATISTICS, "0.2.7", "0.3.3", _RATES + "{:statistics}", has=("Pending: ",), lacks=("%.",),
         fixed=_V0_ONLY),
    _log("stats_v1_plain", _E.STATISTICS, "0.7.3", "0.7.3", _RATES + "{:statistics}", has=("Waiting: ",),
         fixed=_V1_ONLY),
    _log("stats_v1_engine", _E.STATISTICS, "0.8.5", "0.33.0", "Engine {engine:engine}: " + _RATES + "{:statistics}",
         has=(", GPU KV cache usage: ", "%, Prefix cache hit rate: "), also=("stats_v1_parts",),
         lacks=("Deferred: ", "KV fetch: ", "Preemptions: ", "Corrupted: ", "External prefix", "MM cache"),
         fixed=_V1_ONLY),
    _log("stats_v1_parts", _E.STATISTICS, "0.11.2", "0.33.0", "Engine {engine:engine}: " + _RATES + "{:statistics}",
         fixed=_V1_ONLY),
    _log("stats_v1_aggregated", _E.STATISTICS, "0.11.2", "0.33.0",
         "{num_engines:int} Engines Aggregated: " + _RATES + "{:mean}", fixed=_V1_ONLY,
         also=("stats_v1_parts",)),
    _log("stats_v0_prefix", _E.OTHER, "0.5.5", "0.10.2",
         "Prefix cache hit rate: GPU: {_:num}%, CPU: {_:num}%"),
    _log("iteration_details_1", _E.OTHER, "0.26.0", "0.33.0", _ITERATION + "{_:rest}, GPU KV cache usage: {_:num}%"
         "{_:rest}", also=("iteration_details_2",)),
    _log("iteration_details_2", _E.OTHER, "0.30.0", "0.33.0", _ITERATION + "{_:rest} KV cache usage: {_:num}%{_:rest}"),
    _log("preempt_v0", _E.PREEMPTED, "0.4.3", "0.10.2",
         "Sequence group {_:word} is preempted by {mode:word} mode because there is not enough KV cache space."
         "‖ This can affect the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to "
         "provide more KV cache memory. total_num_cumulative_preemption={preemptions:int}", "WARNING"),
    _log("preempt_v0_count", _E.PREEMPTED, "0.5.5", "0.9.2",
         "Sequence group {_:word} is preempted by {mode:word} mode because there is not enough KV cache space."
         "‖ This can affect the end-to-end performance. Increase gpu_memory_utilization or tensor_parallel_size to "
         "provide more KV cache memory. total_cumulative_preemption_cnt={preemptions:int}", "WARNING"),
    _log("v0_fail_no_blocks", _E.REFUSED, "0.4.3", "0.10.2",
         "Failing the request {_:word} because there's not enough kv cache blocks to run the entire sequence.",
         "WARNING"),
    _log("v0_prompt_too_long_1", _E.REFUSED, "0.2.7", "0.10.2",
         "Input prompt ({prompt_tokens:int} tokens) is too long and exceeds limit of {limit:int}", "WARNING"),
    _log("v0_prompt_too_long_2", _E.REFUSED, "0.2.7", "0.6.0",
         "Input prompt ({prompt_tokens:int} tokens) is too long and exceeds the capacity of block_manager", "WARNING"),
    _log("v0_prompt_too_long_3", _E.REFUSED, "0.6.3", "0.10.2",
         "Input prompt ({prompt_tokens:int} tokens) + lookahead slots ({_:int}) is too long and exceeds the capacity "
         "of block_manager", "WARNING"),
    _log("reject_log_preprocess", _E.OTHER, "0.6.6", "0.17.1", "Error in preprocessing prompt inputs", "ERROR",
         head=True, client=True),
    _log("reject_log_exc_1", _E.OTHER, "0.18.1", "0.33.0", "Engine Exception caught. Request id: {_:rest}", "ERROR",
         head=True, client=True),
    _log("reject_log_exc_2", _E.OTHER, "0.18.1", "0.33.0", "Exception caught. Request id: {_:rest}", "ERROR",
         head=True, client=True, also=("reject_log_exc_5",)),
    _log("reject_log_exc_3", _E.OTHER, "0.18.1", "0.33.0", "HTTPException caught. Request id: {_:rest}", "ERROR",
         head=True, client=True),
    _log("reject_log_exc_4", _E.OTHER, "0.18.1", "0.33.0", "RequestValidationError caught. Request id: {_:rest}",
         "ERROR", head=True, client=True),
    _log("reject_log_debug", _E.OTHER, "0.19.1", "0.33.0", "create_error_response called with {_:name}: {_:rest}",
         "DEBUG", client=True),
    _log("stream_err", _E.OTHER, "0.6.6", "0.33.0", "Error in chat completion stream generator.", "ERROR", head=True,
         client=True),
    _log("embed_chunked", _E.OTHER, "0.10.1.1", "0.17.1",
         "Input length {_:int} exceeds max_position_embeddings {_:int}, will use chunked processing"),
    _log("queue_reject_1", _E.OTHER, "0.29.0", "0.33.0",
         "Max queued tokens reached - rejecting request {_:word} (current_tokens={_:int}, max={_:int}).",
         also=("queue_reject_2",)),
    _log("added_request", _E.OTHER, "0.5.5", "0.33.0", "Added request {_:rest}", client=True),
    _log("received_request_1", _E.OTHER, "0.2.7", "0.2.7", "Received request {_:rest}", client=True,
         has=(", sampling params: ", ", prompt token ids: ")),
    _log("received_request_2", _E.OTHER, "0.3.3", "0.3.3", "Received request {_:rest}", client=True,
         has=(", prefix_pos: ", "sampling_params: ")),
    _log("received_request_4", _E.OTHER, "0.5.5", "0.8.5", "Received request {_:rest}", client=True,
         has=(", prompt_token_ids: ", ", prompt_adapter_request: "), lacks=(", prompt_embeds shape: ",)),
    _log("received_request_5", _E.OTHER, "0.9.0.1", "0.9.2", "Received request {_:rest}", client=True,
         has=(", prompt_embeds shape: ", ", prompt_adapter_request: ")),
    _log("received_request_6", _E.OTHER, "0.10.0", "0.11.0", "Received request {_:rest}", client=True,
         has=(", prompt_embeds shape: ",)),
    _log("received_request_3", _E.OTHER, "0.4.3", "0.4.3", "Received request {_:rest}", client=True,
         has=(", params: ", ", prompt_token_ids: ")),
    _log("received_request_7", _E.OTHER, "0.11.2", "0.33.0", "Received request {_:rest}", client=True),
    _log("finished_request", _E.OTHER, "0.2.7", "0.10.2", "Finished request {_:rest}", client=True),
    _log("aborted_request_1", _E.OTHER, "0.2.7", "0.10.2", "Aborted request {_:rest}", client=True),
    _log("aborted_request_2", _E.OTHER, "0.10.1.1", "0.33.0", "Aborted request(s) {_:rest}", client=True),
    _log("reset_prefix_1", _E.OTHER, "0.7.0", "0.33.0", "Successfully reset prefix cache"),
    _log("reset_prefix_2", _E.OTHER, "0.7.0", "0.33.0",
         "Failed to reset prefix cache because some blocks ({_:int}) are not freed yet", "WARNING"),
    _log("reset_prefix_3", _E.OTHER, "0.7.0", "0.33.0", "Resetting prefix cache..."),
    _log("reset_prefix_4", _E.OTHER, "0.8.5", "0.11.0", "Resetting prefix cache with specific {_:int}..."),
)  # fmt: skip

END = (
    _log("shutdown_http", _E.SHUTDOWN, "0.6.6", "0.32.0", "Shutting down FastAPI HTTP server."),
    _log("shutdown_signal", _E.SHUTDOWN, "0.18.1", "0.33.0",
         "[shutdown] {_:text}: trigger received signal={signal:name}", fixed={"asked": True}),
    _log("shutdown_triggered", _E.SHUTDOWN, "0.18.1", "0.33.0", "[shutdown] API server: shutdown triggered"),
    _log("shutdown_api", _E.SHUTDOWN, "0.18.1", "0.33.0", "[shutdown] API server: shutting down FastAPI HTTP server"),
    _log("engine_start_failed", _E.OTHER, "0.8.5", "0.33.0", "EngineCore failed to start.", "ERROR", head=True),
    _log("worker_start_failed", _E.OTHER, "0.8.5", "0.33.0", "WorkerProc failed to start.", "ERROR", head=True),
    _log("engine_fatal", _E.ENGINE_DIED, "0.8.5", "0.33.0", "EngineCore encountered a fatal error.", "ERROR"),
    _log("engine_proc_died", _E.ENGINE_DIED, "0.9.0.1", "0.33.0",
         "Engine core proc {_:word} died unexpectedly‖, shutting down client.", "ERROR"),
    _log("worker_proc_died", _E.ENGINE_DIED, "0.10.0", "0.33.0", "Worker proc {_:word} died unexpectedly‖{_:rest}",
         "ERROR"),
    _log("output_handler_failed", _E.OTHER, "0.8.5", "0.33.0", "AsyncLLM output_handler failed.", "ERROR", head=True),
    _log("v0_engine_loop_dead", _E.ENGINE_DIED, "0.6.6", "0.10.2", "Engine background task failed", "ERROR"),
)  # fmt: skip

# uvicorn writes these without a file's name, or under its own logger in JSON.
UVICORN = (
    _log("startup_complete", _E.STARTED, "0.2.7", "0.33.0", "Application startup complete."),
    # uvicorn's access log; the reason phrase is missing in JSON.
    _log("uvicorn_access", _E.ACCESS, "0.2.7", "0.33.0",
         '{_:address} - "{method:method} {path:word} HTTP/{_:num}" {status:int}[[ {_:rest}]]'),
    _log("uvicorn_asgi_exception", _E.OTHER, "0.18.1", "0.26.0", "Exception in ASGI application", "ERROR", head=True,
         client=True),
    _log("shutdown_uvicorn", _E.SHUTDOWN, "0.2.7", "0.33.0", "Shutting down"),
    _log("shutdown_complete", _E.SHUTDOWN, "0.2.7", "0.33.0", "Application shutdown complete."),
    _log("shutdown_finished", _E.SHUTDOWN, "0.2.7", "0.32.0", "Finished server process [{_:int}]"),
)  # fmt: skip

LOG = (*START, *CAPACITY, *SERVING, *END)
