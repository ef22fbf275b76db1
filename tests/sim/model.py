"""What `docs/understand/guarantees.md` promises, as plain data and plain checks.

Clients tell it what they asked, what they were answered and what they got. It knows nothing of the bus but that page. A
promise that was not kept raises `Broken`, at once where one message shows it, otherwise when the world is at rest
(`check_journal`, `check_live`, `check_asked`) or when everything was consumed (`check_drained`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.sim.messages import TOKEN, Broken, Message, Row, State, token_of
from tests.sim.receivers import Asked, Durable, LiveReader, Observer, Queue

# Why answers are stored that nobody waited for.
_UNWANTED = ("late", "duplicate")
_UNDELIVERABLE = "raceway.undeliverable"


class Model:
    """`now` is the time of the world."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.messages: dict[str, Message] = {}
        self.offsets: dict[tuple[str, int], str] = {}
        self.live: list[LiveReader] = []
        self.observers: list[Observer] = []
        # Messages that are stored as undeliverable.
        self._undeliverable: set[str] = set()
        self.durable: dict[str, Durable] = {}
        self.queues: dict[str, Queue] = {}
        self.asked: dict[str, Asked] = {}
        # Ids for deduplication: token first sent with it.
        self.dedup: dict[tuple[str, str, str], str] = {}
        # Topics that only some may see or publish to: those who may.
        self.secret: dict[str, set[str]] = {}
        # Topics that guests may not use, and since when that is certain.
        self.closed: dict[str, float] = {}
        self.rows: list[Row] = []
        self._published: list[Message] = []
        self.first_kept = 0
        # Where messages were when the journal was last looked at, and how far it went then.
        self._positions: dict[str, int] = {}
        self._looked_until = -1
        # Positions and offsets that the bus told to be lost, and whether files were damaged or removed at all.
        self.told: list[tuple[int, int]] = []
        self.is_damaged = self.is_unsure = False
        # Whether power was lost: what the disk failed to take may then be there after all.
        self.power_lost = False
        # Since when the file is gone that the bus writes to.
        self._gone_since = float("inf")
        # Topics that are bound to a schema; topics of dead letters to those that they are of.
        self.bound: set[str] = set()
        self.letters: dict[str, str] = {}
        # Where dead letters go that are sent again: how many were asked for, and which offsets were told.
        self.redriven_topic = ""
        self.redrives = 0
        self._redriven: set[int] = set()
        # Until when a change of a schema may come into force.
        self.schema_changes_until = -1.0
        # Tokens that are on the topic of dead letters.
        self._dead: set[str] = set()
        self._may_repeat_letters = False
        self.made = 0
        # Copies that clients were given.
        self.taken = 0

    # ---- what clients tell -------------------------------------------------------------------------------------------

    def send(
        self, topic: str, connection: int, *, is_request: bool = False, size: int = 0, is_forbidden: bool = False
    ) -> Message:
        """A new message, as it is about to be sent."""
        self.made += 1
        token = f"m{self.made}"
        is_malformed = topic in self.bound and self.made % 3 == 0
        fits = ',"ok":1' if topic in self.bound and not is_malformed else ""
        payload = f'{{"m":"{token}","x":"{"." * size}"{fits}}}'.encode()
        message = Message(
            token, topic, payload, connection, self.now(), is_request=is_request, is_forbidden=is_forbidden,
            is_malformed=is_malformed, behind=self._looked_until,
        )  # fmt: skip
        self.messages[token] = message
        return message

    def note(self, message: Message, state: State, offset: int | None = None) -> None:
        """The answer to a message."""
        if message.is_forbidden and state in ("acknowledged", "stored"):
            raise Broken(f"{message.token} was accepted from one who may not publish")
        if state == "acknowledged" and message.at > self._gone_since:
            raise Broken(f"{message.token} was acknowledged, and the file of its row was deleted before it was sent")
        if message.is_malformed and state in ("acknowledged", "stored") and not self.is_damaged:
            raise Broken(f"{message.token} was accepted against the schema of {message.topic}")
        if message.state in ("acknowledged", "refused"):
            raise Broken(f"{message.token} was answered twice: {message.state}, then {state}")
        message.state = state
        if offset is not None:
            self.learn(message.topic, offset, message.token)

    def note_redriven(self, offset: int) -> None:
        """A dead letter was sent again, to this offset."""
        self._redriven.add(offset)

    def loosen(self, topic: str) -> None:
        """The schema of a topic is about to be loosened: what is under way may be accepted, or not."""
        self.bound.discard(topic)
        for message in self.messages.values():
            if message.topic == topic and message.state in ("open", "failed"):
                message.is_malformed = False

    def reopen(self, topic: str) -> None:
        """A topic is about to be opened: what guests have under way may be accepted, or not."""
        if self.closed.pop(topic, None) is not None:
            for message in self.messages.values():
                if message.topic == topic and message.state == "open":
                    message.is_forbidden = False

    def learn(self, topic: str, offset: int, token: str) -> None:
        """An offset was seen with a message: it never means another one."""
        known = self.offsets.setdefault((topic, offset), token)
        if known != token:
            raise Broken(f"offset {offset} of {topic} means two messages: {known} and {token}")
        message = self.messages[token]
        if message.offset is None:
            message.offset = offset
        elif message.offset != offset:
            raise Broken(f"{token} of {topic} has two offsets: {message.offset} and {offset}")

    def check_copy(self, token: str, topic: str, payload: bytes, who: str) -> None:
        """A message was received: somebody sent it, to this topic, with these bytes."""
        self.taken += 1
        message = self.messages.get(token)
        if message is None:
            raise Broken(f"{who} got {token}, which nobody sent")
        if message.topic != self.letters.get(topic, topic):
            raise Broken(f"{who} got {token} of {message.topic} as one of {topic}")
        if message.payload != payload and not message.is_converted:
            raise Broken(f"{who} got {token} with other bytes: {payload[:80]!r}")
        if message.state == "refused":
            raise Broken(f"{who} got {token}, which was refused")

    def add_live(self, name: str, wants: Callable[[Message], bool]) -> LiveReader:
        """A live subscription, confirmed now."""
        reader = LiveReader(self, name, wants, self.now())
        self.live.append(reader)
        return reader

    def add_kept(self, name: str, topic: str) -> LiveReader:
        """An event stream that goes on after a loss behind what it has: from the first message on, over restarts."""
        reader = LiveReader(self, name, lambda message: message.topic == topic, -1.0, is_kept=True)
        self.live.append(reader)
        return reader

    def add_observer(self, name: str, topic: str, url: str) -> Observer:
        """A service that observes a topic, attached now."""
        self.observers.append(observer := Observer(self, name, topic, url))
        return observer

    def add_durable(self, name: str, topic: str, *, is_keyed: bool = False) -> Durable:
        """A reliable subscription, confirmed now. One that damage may have taken begins anew."""
        durable = self.durable.setdefault(name, Durable(self, name, topic, self._certain(), is_keyed=is_keyed))
        if self.now() > durable.changes_until:
            durable.since = min(durable.since, self._certain())
        return durable

    def add_queue(self, name: str) -> Queue:
        queue = self.queues.setdefault(name, Queue(self, name, self._certain()))
        queue.since = min(queue.since, self._certain())
        return queue

    def _certain(self) -> float:
        """Since when what is confirmed now is there: not while a file is missing under the running bus."""
        return float("inf") if self.is_unsure else self.now()

    def note_damage(self, *, is_running: bool = False) -> None:
        """A file of rows was damaged, and what is stored in rows may be gone."""
        self.is_damaged = True
        self.is_unsure = is_running
        self._doubt_receivers()

    def note_start(self) -> None:
        """The bus starts, and finds what there is."""
        self.is_unsure = False

    def _doubt_receivers(self) -> None:
        """Subscriptions and queues may be gone, until they are confirmed again."""
        for durable in self.durable.values():
            durable.since = float("inf")
        for queue in self.queues.values():
            queue.since = float("inf")

    def ask(self, message: Message, by: str, deadline: float) -> Asked:
        asked = self.asked[message.token] = Asked(message.token, by, deadline)
        return asked

    def serve(self, token: str, who: str, *, is_late: bool = False) -> None:
        """A service was handed a request; `is_late`: by a bus that has ended meanwhile."""
        asked = self.asked.get(token)
        if asked is None:
            raise Broken(f"{who} was handed {token}, which is no request")
        asked.served += not is_late
        if asked.served > 1:
            raise Broken(f"request {token} was handed out twice, now to {who}")

    def answer(self, token: str, text: str) -> None:
        """The asker was answered, by a service or by the bus."""
        asked = self.asked[token]
        asked.answers.append(text)
        # What a bus has sent that is gone meanwhile, may not have reached its disk.
        asked.is_kept = text.startswith("answer:") and not asked.is_lost
        if len(asked.answers) > 1:
            raise Broken(f"request {token} was answered twice: {asked.answers}")
        if text.startswith("answer:") and text != f"answer:{token}":
            raise Broken(f"request {token} was given the answer to another one: {text}")

    def note_end(self, kind: str) -> None:
        """The bus ended. Live subscriptions and open requests ended with it."""
        self.power_lost = self.power_lost or kind == "power"
        self._gone_since = float("inf")
        self._may_repeat_letters = self._may_repeat_letters or kind != "stop"
        for reader in self.live:
            reader.is_open = reader.is_open and reader.is_kept
        for queue in self.queues.values():
            queue.note_end(kind)
        for observer in self.observers:
            observer.note_end(kind, self.now())
        if kind != "stop":
            self.excuse_answers()
        for asked in self.asked.values():
            asked.is_lost = True
            # A request that lay in a queue may be handed out again, as everything in it.
            asked.served = 0 if kind != "stop" else asked.served

    def note_gone(self) -> None:
        """The file was deleted that the bus writes to: it may acknowledge nothing more until it is started again."""
        self._gone_since = self.now()

    def excuse_letters(self) -> None:
        """Messages that became dead letters may fail again."""
        self._may_repeat_letters = True

    def excuse_answers(self) -> None:
        """No answer waits for the disk: rows of those that came so far may be lost."""
        for asked in self.asked.values():
            asked.is_kept = False

    # ---- the journal -------------------------------------------------------------------------------------------------

    def check_journal(self, rows: Iterable[Row], first_kept: int, told: Iterable[tuple[int, int]]) -> None:
        """All rows that are there, the first position that retention kept, and positions that are told to be lost."""
        before = self.told
        self.rows, self.first_kept, self.told = list(rows), first_kept, list(told)
        if self.told and not self.is_damaged:
            raise Broken(f"positions {self.told[0]} are told to be lost, and nobody damaged a file")
        if any(positions not in before for positions in self.told):
            self._forget_state()
        self._check_rows()
        stored = self._stored()
        self._check_offsets()
        self._check_answers(stored)
        for message in self.messages.values():
            row = stored.get(message.token)
            if message.state == "acknowledged" and row is None and not self._is_excused(message):
                raise Broken(f"{message.token} of {message.topic} was acknowledged and is not in the journal")
            if row is not None and message.is_forbidden:
                raise Broken(f"{message.token} of {message.topic} is of one who may not publish, and in the journal")
            if row is not None and message.is_malformed and not self.is_damaged:
                raise Broken(f"{message.token} is in the journal against the schema of {message.topic}")
            if row is not None and message.state == "refused":
                raise Broken(f"{message.token} of {message.topic} was refused and is in the journal")
            if row is not None and message.state == "failed" and not self.power_lost:
                raise Broken(f"{message.token} of {message.topic} was reported as failed and is in the journal")
        self._check_connections(stored)
        self._positions |= {token: row.sequence for token, row in stored.items()}
        self._looked_until = max([self._looked_until, *(row.sequence for row in self.rows[-1:])])

    def _forget_state(self) -> None:
        """Rows are told to be lost, and cursors and rules are rows, too: what was given before may be given again, and
        what was closed may be open."""
        self._doubt_receivers()
        for topic in list(self.closed):
            self.reopen(topic)
        for durable in self.durable.values():
            durable.acknowledged.clear()
        for queue in self.queues.values():
            queue.again |= queue.seen
            queue.forget_purges()
        for observer in self.observers:
            observer.is_open = False
        for asked in self.asked.values():
            asked.served = 0
        self._may_repeat_letters = True

    def _check_rows(self) -> None:
        time_us = sequence = -1
        for row in self.rows:
            if row.sequence <= sequence:
                raise Broken(f"position {row.sequence} follows {sequence}")
            if row.sequence != sequence + 1 and sequence >= 0 and not self._is_told(sequence + 1, row.sequence - 1):
                raise Broken(f"positions {sequence + 1} to {row.sequence - 1} are missing, and nothing says so")
            if row.time_us < time_us:
                raise Broken(f"time goes back at position {row.sequence}: {time_us} to {row.time_us}")
            time_us, sequence = row.time_us, row.sequence

    def _is_told(self, first: int, last: int) -> bool:
        """Return whether all positions of a range are told to be lost: millions may be."""
        for begin, end in sorted(self.told):
            if begin <= first <= end:
                first = end + 1
        return first > last

    def _stored(self) -> dict[str, Row]:
        """Rows of messages by token: each once, with its own bytes."""
        stored: dict[str, Row] = {}
        self._published = []
        self._dead.clear()
        self._undeliverable.clear()
        redriven: list[int | None] = []
        for row in self.rows:
            if row.topic == _UNDELIVERABLE and (found := TOKEN.search(row.payload)):
                self._undeliverable.add(found[1].decode())
            if row.kind not in ("publish", "request") or row.topic.startswith("raceway."):
                continue
            token = token_of(row.payload, f"the journal at {row.sequence}, on {row.topic},")
            if row.topic == self.redriven_topic:
                self.check_copy(token, row.topic, row.payload, f"the topic {row.topic}")
                redriven.append(row.offset)
                continue
            if row.topic in self.letters:
                self._check_letter(row, token)
                continue
            if token in stored:
                raise Broken(f"{token} is in the journal twice: at {stored[token].sequence} and {row.sequence}")
            if row.kind == "publish":
                self.check_copy(token, row.topic, row.payload, "the journal")
                self._published.append(self.messages[token])
            if row.offset is None:
                raise Broken(f"{token} has no offset")
            self.learn(row.topic, row.offset, token)
            stored[token] = row
        self._check_redriven(redriven)
        return stored

    def _check_redriven(self, offsets: list[int | None]) -> None:
        """Of dead letters that were sent again there are those that were told, and no more than were asked for."""
        if len(offsets) > self.redrives:
            raise Broken(f"{len(offsets)} dead letters were sent again, and {self.redrives} were to be")
        missing = self._redriven.difference(offsets)
        if missing and not self.is_damaged and not self.first_kept:
            raise Broken(f"dead letters were sent again to the offsets {sorted(missing)}, and are not there")

    def _check_answers(self, stored: dict[str, Row]) -> None:
        """An answer is a row behind its request's, which has one, besides those that came late or again."""
        tokens = {row.sequence: token for token, row in stored.items() if row.kind == "request"}
        answered: dict[str, int] = {}
        for row in self.rows:
            if row.kind != "response" or row.error in _UNWANTED:
                continue
            at = -1 if row.answers is None else row.answers
            token = tokens.get(at)
            if token is None and (at < 0 or (at >= self.first_kept and not self._is_told(at, at))):
                raise Broken(f"the answer at {row.sequence} names position {row.answers}, which is no request")
            if token is None:
                continue
            if token in answered:
                raise Broken(f"request {token} has two answers in the journal: {answered[token]} and {row.sequence}")
            answered[token] = row.sequence
            found = TOKEN.search(row.payload)
            if (
                (found is not None and found[1].decode() != token)
                or row.topic != stored[token].topic
                or at > row.sequence
            ):
                raise Broken(f"the answer at {row.sequence} is not one to {token}: {row}")
        for asked in self.asked.values():
            if asked.is_kept and asked.token in stored and asked.token not in answered and not self.is_damaged:
                raise Broken(f"request {asked.token} was answered, and the journal has no answer")

    def _check_letter(self, row: Row, token: str) -> None:
        """A dead letter is the message as it was sent, once, but for a crash between the letter and the cursor."""
        self.check_copy(token, row.topic, row.payload, f"the topic {row.topic}")
        if token in self._dead and not self._may_repeat_letters:
            raise Broken(f"{token} is on {row.topic} twice")
        self._dead.add(token)

    def _check_offsets(self) -> None:
        """Offsets of a topic are dense, but where rows are told to be lost."""
        last: dict[str, Row] = {}
        for row in self.rows:
            if row.offset is None:
                continue
            before = last.get(row.topic)
            if before is not None and before.offset is not None:
                if row.offset <= before.offset:
                    raise Broken(f"offset {row.offset} of {row.topic} follows {before.offset}")
                if row.offset != before.offset + 1 and not self._is_gap_told(before.sequence, row.sequence):
                    raise Broken(f"offsets {before.offset + 1} to {row.offset - 1} of {row.topic} were never given")
            elif before is None and row.offset and not self.first_kept and not self._is_gap_told(-1, row.sequence):
                raise Broken(f"offsets 0 to {row.offset - 1} of {row.topic} were never given")
            last[row.topic] = row

    def _is_gap_told(self, first: int, last: int) -> bool:
        return any(begin <= last and end >= first for begin, end in self.told)

    def _is_excused(self, message: Message) -> bool:
        """Whether a message may be gone: retention took it, or damage that was told.

        The position of one that was never seen in the journal is any behind those that were, when it was sent.
        """
        position = self._positions.get(message.token)
        if position is None:
            return max([self.first_kept - 1, *(end for _, end in self.told)]) > message.behind
        return position < self.first_kept or self._is_told(position, position)

    def _check_connections(self, stored: dict[str, Row]) -> None:
        """Messages of one connection are accepted in the order they were sent."""
        last: dict[tuple[int, str], int] = {}
        for message in self.messages.values():
            row = stored.get(message.token)
            if row is None or message.is_repeated:
                continue
            key = (message.connection, message.topic)
            if row.sequence < last.get(key, -1):
                raise Broken(f"{message.token} of {message.topic} was accepted before one that was sent earlier")
            last[key] = row.sequence

    # ---- at rest -----------------------------------------------------------------------------------------------------

    def published(self, topic: str | None = None) -> Iterator[Message]:
        """Publishes that are in the journal, in its order."""
        return (message for message in self._published if topic is None or message.topic == topic)

    def check_live(self) -> None:
        """Everybody who is there and reads has got everything."""
        for reader in self.live:
            self._check_order(reader)
            if reader.is_open:
                for message in self.published():
                    got = reader.got.get(message.topic, {})
                    if message.at > reader.since and reader.wants(message) and message.token not in got:
                        raise Broken(f"{reader.name} missed {message.token} of {message.topic}")

    def check_observers(self) -> None:
        """Services that are attached were told everything, or it is undeliverable."""
        for observer in self.observers:
            for tokens in observer.on.values():
                told = [self.messages[token] for token in tokens]
                offsets = [each.offset for each in told if each.offset is not None and not each.is_repeated]
                if offsets != sorted(offsets):
                    raise Broken(f"{observer.name} was told messages in another order: {offsets}")
            for message in self.published(observer.topic) if observer.is_open else ():
                is_done = message.token in observer.taken or message.token in self._undeliverable
                if message.at > observer.since and not is_done:
                    how = "never told" if message.token not in observer.told else "told, and not told again,"
                    raise Broken(f"{observer.name} was {how} {message.token}")

    def _check_order(self, reader: LiveReader) -> None:
        for topic, got in reader.got.items():
            taken = [self.messages[token] for token in got]
            # What was handed over before a loss of power took its row has another offset, if it was published again.
            offsets = [each.offset for each in taken if each.offset is not None and not each.is_repeated]
            if offsets != sorted(offsets):
                raise Broken(f"{reader.name} got messages of {topic} in another order: {offsets}")
            for message in self.published(topic) if offsets else ():
                is_between = message.offset is not None and offsets[0] <= message.offset <= offsets[-1]
                if is_between and message.token not in got and reader.wants(message):
                    raise Broken(
                        f"{reader.name} missed {message.token} of {topic}, offset {message.offset}, in between"
                    )

    def waiting(self) -> bool:
        """Return whether somebody waits for an answer that is to come, or for a deadline."""
        return any(
            not asked.answers and not asked.is_lost and asked.deadline != float("inf") for asked in self.asked.values()
        )

    def check_asked(self) -> None:
        for asked in self.asked.values():
            if not asked.answers and not asked.is_lost and self.now() > asked.deadline:
                raise Broken(f"request {asked.token} of {asked.by} was never answered")

    def check_drained(self) -> None:
        """After everything was consumed: durable subscriptions and queues have given out all they were to."""
        stored = {message.token for message in self.published()}
        for durable in self.durable.values():
            for message in self.messages.values():
                # Retention waits for cursors, so that it excuses nothing here.
                is_kept = message.token in stored or (message.state == "acknowledged" and not self.is_damaged)
                if (
                    is_kept
                    and not message.is_request
                    and message.topic == durable.topic
                    and self._is_owed(message, durable)
                ):
                    raise Broken(f"{durable.name} never got {message.token} of {message.topic}")
            for token in sorted(durable.seen - durable.settled - (self._dead if durable.has_letters else set())):
                if token in stored and self.messages[token].at > durable.since:
                    raise Broken(f"{durable.name} got {token}, did not acknowledge it, and never got it again")
        for queue in self.queues.values():
            missed = [message for message in self.published(queue.topic) if self._is_owed(message, queue)]
            excuses = sorted(queue.excuses)
            for message in sorted(missed, key=lambda each: each.at, reverse=True):
                # The latest message with the latest excuse: each consumer can have had one.
                if not excuses or excuses.pop() < message.at:
                    raise Broken(f"queue {queue.name} never handed out {message.token}")

    def _is_owed(self, message: Message, receiver: Durable | Queue) -> bool:
        if isinstance(receiver, Durable) and receiver.has_letters and message.token in self._dead:
            return False
        if isinstance(receiver, Queue) and message.at <= receiver.purged:
            return False
        return message.at > receiver.since and message.token not in receiver.seen and not message.is_malformed
