from __future__ import annotations

from pathlib import Path

import pytest

from raceway.cli.saved_buses import SavedBus, SavedBuses, contexts_file, maybe_used, saved_buses, write_buses
from raceway.errors import ConfigError


def test_the_file_is_in_the_folder_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert contexts_file() == tmp_path / ".config/raceway/contexts.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    assert contexts_file() == tmp_path / "own/raceway/contexts.json"


def test_what_is_written_is_read_and_a_missing_file_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert (saved_buses(), maybe_used()) == (SavedBuses(), None)
    saved = SavedBuses("a", {"a": SavedBus("raceway://a", "sesame"), "b": SavedBus("mb://b:1")})
    write_buses(saved)
    assert (saved_buses(), maybe_used()) == (saved, SavedBus("raceway://a", "sesame"))
    assert [path.name for path in contexts_file().parent.iterdir()] == ["contexts.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"contexts": {"a": {}}}'])
def test_a_broken_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write_buses(SavedBuses())
    contexts_file().write_text(text)
    with pytest.raises(ConfigError, match=r"contexts\.json cannot be read, mend or remove it"):
        saved_buses()
