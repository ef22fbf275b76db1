"""`raceway bench`: run the benchmarks of a checkout. An installed package does not include them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

import raceway
from raceway.cli import output

Script = Literal["codec", "danube", "journal", "path", "pipeline", "seneca", "start", "zbus"]


def bench(
    context: typer.Context,
    script: Annotated[
        Script, f"Benchmark to run, bench/SCRIPT.py: {', '.join(get_args(Script))}.", {"metavar": "[SCRIPT]"}
    ] = "path",
) -> None:
    """Run a benchmark; only in a checkout. Further options are passed to the script."""
    checkout = Path(raceway.__file__).parents[2]
    if not (checkout / "bench" / f"{script}.py").exists():
        output.misuse(f"there is no bench/{script}.py beside this package: run it in a checkout")
    command = [sys.executable, "-m", f"bench.{script}", *context.args]
    raise typer.Exit(subprocess.run(command, cwd=checkout, check=False).returncode)  # noqa: S603 - our own program
