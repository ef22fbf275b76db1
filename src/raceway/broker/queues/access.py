"""Who may use a queue: a signed token of the bus names a principal, any other token is that of the queue itself."""

from __future__ import annotations

from contextlib import suppress

from raceway.broker.peers import Peer
from raceway.broker.queues.table import QueueTable
from raceway.broker.security.security import Security
from raceway.broker.security.tokens import is_signed
from raceway.errors import ForbiddenError, UnauthenticatedError
from raceway.model.intents.credentials import Credential
from raceway.model.security import ANONYMOUS, OWNER, Permission, Principal

# Queues with a verified token that are remembered of one peer.
PROVEN = 100


class QueueAccess:
    def __init__(self, security: Security, queues: QueueTable) -> None:
        self._security = security
        self._queues = queues
        # Queues whose token a peer has shown: not slowed down by failed attempts of others at its host.
        self._proven: dict[Peer, set[tuple[str, bytes]]] = {}

    def identify(self, peer: Peer, token: bytes | None) -> bool:
        """Set the peer's principal: that of a signed token, anonymous otherwise. A no-op with security off.

        Return whether the token names a principal. If not, it may be the token of a queue.
        """
        if not self._security.enabled:
            return False
        wire = peer.wire.decode()
        peer.principal = Principal(ANONYMOUS, wire)
        if token and is_signed(token.decode("latin-1")):
            with suppress(UnauthenticatedError):
                peer.principal = self._security.identify(f"Bearer {token.decode('latin-1')}", wire, peer.host)
                return True
        return False

    def check(self, peer: Peer, name: str, token: bytes | None, identified: bool, permission: Permission) -> None:
        """Check that the queue exists and the peer may use it.

        Raises UnknownQueueError, ForbiddenError, or TooManyFailuresError after too many bad tokens. A peer without
        permission on the name gets ForbiddenError whether or not the queue exists.
        """
        if self._security.enabled:
            self._security.check(peer.principal, permission, name)
        if identified or not token:
            self._queues.find(name, None if identified else "")
            return
        proven = self._proven.get(peer, set())
        guesses = () if (name, token) in proven else (f"{peer.host} queue {name}",)
        self._security.guesses.check(guesses)
        try:
            record = self._queues.find(name, token.decode("utf-8", "replace"))
        except ForbiddenError:
            self._security.guesses.fail(guesses)
            raise
        if record.token and len(proven) < PROVEN:
            self._proven[peer] = proven | {(name, token)}

    def check_administrator(self, peer: Peer, credential: Credential) -> None:
        """Check that a message comes from an administrator, and set the peer's principal.

        The administrator's token proves it. Without a configured token everyone is one; with security on, the
        permissions of the principal are checked as well. Raises UnauthenticatedError, TooManyFailuresError.
        """
        security = self._security
        codes = [security.admin_token, credential.code if security.enabled else ""]
        if self.identify(peer, credential.token) or not any(codes):
            return
        if security.is_administrator(credential.token or b"", codes, peer.host):
            if security.enabled:
                peer.principal = OWNER
        elif security.admin_token:
            raise UnauthenticatedError("the administrator's token is wrong or missing")

    def leave(self, peer: Peer) -> None:
        """Forget a peer that has disconnected."""
        self._proven.pop(peer, None)
