"""Config: everything that can be set about the daemon, as pydantic models; nothing else is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from embedwatch.calibration import USUAL_BUDGET, Budget
from embedwatch.core.errors import UsageError
from embedwatch.daemon.heart_settings import PENDING_BYTES, SLOT_BYTES, WINDOW_BYTES
from embedwatch.daemon.units import Address, duration, duration_text, size, size_text

__all__ = [
    "DEFAULT_ADDRESS",
    "Auth",
    "Config",
    "Evaluation",
    "Log",
    "ReferenceFolder",
    "Source",
    "Storage",
    "Tls",
    "Web",
    "config_schema",
]

DEFAULT_ADDRESS = "127.0.0.1:9477"
"""A port that no exporter in Prometheus' list of allocations has; it is not registered there."""
DEFAULT_STORAGE = Path("embedwatch-data")
NAME = r"^[^\s/\x00-\x1f\x7f][^\x00-\x1f\x7f]{0,199}$"
"""Of a label: what may also be sent over HTTP, on one line, and no path of the root."""
DURATION = r"^(?=.)(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$"
SIZE = r"^\d+ ?(B|KiB|MiB|GiB|kB|MB|GB)$"
ALARMS = r"^\d+(\.\d+)? +per +\d+(\.\d+)?[mhdw]$"
SHORTEST, LONGEST = 0.1, 31_536_000.0
"""Bounds of every duration, in seconds: a tenth, and a year."""
LEAST_SIZE, LARGEST_SIZE = 1 << 10, 1 << 40


def _duration(given: Any) -> float:
    """Read a duration; a bare number has no unit, and is refused."""
    if not isinstance(given, str):
        raise UsageError(f"a duration must be a number with a unit, got {given!r}; write 15m, 90s or 1h30m")
    seconds = duration(given)
    if not SHORTEST <= seconds <= LONGEST:
        raise UsageError(f"a duration must be from 100ms to 1 year, got {given}; choose one between")
    return seconds


def _size(given: Any) -> int:
    if not isinstance(given, str):
        raise UsageError(f"a size must be a whole number with a unit, got {given!r}; write 8MiB or 512KiB")
    count = size(given)
    if not LEAST_SIZE <= count <= LARGEST_SIZE:
        raise UsageError(f"a size must be from 1KiB to 1024GiB, got {given}; choose one between")
    return count


def _address(given: Any) -> str:
    """Read an address; a port alone may be a number."""
    if isinstance(given, bool) or not isinstance(given, int | str):
        got = str(given)[:60]
        raise UsageError(f"an address must be [HOST:]PORT or unix:PATH, got {got}; write 127.0.0.1:9477 or [::1]:9477")
    return str(Address.read(str(given)))


def _path(given: Any) -> Path:
    """Read a path; an empty one would be the folder that one happens to be in."""
    if isinstance(given, Path):
        return given
    if not isinstance(given, str) or not given or "\0" in given:
        got = "true" if given is True else "false" if given is False else "nothing" if given is None else repr(given)
        raise UsageError(f"must be a path, got {got[:60]}; write it as text")
    return Path(given)


def _alarms(given: Any) -> str:
    """Read how many false alarms are accepted; what is wrong is told without a name, which its key is."""
    try:
        Budget.parse(given)
    except UsageError as error:
        raise UsageError(str(error).partition("` ")[2]) from error
    return str(given)


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(duration_text),
    WithJsonSchema({"type": "string", "pattern": DURATION}),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(size_text),
    WithJsonSchema({"type": "string", "pattern": SIZE}),
]
Listen = Annotated[str, BeforeValidator(_address)]
Alarms = Annotated[str, BeforeValidator(_alarms), WithJsonSchema({"type": "string", "pattern": ALARMS})]
File = Annotated[Path, BeforeValidator(_path)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, use_attribute_docstrings=True)


class Tls(_Section):
    """Certificates; read again on reload, so that they can be renewed."""

    cert_file: File
    """PEM with the certificate of the server and those above it."""
    key_file: File
    """PEM with its private key, without a password."""
    client_ca_file: File | None = None
    """PEM with the authorities whose clients are let in; without it, clients need no certificate."""


class Auth(_Section):
    """Who may read and send. Secrets stand in files of their own, never here."""

    token_file: File | None = None
    """One bearer token a line; several let you change a token without a gap."""
    users_file: File | None = None
    """One `name:bcrypt-hash` a line, as `htpasswd -B` writes them."""


class Web(_Section):
    """What is served, where, and to whom."""

    listen: Annotated[list[Listen], Field(min_length=1, max_length=16)] = [DEFAULT_ADDRESS]
    """Addresses: HOST:PORT, :PORT for all interfaces, PORT for this machine only, unix:PATH."""
    tls: Tls | None = None
    """Serve HTTPS on the ports; Unix sockets stay plain."""
    auth: Auth = Auth()
    """Tokens and users; without any, everybody who reaches the port may read and send."""
    enable_lifecycle: StrictBool = False
    """Allow POST /-/reload."""
    insecure: StrictBool = False
    """Allow an address that other machines reach, though nobody has to authenticate."""
    max_body: Size = 32 << 20
    """Largest body of a request, as it is sent and after it is unpacked."""
    max_json: Size = 4 << 20
    """Largest body of JSON, which takes up to twenty times as much while it is read."""
    max_rows: Annotated[StrictInt, Field(ge=1, le=10_000_000)] = 200_000
    """Most rows in a request."""
    max_dimension: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 65_536
    """Largest dimension of a row."""
    max_ingesting: Annotated[StrictInt, Field(ge=1, le=1024)] = 8
    """So many of the largest bodies are taken at once, or more that are smaller; further senders have to try again."""
    max_connections: Annotated[StrictInt, Field(ge=8, le=65_536)] = 512
    """Connections at once."""
    timeout: Duration = 30.0
    """A request that is not whole, or an answer that is not taken, after so long is ended."""


class Storage(_Section):
    """What survives a restart, and how much may wait."""

    path: File = DEFAULT_STORAGE
    """Folder of the state; one daemon at a time uses it."""
    pending: Size = PENDING_BYTES
    """Most bytes that wait to be judged; beyond, senders are asked to wait."""
    slot: Size = SLOT_BYTES
    """Most bytes of one Space that wait to be judged; the state of a window takes 19 MB at D = 1,536."""
    windows: Size = WINDOW_BYTES
    """Most bytes that open windows of all Spaces can come to take; beyond, no further one is opened for now."""


class Evaluation(_Section):
    """How windows are judged."""

    interval: Duration = 60.0
    """A window of each Space is closed and judged so often."""
    max_spaces: Annotated[StrictInt, Field(ge=1, le=1_000_000)] = 1000
    """Most Spaces; rows of further ones are refused."""
    only: list[str] = []
    """Names of statistics, measurements or checks to keep; all where it is empty."""
    skip: list[str] = []
    """Names of statistics, measurements or checks to leave out."""
    alarms: Alarms = USUAL_BUDGET
    """False alarms of `drift` that are accepted over time, of all Spaces together that have a reference."""
    expires: Duration | None = None
    """A Space that is not heard of for so long is no longer shown."""


class Log(_Section):
    """What is logged on standard error; vectors and texts never are."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least grave events to log."""
    format: Literal["logfmt", "json"] = "logfmt"
    """One line an event, in either form."""


class Source(_Section):
    """A folder of checkpoints, files of vectors, or a canary, looked at on a schedule."""

    kind: Literal["checkpoints", "files", "canary"]
    """`checkpoints`: a folder in which each new checkpoint is judged; `files`: a file or folder of vectors; `canary`: a
    file that `embedwatch canary record` wrote, whose texts are embedded again."""
    path: File
    """Where it is."""
    name: Annotated[str, Field(pattern=NAME)]
    """Label `model` of what is found there."""
    every: Duration = 300.0
    """How often it is looked at."""
    deep: StrictBool = False
    """For checkpoints: run each model too, and examine what it does."""
    length: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] | None = None
    """For checkpoints: number of tokens that the model is to be used with."""
    texts: File | None = None
    """For checkpoints: a file of texts, one a line, for each model to read."""
    prompts: File | None = None
    """For checkpoints: a file of beginnings, one a line, for each model to go on from."""
    queries: File | None = None
    """For files: vectors of queries, with which a FAISS index is asked; without it, rows of the index are."""
    present: File | None = None
    """For files: what the present model writes for ids of a FAISS index, to tell whether the index is stale."""
    model: File | None = None
    """For a canary: folder of the model that embeds its texts; loaded again each time."""
    url: str | None = None
    """For a canary: address of the provider that embeds its texts, like https://host/v1; it holds no secret."""
    url_model: str | None = None
    """For a canary: name that the provider has for its model; by default that of the canary."""
    key_env: str | None = None
    """For a canary: environment variable that holds the provider's key."""
    aligner: File | None = None
    """For a canary: folder of a map; the model's vectors are mapped with it into the space that the canary is of, and
    what they find there is watched."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Source:
        """Refuse a canary without an embedder, and what belongs to another kind."""
        asked = [name for name in ("deep", "length", "texts", "prompts") if getattr(self, name) not in (None, False)]
        if self.kind != "checkpoints" and asked:
            raise UsageError(f"`{asked[0]}` must be left out for {self.kind}, got one; it belongs to checkpoints")
        searched = [name for name in ("queries", "present") if getattr(self, name) is not None]
        if self.kind != "files" and searched:
            raise UsageError(f"`{searched[0]}` must be left out for {self.kind}, got one; it belongs to files")
        given = [
            name for name in ("model", "url", "url_model", "key_env", "aligner") if getattr(self, name) is not None
        ]
        if self.kind != "canary" and given:
            raise UsageError(f"`{given[0]}` must be left out for {self.kind}, got one; it belongs to a canary")
        if self.kind == "canary" and ("model" in given) == ("url" in given):
            raise UsageError("a canary must have `model` or `url`, got both or none; say what embeds its texts")
        return self


class ReferenceFolder(_Section):
    """A saved healthy state, and the Spaces whose rows are compared with it.

    `*`, `?` and `[abc]` in a name stand for several; what is left out is that of the Space it was made of.
    """

    path: File
    """Folder of one reference, or of several, as `monitor.save_reference` writes them."""
    model: Annotated[str, Field(pattern=NAME)] | None = None
    """Label `model` of the Spaces."""
    place: Annotated[str, Field(pattern=NAME)] | None = None
    """Their place; left out for a folder of several references, each of which has its own."""
    segment: Annotated[str, Field(pattern=NAME)] | None = None
    """Their segment."""


class Config(_Section):
    """The whole configuration; every part has a default."""

    web: Web = Web()
    """What is served, where, and to whom."""
    storage: Storage = Storage()
    """What survives a restart, and how much may wait."""
    evaluation: Evaluation = Evaluation()
    """How windows are judged."""
    log: Log = Log()
    """What is logged."""
    sinks: list[str] = []
    """Where judged windows go beside /metrics, as in `--sink`: `jsonl:run.jsonl`."""
    sources: list[Source] = []
    """What is looked at on a schedule."""
    references: list[ReferenceFolder] = []
    """What rows are compared with; of several for one Space the first counts. Read again on reload."""
    drain: Duration = 30.0
    """On SIGTERM, so long is left to judge what waits."""

    @model_validator(mode="after")
    def _closed_to_others(self) -> Config:
        """Refuse an open door without a lock."""
        web = self.web
        locked = web.auth.token_file or web.auth.users_file or (web.tls and web.tls.client_ca_file)
        opened = [each for each in web.listen if not Address.read(each).is_local]
        if opened and not locked and not web.insecure:
            raise UsageError(
                f"`web.listen` must be this machine only where nobody has to authenticate, got {opened[0]}; set "
                "`web.auth`, or allow it with `web.insecure` (--web.insecure)"
            )
        return self


class _Texts(GenerateJsonSchema):
    """Writes the defaults of durations and sizes as people write them."""

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of a field with a default."""
        found = super().default_schema(schema)
        text = {DURATION: duration_text, SIZE: size_text}.get(found.get("pattern", ""))
        if text is not None and isinstance(found.get("default"), int | float):
            found["default"] = text(found["default"])
        return found


def config_schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration."""
    return Config.model_json_schema(schema_generator=_Texts)
