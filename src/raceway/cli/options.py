"""Options that commands share: where the bus is, which token to send, how to print.

A command takes them as one parameter, an `OptionRecord`, in place of a parameter for each option. A group of commands
(`Commands`) shows the fields of the record as options, after the command's own.

Parameters and fields are declared as help pages show them; a mapping at the end has further arguments for typer:

    target: Annotated[Path | None, "--output, -o FILE", "Write to a new file."]     an option and its help
    topic: Annotated[str, "Name of the topic."]                                     an argument and its help
    limit: Annotated[int, "--limit N", "Maximum number of rows.", {"min": 1}]
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo, TyperInfo

from raceway.cli import bus, output, words
from raceway.server.running import maybe_running

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Narrower terminals get help without frames.
FRAMED_COLUMNS = 80

Json = Annotated[bool, "--json", "Print JSON, one document per line."]
Data = Annotated[Path | None, "--data DIR", "Data folder. Default: the setting journal.folder."]
ConfigFile = Annotated[
    Path | None, "--config FILE", "Settings file (TOML). Default: the file named by RACEWAY_CONFIG, if set."
]
KafkaConfig = Annotated[
    Path | None,
    "--kafka-config FILE",
    "Properties of Kafka's client, one name=value per line: security.protocol, ssl.ca.location and so on.",
]
Url = Annotated[
    str | None,
    "--url URL",
    "The bus, as raceway://HOST[:8600] or http(s)://HOST:PORT, its console port; or one wire of it, as mb://HOST:PORT; "
    "also mb+tls, mb+ws, mb+wss, danube, danube+tls, zbus, zbus+track (a tracker), seneca, seneca+tcp. "
    "Default: see `raceway --help`.",
]
ConsoleUrl = Annotated[
    str | None,
    "--url URL",
    "The bus, as raceway://HOST[:8600] or http(s)://HOST:PORT, its console port. Default: see `raceway --help`.",
]
Context = Annotated[str | None, "--context NAME", "The bus, by the name of a saved context."]
Timeout = Annotated[
    float | None,
    "--timeout SECONDS",
    "How long to wait for an answer of the bus. Default: 30, of `trace` 120.",
    {"min": 0.001},
]
TokenOption = Annotated[
    str,
    "--token TOKEN",
    "Token that the bus asks for, if any: of the client, of the queue (zbus), or the administrator's.",
]
Yes = Annotated[bool, "--yes", "Do not ask for confirmation."]
TopicArgument = Annotated[str, "Topic; of a Danube namespace as /NAMESPACE/TOPIC."]
StartOption = Annotated[
    str,
    "--start PLACE",
    "Where in its topic a new one begins: first, last, an offset, or a time such as 2026-01-31T12:00:00Z.",
]


def _warn_of_admin_token(value: str) -> str:
    if value:
        output.note("--admin-token is now called --token")
    return value


@dataclass_transform(kw_only_default=True)
class OptionRecord:
    """Base of the records whose fields are options: of dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)


class Printing(OptionRecord):
    """`--json`, and the ways to print a result that obey it."""

    as_json: Json = False

    def prints_json(self, document: Any) -> bool:
        """Print a document with `--json`; return whether it was printed."""
        if self.as_json:
            output.print_json(document)
        return self.as_json

    def tell(self, document: Any, *notes: str) -> None:
        """Print a document as JSON; without `--json` print the notes instead, on standard error."""
        self.prints_json(document)
        self.note(*notes)

    def note(self, *notes: str) -> None:
        """Print lines on standard error. With `--json` print nothing."""
        for text in () if self.as_json else notes:
            output.note(text)

    def show(
        self,
        rows: Iterable[Any],
        columns: Mapping[str, Any],
        title: str = "",
        *,
        document: Any = None,
        lines: bool = False,
    ) -> None:
        """Print rows as a table, or as JSON: as one document, or one for each row (`lines`).

        `columns` are those of `print_rows`. `document` replaces the rows in JSON. Without rows there is no table, but a
        note.
        """
        rows = list(rows)
        if not self.as_json:
            if rows:
                output.print_rows(title, rows, columns)
            else:
                output.note(f"{title or 'rows'}: none")
            return
        rows = [row._asdict() if hasattr(row, "_asdict") else row for row in rows]
        for each in rows if lines else [rows if document is None else document]:
            output.print_json(each)


class OnFolder(Printing):
    """`--data`: the folder of a bus, whether it runs or not."""

    data: Data = None

    @functools.cached_property
    def folder(self) -> Path:
        return bus.data_folder(self.data)


class WithSettings(OnFolder):
    """`--config`: the settings of a bus."""

    config_file: ConfigFile = None


class OverBus(OnFolder):
    """`--url`, `--context` and `--token`: a running bus."""

    url: Url = None
    context: Context = None
    token: TokenOption = ""
    # The former name of --token in `raceway queue` and `raceway seneca`.
    admin_token: Annotated[str, typer.Option("--admin-token", hidden=True, callback=_warn_of_admin_token)] = ""

    @functools.cached_property
    def named(self) -> bus.NamedBus | None:
        """The bus that was named other than by its data folder, if any."""
        return bus.maybe_named(self.url, self.data, self.context)

    @property
    def maybe_console(self) -> str | None:
        """The URL of the console port; None if a wire was named, or no bus runs on the data folder."""
        if self.named is not None:
            return bus.maybe_console(self.named.url)
        running = maybe_running(self.folder)
        return None if running is None else bus.console_of(running, self.folder)

    @property
    def credential(self) -> str:
        """The token given, under either name, otherwise that of the context."""
        return self.admin_token or self.token or (self.named.token if self.named else "")


class OverWire(OverBus):
    """A running bus, over one of its wires."""

    @property
    def wait_s(self) -> float:
        """How long to wait for an answer of the console port."""
        return bus.CONSOLE_S

    def address(self, door: str = "") -> str:
        """The URL to connect to, as `bus.find_url` finds it. Ends the command if there is none."""
        return bus.find_url(
            self.url, self.data, door, context=self.context, token=self.credential, timeout_s=self.wait_s
        )


class TimedWire(OverWire):
    """Options of a command over a wire with `--timeout`, for commands that end with an answer."""

    timeout: Timeout = None

    @property
    def wait_s(self) -> float:
        return self.timeout or bus.CONSOLE_S

    def run(self, address: str, work: Coroutine[Any, Any, T]) -> T:
        """Run what talks to a wire. Raises NoAnswerError after `--timeout`."""

        async def limited() -> T:
            async with asyncio.timeout(self.timeout):
                return await work

        try:
            return asyncio.run(limited())
        except TimeoutError as error:
            raise bus.too_late(address, self.wait_s) from error


class OverConsole(OverBus):
    """A running bus, over its console port."""

    timeout: Timeout = None
    url: ConsoleUrl = None

    @functools.cached_property
    def address(self) -> str:
        """The URL of the console port. Ends the command if there is none."""
        return bus.console_url(self.url, self.data, context=self.context)

    def ask(
        self, path: str, method: str = "GET", document: Any = None, *, timeout_s: float = bus.CONSOLE_S, **more: Any
    ) -> Any:
        """Call a path of the console port, as `bus.call_console` does. `--timeout` overrides `timeout_s`."""
        wait_s = self.timeout or timeout_s
        return bus.call_console(self.address, path, method, self.credential, document, timeout_s=wait_s, **more)

    def list_all(self, path: str, name: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of all pages of a list, as `bus.list_all` does."""
        return bus.list_all(self.address, path, name, self.credential, self.timeout or bus.CONSOLE_S, **query)


class _Command(TyperCommand):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = _style_of_help()
        super().format_help(ctx, formatter)


class _Group(TyperGroup):
    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.rich_markup_mode = _style_of_help()
        super().format_help(ctx, formatter)


def _style_of_help() -> Literal["rich"] | None:
    """Frames and columns where they fit. On a narrow terminal they would cut off words: plain text."""
    return "rich" if shutil.get_terminal_size().columns >= FRAMED_COLUMNS else None


class _Declared(NamedTuple):
    """Command that is not yet registered; `keywords` are for typer."""

    function: Callable[..., Any]
    name: str
    keywords: dict[str, Any]


class Commands(typer.Typer):
    """A group of commands. A parameter whose type is an `OptionRecord` becomes the options of its fields."""

    def __init__(self, name: str, help: str, **keywords: Any) -> None:
        self._declared: list[_Declared] = []
        self._registered: list[CommandInfo] = []
        keywords = {"epilog": words.explain(help)} | keywords
        super().__init__(name=name, help=help, cls=_Group, no_args_is_help=True, **keywords)

    def command(self, name: str | None = None, **keywords: Any) -> Callable[[F], F]:
        """Declare a command. Its help ends with the meanings of words of Raceway's own that are on it."""

        def decorate(function: F) -> F:
            self._declared.append(_Declared(function, name or function.__name__.replace("_", "-"), keywords))
            return function

        return decorate

    @property
    def registered_commands(self) -> list[CommandInfo]:
        """Commands as typer knows them. Made here, not when they are declared: most runs need one of many."""
        # Taken out first, because `_register` asks for the list that it adds to.
        declared, self._declared = self._declared, []
        for each in declared:
            self._register(each)
        return self._registered

    @registered_commands.setter
    def registered_commands(self, commands: list[CommandInfo]) -> None:
        self._registered = commands

    def _register(self, declared: _Declared) -> None:
        run = _expanded(declared.function)
        given: dict[str, Any] = {"cls": _Command, "help": _help(run), "epilog": _explained(run)} | declared.keywords
        super().command(declared.name, **given)(run)

    def first_lines(self) -> list[str]:
        """Return the first paragraph of the help of each command and group, as long as no command is registered."""
        helps = [_help(each.function) for each in self._declared]
        helps += [str(group.typer_instance.info.help) for group in self.registered_groups if group.typer_instance]
        return [help.partition("\n\n")[0] for help in helps]

    def narrowed(self, arguments: Sequence[str]) -> Commands:
        """Return a copy with only the command that the arguments begin with; without one, this group."""
        name = arguments[0] if arguments else ""
        groups = [
            each for each in self.registered_groups if each.typer_instance and each.typer_instance.info.name == name
        ]
        commands = [each for each in self._declared if each.name == name]
        if not (commands or groups):
            return self
        narrow = copy(self)
        narrow._declared, narrow._registered = commands, []
        narrow.registered_groups = [_with_group(each, arguments[1:]) for each in groups]
        return narrow


def _with_group(group: TyperInfo, arguments: Sequence[str]) -> TyperInfo:
    narrow = copy(group)
    if isinstance(group.typer_instance, Commands):
        narrow.typer_instance = group.typer_instance.narrowed(arguments)
    return narrow


def _expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer should see it: with the fields of its records as parameters."""
    hints = get_type_hints(function, include_extras=True)
    records = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, OptionRecord)}
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_declared(hints[name]))
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in records
    ]
    fields = {name: list(_fields(kind)) for name, kind in records.items()}

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields[name]})
            for name, kind in records.items()
        }
        return function(**made, **given)

    run.__signature__ = inspect.Signature([*own, *(field for each in fields.values() for field in each)])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in run.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return run


def _help(run: Callable[..., Any]) -> str:
    """The docstring with a line for each paragraph, for terminals of any width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in (inspect.getdoc(run) or "").split("\n\n"))


def _explained(run: Callable[..., Any]) -> str:
    """Meanings of the words that occur in the docstring, and in the help of arguments and options."""
    given = inspect.signature(run).parameters.values()
    return words.explain("\n".join([_help(run), *(str(_said(parameter.annotation)) for parameter in given)]))


def _said(annotation: Any) -> Any:
    """The help of a declared parameter, with its metavar."""
    return [(each.metavar, each.help) for each in get_args(annotation)[1:] if not getattr(each, "hidden", False)]


def _fields(record: type[OptionRecord]) -> Iterator[inspect.Parameter]:
    """The fields of a record as parameters: its own first, then those of its bases that it does not declare anew."""
    hints = get_type_hints(record, include_extras=True)
    names = dict.fromkeys(name for base in record.__mro__ for name in inspect.get_annotations(base))
    for name in names:
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(record, name), annotation=_declared(hints[name])
        )


def _declared(hint: Any) -> Any:
    """The type of a parameter as typer should see it: with its option or argument."""
    kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    more = said.pop() if said and isinstance(said[-1], dict) else {}
    match said:
        case [str(text)]:
            return Annotated[kind, typer.Argument(help=text, **more)]
        case [str(spelled), str(text)]:
            *names, last = spelled.split(", ")
            name, _, metavar = last.partition(" ")
            return Annotated[kind, typer.Option(*names, name, metavar=metavar or None, help=text, **more)]
    return hint
