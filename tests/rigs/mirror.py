"""`raceway mirror` as a process of its own, and the messages that it should have written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message

from raceway.journal.read.reader import Reader

WAIT_S = 60.0


class Ended(NamedTuple):
    """The end of a command."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        return json.loads(self.stdout.splitlines()[-1])


def fresh_name(beginning: str) -> str:
    """A topic, and a mirror, that no other test uses."""
    return f"{beginning}-{uuid.uuid4().hex[:8]}"


def mirror(*words: object) -> Ended:
    """Run the command to its end."""
    done = subprocess.run(_command(words), capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


@contextmanager
def mirroring(*words: object) -> Iterator[subprocess.Popen[str]]:
    """The command while it runs, from `ready` on; killed at the end, if it still runs."""
    with subprocess.Popen(
        _command(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line == "ready\n", process.stderr.read()
            yield process
        finally:
            process.kill()
            process.wait(WAIT_S)


def stop(process: subprocess.Popen[str]) -> str:
    """SIGTERM, and status 0; returns what it said on standard error."""
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    return said


def _command(words: Sequence[object]) -> list[str]:
    return [sys.executable, "-m", "raceway", "mirror", *map(str, words)]


def header(record: Message, name: str) -> str | None:
    value = dict(record.headers() or ()).get(name)
    return value.decode() if isinstance(value, bytes) else value


def sequences(records: Sequence[Message]) -> list[int]:
    """The places in the journal that records say they come from."""
    return [int(header(record, "rw-sequence") or -1) for record in records]


def first_position(folder: Path) -> int:
    """The first place in the journal that retention has left."""
    reader = Reader(folder)
    try:
        return reader.first_position()
    finally:
        reader.close()


def stored(folder: Path, topic: str) -> list[tuple[int, bytes]]:
    """Place and payload of every message of a topic, as the journal has them."""
    reader = Reader(folder)
    try:
        rows = [row for batch in reader.read(reader.first_position()) for row in batch.to_pylist()]
    finally:
        reader.close()
    return [
        (row["sequence"], row["payload"] or b"") for row in rows if row["topic"] == topic and row["offset"] is not None
    ]
