"""The options that every comparison of `bench/` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Option(help="Folder on a real disk for the servers' files.")]
Repeats = Annotated[int, typer.Option(help="Runs of each measure on each system.")]
Seconds = Annotated[float, typer.Option(help="About how long one run lasts.")]
Quick = Annotated[bool, typer.Option(help="Two short runs of each: shows that it works, proves little.")]
Only = Annotated[str, typer.Option(help="Systems to keep, by the start of their names, with commas.")]
Measures = Annotated[str, typer.Option(help="Measures to keep, by the start of their keys, with commas.")]
Save = Annotated[bool, typer.Option(help="Keep the result under bench/results/.")]

DATA = Path("data/bench")
