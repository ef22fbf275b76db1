"""Options shared by all comparisons of `bench/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Option(help="Folder on a real disk for the servers' files.")]
Repeats = Annotated[int, typer.Option(help="Runs of each measure on each system.")]
Seconds = Annotated[float, typer.Option(help="Approximate duration of one run, in seconds.")]
Quick = Annotated[bool, typer.Option(help="Two short runs of each, to check that it works; the figures mean little.")]
Only = Annotated[str, typer.Option(help="Systems to measure: prefixes of their names, separated by commas.")]
Measures = Annotated[str, typer.Option(help="Measures to run: prefixes of their keys, separated by commas.")]
Before = Annotated[
    Path | None, typer.Option(help="Source folder (src) of another version of Raceway, measured beside this one.")
]
Save = Annotated[bool, typer.Option(help="Save the result under bench/results/.")]

DATA = Path("data/bench")
