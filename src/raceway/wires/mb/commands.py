"""Commands over MB."""

from __future__ import annotations

from typing import Any

from raceway.cli.talk import Talk


class MbTalk(Talk):
    def publishing(
        self, url: str, *, confirm: bool, version: str, subject: str | None, key: str | None
    ) -> dict[str, Any]:
        return {"confirm": confirm, "version": version}

    def requesting(self, version: str) -> dict[str, Any]:
        return {"version": version}
