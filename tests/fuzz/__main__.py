"""Run a fuzz target: python -m tests.fuzz TARGET [CORPUS …] [libFuzzer options]. Needs `pip install atheris`."""

from __future__ import annotations

import importlib
import sys


def main(target: str, arguments: list[str]) -> None:
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["raceway"]):
        module = importlib.import_module(f"tests.fuzz.{target}")
    atheris.Setup([target, *arguments], module.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
