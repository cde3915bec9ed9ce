"""The messages of one aggregate: applies those whose turn has come, and stores the others."""

import copy
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from .message import Message, id_of, next_message, place_of
from .table import InvalidChangesError, Item, Rows, State, Table

Handle = Callable[[Any, Rows], None]

# Maximum transactions in a row for which other writers are faster, and stored messages that a transaction deletes.
MAX_RETRIES, MAX_REMOVED = 12, 90


def log(level: str, message: str, **fields: Any) -> None:
    """Writes a line of JSON to the standard output, which Lambda passes to the log as it is."""
    print(json.dumps({"timestamp": datetime.now(UTC).isoformat(), "level": level, "message": message, **fields}), flush=True)


class Receiver:
    def __init__(self, table: Table, handle: Handle, max_attempts: int, aggregate: str, messages: list[Message]) -> None:
        self._table, self._handle, self._max_attempts = table, handle, max_attempts
        self._read, self._write = partial(table.state, aggregate), partial(table.write, aggregate)
        self._messages = sorted(messages, key=place_of)
        self.applied, self.failed = 0, 0
        # The ids of the messages that must be delivered again.
        self.retry: set[str] = set()

    def receive(self, cutoff: float, change: Callable[[State], Item] | None = None) -> None:
        """Changes the position, and then applies or stores the messages, until the time `cutoff`."""
        state, retries = None, 0
        while retries <= MAX_RETRIES:
            if time.monotonic() >= cutoff:
                raise TimeoutError("the time of the invocation is up")
            state = state or self._read(map(place_of, self._messages))
            written = self._step(state, change) if state else False
            if written is None:
                return
            time.sleep(0 if written else random.random() * min(0.5, 0.01 * 2**retries))
            change, retries = (None, 0) if written else (change, retries + 1)
            state = state if written and state and state.position["waiting"] <= len(state.stored) else None
        raise TimeoutError("other writers were faster")

    def _step(self, state: State, change: Callable[[State], Item] | None) -> bool | None:
        """Makes a transaction. Returns `False` if the state must be read again, and `None` if nothing is left to do."""
        last, stored = state.last, state.stored
        if change:
            return self._write(state, position=change(state))
        if passed := [place for place in stored if place <= last]:
            return self._write(state, remove=passed[:MAX_REMOVED])
        known = {place_of(message): message for message in reversed(self._messages)} | stored
        for message in self._messages:
            place = place_of(message)
            message_id = state.position.get("messageId") if place == last else id_of(known[place])
            if message_id not in (None, id_of(message)) and id_of(message) not in self.retry:
                log("ERROR", "two messages have the same number", metadata=message["detail"]["metadata"], known=message_id)
                self.retry.add(id_of(message))
        is_stopped = self.failed or state.position["attempts"] >= self._max_attempts
        if not is_stopped and (following := next_message(last, known.values())):
            return self._apply(state, following)
        rest = [message for message in self._messages if place_of(message) > last and place_of(message) not in stored]
        return self._write(state, store=rest[0]) if rest else None

    def _apply(self, state: State, message: Message) -> bool:
        rows, last, (epoch, seq) = Rows(self._table), state.last, place_of(message)
        position = {"epoch": epoch, "messageSeq": seq, "messageId": id_of(message), "attempts": 0, "error": None}
        remove = [place_of(message)] if place_of(message) in state.stored else []
        try:
            self._handle(copy.deepcopy(message), rows)
        except Exception as error:
            if not rows.failure:
                return self._fail(state, message, error)
        if rows.failure:
            raise rows.failure
        try:
            written = self._write(state, position=position, remove=remove, rows=rows.writes())
        except (InvalidChangesError, TypeError) as error:
            return self._fail(state, message, error)
        self.applied += written
        lost = last[1] + 1 - seq if written and epoch > last[0] else 0
        if lost > 0:
            log("ERROR", "applied messages are of events that a restore has lost", metadata=message["detail"]["metadata"], lost=lost)
        return written

    def _fail(self, state: State, message: Message, error: Exception) -> bool:
        # The request of an operator is not repeated as a delivery is, so its attempt is the last one.
        attempts = state.position["attempts"] + 1 if self._messages else self._max_attempts
        if not self._write(state, position={"attempts": attempts, "error": str(error)[:1000]}):
            return False
        self.failed += 1
        log("ERROR", "a message cannot be applied", metadata=message["detail"]["metadata"], attempts=attempts, error=repr(error))
        # The next delivery makes the next attempt: of this message, or of another one if it was stored.
        same = [one for one in self._messages if place_of(one) == place_of(message)] or self._messages[-1:]
        if attempts < self._max_attempts:
            self.retry |= {id_of(one) for one in same[:1]}
        return True
