"""Tables of a path benchmark: on the terminal, as Markdown and as JSON, with ratios between systems of one run."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.measures import Sample
from bench.systems import OURS

Samples = dict[str, dict[str, list[Sample]]]

# Measure, figure, peer, goal of the ratio Raceway / peer, and whether larger is better.
Goal = tuple[str, str, str, float, bool]
# How much more memory a server of ours may have after a measure than after the measure's first, short turn.
GROWTH_MIB = 60


class Report:
    """`samples` is measure key → system name → runs; `titles` has the measures in order; `name` is the script's."""

    def __init__(
        self,
        name: str,
        facts: dict[str, Any],
        titles: list[tuple[str, str]],
        goals: list[Goal],
        samples: Samples,
        absent: list[str],
    ) -> None:
        self._name, self._facts, self._titles, self._wanted = name, facts, titles, goals
        self._samples, self._absent = samples, absent

    def print(self, console: Console) -> None:
        for name, value in self._facts.items():
            console.print(f"[dim]{name}:[/] {value}", highlight=False)
        for key, title in self._titles:
            header, rows = self._rows(key)
            table = Table(*header, title=title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
        goals = Table("goal", "wanted", "this run", "", title="goals, as ratios within this run", title_justify="left")
        for row in self._goals():
            goals.add_row(*row)
        console.print(goals)

    def save(self, folder: Path) -> Path:
        """Write a JSON and a Markdown file named after the script; return the path of the Markdown file."""
        folder.mkdir(exist_ok=True)
        runs = {key: {name: msgspec.to_builtins(s) for name, s in rows.items()} for key, rows in self._samples.items()}
        document = {"facts": self._facts, "not present": self._absent, "runs": runs}
        (folder / f"{self._name}.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        page = folder / f"{self._name}.md"
        page.write_text(self._markdown())
        return page

    def _markdown(self) -> str:
        lines = ["# The path of a message, measured", "", f"Made by `python -m bench.{self._name}`.", ""]
        lines += [f"- {name}: {value}" for name, value in self._facts.items()]
        for key, title in self._titles:
            lines += ["", f"## {title[0].upper()}{title[1:]}", "", *markdown_table(*self._rows(key))]
        lines += ["", "## Goals, as ratios within this run", ""]
        lines += markdown_table(["goal", "wanted", "this run", ""], self._goals())
        return "\n".join(lines) + "\n"

    def _rows(self, key: str) -> tuple[list[str], list[list[str]]]:
        runs = self._samples[key]
        timed = any(sample.p50_us for samples in runs.values() for sample in samples)
        halved = any(sample.half_p99_us for samples in runs.values() for sample in samples)
        header = ["system", "messages/s", "all runs, k/s", "server µs", "load µs", f"{OURS} / it"]
        header += ["p50 µs", "p95 µs", "p99 µs", "p50 ratio"] if timed else []
        header += ["p50, p99 µs at half", "RSS MiB (since warm-up)"] if halved else []
        rows = []
        for name, samples in runs.items():
            rates = " ".join(f"{sample.rate / 1000:,.1f}" for sample in samples)
            row = [name, f"{_median(samples, 'rate'):,.0f}", rates]
            row += [f"{_median(samples, 'server_us'):.2f}", f"{_median(samples, 'load_us'):.2f}"]
            row.append(self._ratio_text(key, "rate", name))
            if timed:
                row += [f"{_median(samples, figure):.0f}" for figure in ("p50_us", "p95_us", "p99_us")]
                row.append(self._ratio_text(key, "p50_us", name))
            if halved:
                row.append(f"{_median(samples, 'half_p50_us'):.0f}, {_median(samples, 'half_p99_us'):.0f}")
                row.append(f"{samples[-1].rss_mb:.0f} ({samples[-1].rss_mb - samples[-1].warm_rss_mb:+.0f})")
            rows.append(row)
        rows += [[name, "not present", *[""] * (len(header) - 2)] for name in self._absent]
        return header, rows

    def _maybe_ratio(self, key: str, figure: str, peer: str) -> float | None:
        runs = self._samples.get(key, {})
        ours = self._maybe_ours(key)
        if ours is None or peer not in runs:
            return None
        theirs = _median(runs[peer], figure)  # 0 if all was answered at once, so that nothing could be timed
        return _median(runs[ours], figure) / theirs if theirs else None

    def _maybe_ours(self, key: str) -> str | None:
        """The first system of Raceway in a measure, to which others are compared."""
        return next((name for name in self._samples.get(key, {}) if name.startswith(OURS)), None)

    def _ratio_text(self, key: str, figure: str, peer: str) -> str:
        ratio = self._maybe_ratio(key, figure, peer)
        return f"{ratio:.2f}" if ratio is not None and peer != self._maybe_ours(key) else ""

    def _goals(self) -> list[list[str]]:
        titles = dict(self._titles)
        rows = []
        for key, figure, peer, wanted, more in self._wanted:
            ratio = self._maybe_ratio(key, figure, peer)
            if ratio is None:
                continue
            reached = ratio >= wanted if more else ratio <= wanted
            what = f"{titles[key]}{'' if figure == 'rate' else ', p50'}: {self._maybe_ours(key)} / {peer}"
            rows.append([what, f"{'≥' if more else '≤'} {wanted}", f"{ratio:.2f}", "reached" if reached else "missed"])
        return rows + self._growths()

    def _growths(self) -> list[list[str]]:
        """Judge the memory that our servers have more after each measure that looks at it."""
        rows = []
        for key, title in self._titles:
            grown = {
                name: samples[-1].rss_mb - samples[-1].warm_rss_mb
                for name, samples in self._samples.get(key, {}).items()
                if OURS in name and samples[-1].rss_mb
            }
            if grown:
                name = max(grown, key=grown.__getitem__)
                verdict = "reached" if grown[name] <= GROWTH_MIB else "missed"
                rows.append(
                    [f"{title}: RSS of {name} since warm-up", f"≤ {GROWTH_MIB} MiB", f"{grown[name]:+.0f}", verdict]
                )
        return rows


def _median(samples: list[Sample], figure: str) -> float:
    return float(statistics.median(getattr(sample, figure) for sample in samples))


def markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
