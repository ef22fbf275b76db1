"""Commands over MB."""

from __future__ import annotations

from typing import Any, ClassVar

from raceway.cli.talk import VERSION, Sending, Talk


class MbTalk(Talk):
    options: ClassVar[tuple[str, ...]] = ("--payload-version",)

    def publishing(self, given: Sending) -> dict[str, Any]:
        return {"confirm": given.confirm, "version": given.version or VERSION}

    def requesting(self, version: str) -> dict[str, Any]:
        return {"version": version}
