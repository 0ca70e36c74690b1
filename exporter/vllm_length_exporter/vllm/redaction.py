"""A log without what clients wrote and without secrets, that tells the same.

Nothing is looked for and cut out: a line is written anew from what is known, and all else of it becomes
`[123 characters]`. Known are vLLM's header, the words of a row of the catalogue, its numbers, the few texts
below, the shape of a traceback, and an access line with a path of vLLM's. What operators named (models,
adapters) stays where it stands in the lines of a start, which no client can have written.
"""

from __future__ import annotations

import builtins
import json
import re
from collections import OrderedDict

from vllm_length_exporter.vllm.envelopes import JsonRecord, peel
from vllm_length_exporter.vllm.lifecycle import ECHOES, Phase
from vllm_length_exporter.vllm.lines import LONGEST_PIECES, LONGEST_PROMPT, LogParser
from vllm_length_exporter.vllm.messages import Found, Index, rewritten
from vllm_length_exporter.vllm.messages_errors import REQUEST_ERRORS, STARTUP_ERRORS
from vllm_length_exporter.vllm.messages_log import LOG, UVICORN
from vllm_length_exporter.vllm.records import TRACEBACK, Header, taken_apart
from vllm_length_exporter.vllm.redacted_values import kept_value, placeholder, untrusted_value

LAYERS = 2  # container runtimes round one another
NAMES_KEPT = 1024  # of files and processes that are told apart by a number

_LOG, _UVICORN = Index(LOG), Index(UVICORN)
_ERRORS = (Index(STARTUP_ERRORS), Index(REQUEST_ERRORS))
_PROCESSES = re.compile(
    r"(?:APIServer|ApiServer|EngineCore|VllmWorker|VllmWorkerProcess|Worker|WorkerProc|RayWorkerWrapper|DPCoordinator|"
    r"MainProcess|Coordinator|ApiServerProcess|CoreEngine)(?:[_-](?:DP|TP|PP|EP|DCP|PCP|EDP)?\d{1,4})*"
    r"(?: (?:rank=)?\d{1,4})?"
)
# The files that vLLM's records of length come from; others become file1.py, file2.py.
_FILES = frozenset(
    """api_server api_utils arg_utils async_llm base_loader cache config core core_client cpu cpu_worker gpu_worker
    gpu_executor gpu_model_runner cpu_model_runner distributed_gpu_executor engine engine_utils entry executor_base
    importing kernel kv_cache_utils launcher llm_engine async_llm_engine logger logging loggers metrics model
    model_runner multiproc_executor ompmultiprocessing parallel_state protocol ray_executor scheduler serve server
    serving serving_chat serving_completion serving_engine system_utils torch_utils utils vllm worker
    worker_base""".split()  # noqa: SIM905 - a list of words
)
_EXCEPTIONS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
) | {
    "VLLMValidationError", "VLLMNotFoundError", "QueueOverflowError", "MaxQueuedTokensError", "EngineDeadError",
    "EngineGenerateError", "ValidationError", "RequestValidationError", "HTTPException", "TemplateError",
    "OutOfMemoryError", "AsyncEngineDeadError", "JSONDecodeError", "RepositoryNotFoundError", "ActorDiedError",
    "GatedRepoError", "LocalEntryNotFoundError", "HfHubHTTPError", "HTTPError", "CancelledError", "ClientDisconnect",
    "RayTaskError", "ProcessRaisedException", "BackendCompilerFailed", "AcceleratorError", "HFValidationError",
}  # fmt: skip
_EXCEPTION = re.compile(r"(?P<module>(?:\w+\.)*)(?P<name>[A-Za-z_]\w*)(?:: (?P<text>.*))?", re.DOTALL)
_ENDINGS = ("Error", "Exception", "Group", "Exit", "Interrupt", "Warning")
_GROUP = re.compile(r"[ |+-]*(?:\b\d{1,3} -+)?(?=$|\S)")
_FRAME = re.compile(r'(?P<gap> +)File "(?P<path>[^"]*)", line \d+(?:, in .*)?')
_MARKS = re.compile(r" *[~^]+[ ~^]*")
_PYDANTIC = re.compile(r"(?P<count>\d{1,4}) validation (?P<errors>errors?) for \w+")
_VALUE_ERROR = "  Value error, "
_USAGE = re.compile(r"(?:vllm(?: serve)?|api_server\.py): error: ")
_DEBUG_REFUSAL = re.compile(r"create_error_response called with (?P<name>\w+): (?P<text>.*)", re.DOTALL)
_REQUEST_END = re.compile(r"(?:lora_request|prompt_adapter_request|token ids|token_ids): [^\n]*\.\s*$")


class Redactor:
    """Rewrites one log stream, line by line in its order. Pure but for what it remembers of the stream."""

    def __init__(self) -> None:
        self._parser = LogParser()
        self._pieces: dict[str, str] = {}
        self._trusted = True  # no client can have written this
        self._prompt = 0  # lines of a logged prompt of several lines that are still to come, at most
        self._files: OrderedDict[str, int] = OrderedDict()
        self._processes: OrderedDict[str, int] = OrderedDict()

    def lines(self, line: str) -> list[str]:
        """What is written for one physical line; nothing while a line comes in pieces."""
        self._parser.feed(line)
        match self._parser.phase:
            case Phase.ENDED | Phase.FAILED:
                self._trusted = True
            case Phase.SERVING:
                self._trusted = False
            case _:  # a start that nothing ended: a client could have written it, so what was so stays
                pass
        return self._lines(line)

    def restarted(self) -> None:
        """A new process writes from here on."""
        self._parser.idle()
        self._trusted, self._prompt = True, 0

    def _lines(self, line: str, depth: int = 0) -> list[str]:
        peeled = peel(line)
        if peeled.channel:
            channel = f"{peeled.channel}{depth}"
            text = self._pieces.pop(channel, "") + peeled.text
            if not peeled.whole and len(text) < LONGEST_PIECES:
                self._pieces[channel] = text
                return []
            return self._lines(text, depth + 1) if depth < LAYERS else [placeholder(text)]
        if peeled.record is not None:
            return [self._json(peeled.record)]
        return [self._text(text.rstrip("\r")) for text in peeled.text.split("\n")]

    # --- one line

    def _text(self, text: str) -> str:
        if self._prompt:
            self._prompt = 0 if _REQUEST_END.search(text[-600:]) else self._prompt - 1
            return placeholder(text)
        line = taken_apart(text)
        if line.header is None:
            prefix = self._process(line.process.name, line.process.pid)
            return prefix + self._body(line.text)
        prefix = self._process(line.process.name, line.process.pid) + self._header(line.header)
        if line.header.uvicorn:
            return prefix + self._uvicorn(line.text)
        return prefix + self._said(line.text, line.header)

    def _json(self, record: JsonRecord) -> str:
        uvicorn = (record.logger or "").startswith("uvicorn")
        header = Header(record.level or "INFO", record.stamp, record.location, uvicorn)
        first, *rest = record.message.split("\n")
        said = self._uvicorn(first) if uvicorn else self._said(first, header)
        self._prompt = 0  # the record ends here, whatever is in it
        made: dict[str, object] = {"level": record.level if record.level in _LEVELS else "INFO"}
        made["name"] = "uvicorn" if uvicorn else "vllm"
        if record.stamp is not None and _STAMP.fullmatch(record.stamp):
            made["asctime"] = record.stamp
        file, _, number = (record.location or "").rpartition(":")
        if file:
            made |= {"filename": self._file(file), "lineno": number[:6]}
        if record.process is not None:
            made["vllm_process_name"] = self._process_name(record.process)
        if record.pid is not None:
            made["process"] = record.pid
        made["message"] = "\n".join([said, *(self._body(text) for text in rest)])
        if record.traceback is not None:
            frames = record.traceback.split("\n")
            made["exc_info"] = "\n".join(self._body(text) for text in frames)
        return json.dumps(made, ensure_ascii=False)

    def _said(self, text: str, header: Header) -> str:
        """A record's text, or one of its later lines: they look the same."""
        if not text:
            return ""
        found = _LOG.find(text)
        if found is not None:
            return self._row(found, text)
        if header.level in ("ERROR", "CRITICAL"):
            for index in _ERRORS:
                if (error := index.find(text)) is not None:
                    return _rewritten(error, text) or placeholder(text)
        return self._body(text)

    def _row(self, found: Found, text: str) -> str:
        row = found.message
        if row.id == "reject_log_debug" and (refused := _DEBUG_REFUSAL.fullmatch(text)):
            return f"create_error_response called with {_exception(refused['name'], refused['text'])}"
        made = rewritten(row, text, kept_value if self._trusted else untrusted_value)
        if made is None:
            return placeholder(text)
        if row.id.startswith("received_request"):
            self._prompt = 0 if _REQUEST_END.search(text[-600:]) else LONGEST_PROMPT
            made += "".join(part for part in row.has if part not in made) + ", lora_request: [redacted]."
        return made

    def _uvicorn(self, text: str) -> str:
        found = _UVICORN.find(text)
        return placeholder(text) if found is None else _rewritten(found, text) or placeholder(text)

    def _body(self, text: str) -> str:
        """What the interpreter printed: a traceback's lines; of all else, how long it is."""
        group = _GROUP.match(text) if text.lstrip().startswith(("|", "+")) else None
        before = group.group() if group is not None else ""
        text = text[len(before) :]
        if not text:
            return before
        if text in (TRACEBACK, f"Exception Group {TRACEBACK}") or _MARKS.fullmatch(text):
            return before + text
        if frame := _FRAME.fullmatch(text):
            ours = "/vllm/" if "/vllm/" in frame["path"] else ""
            return f'{before}{frame["gap"]}File "{ours}", line 0, in _'
        if text.startswith(_VALUE_ERROR):
            return before + _VALUE_ERROR + _error_text(text[len(_VALUE_ERROR) :])
        if usage := _USAGE.match(text):
            return before + usage.group() + placeholder(text[usage.end() :])
        if not text.startswith(" ") and (raised := _EXCEPTION.fullmatch(text)):
            name, said = raised["name"], raised["text"]
            if name in _EXCEPTIONS or name.endswith(_ENDINGS):
                return before + _exception(name, said)
        return before + placeholder(text)

    # --- who said it

    def _header(self, header: Header) -> str:
        if header.uvicorn:
            return f"{header.level}:     "
        stamp = f"{header.stamp} " if header.stamp is not None else ""
        if header.location is None:
            # A logging configuration's own format, in the shape that is read back the same.
            return f"{stamp}{header.level} vllm: " if stamp else f"{header.level}:vllm:"
        file, _, number = header.location.rpartition(":")
        return f"{header.level} {stamp}[{self._file(file)}:{number[:6]}] "

    def _file(self, path: str) -> str:
        name = path.rpartition("/")[2].removesuffix(".py")
        return f"{name}.py" if name in _FILES else f"file{_number(self._files, path)}.py"

    def _process(self, name: str | None, pid: int | None) -> str:
        if pid is None:
            return ""
        shown = "" if name is None else f"{self._process_name(name)} "
        return f"({shown}pid={pid % 10**8}) "

    def _process_name(self, name: str) -> str:
        return name if _PROCESSES.fullmatch(name) else f"process{_number(self._processes, name)}"


_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"})
_STAMP = re.compile(r"[\dTZ:.,+ -]{1,40}")


def _number(known: OrderedDict[str, int], name: str) -> int:
    number = known.get(name)
    if number is None:
        number = known[name] = next(reversed(known.values())) + 1 if known else 1
        if len(known) > NAMES_KEPT:
            known.popitem(last=False)
    return number


def _rewritten(found: Found, text: str) -> str | None:
    return rewritten(found.message, text, kept_value)


def _exception(name: str, text: str | None) -> str:
    if name not in _EXCEPTIONS:
        name = "ExceptionGroup" if name.endswith("ExceptionGroup") else "Error"
    return name if text is None else f"{name}: {_error_text(text)}"


def _error_text(text: str) -> str:
    if invalid := _PYDANTIC.fullmatch(text):
        return f"{invalid['count']} validation {invalid['errors']} for Config"
    for index in _ERRORS:
        if (found := index.find(text)) is not None and (made := _rewritten(found, text)) is not None:
            return made
    echo = next((echo for echo in ECHOES if text.startswith(echo)), "")
    return echo + placeholder(text[len(echo) :])
