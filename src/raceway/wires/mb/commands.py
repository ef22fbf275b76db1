"""Commands over MB."""

from __future__ import annotations

from typing import Any

from raceway.cli.talk import Sending, Talk


class MbTalk(Talk):
    def publishing(self, given: Sending) -> dict[str, Any]:
        return {"confirm": given.confirm, "version": given.version}

    def requesting(self, version: str) -> dict[str, Any]:
        return {"version": version}
