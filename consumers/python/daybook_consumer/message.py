"""A message of the bus, and the order of an aggregate's messages."""

from collections.abc import Iterable, Mapping
from typing import Any

# The part of an event that is the same at each delivery: its `detail-type`, and its `detail` with `metadata` and `data`.
Message = Mapping[str, Any]
# An epoch and the number of a message in it.
Place = tuple[int, int]

TEXTS = ("messageId", "eventId", "occurredAt", "aggregateType", "aggregateId")
NUMBERS = {"seqNum": 0, "eventVersion": 0, "messageSeq": 1, "epoch": 1, "previousEpoch": 0}


def is_number(name: str, value: Any) -> bool:
    return type(value) is int and NUMBERS[name] <= value < (2**32 if "poch" in name else 2**64 - 1)


def message_of(event: Any) -> Message:
    """Returns the message of an event. Raises an error if the event is no message of Daybook."""
    name, metadata = event["detail-type"], event["detail"]["metadata"]
    # A member that is null is as none, and `previousEpoch` may be missing.
    metadata = {"previousEpoch": 0} | {member: value for member, value in metadata.items() if value is not None}
    texts = [name, *map(metadata.get, TEXTS)]
    is_valid = all(isinstance(text, str) for text in texts) and all(is_number(one, metadata.get(one)) for one in NUMBERS)
    if not is_valid or any(not part or "#" in part or "/" in part for part in texts[-2:]):
        raise ValueError("the event is no message of Daybook")
    return {"detail-type": name, "detail": event["detail"]}


def place_of(message: Message) -> Place:
    metadata = message["detail"]["metadata"]
    return metadata["epoch"], metadata["messageSeq"]


def id_of(message: Message) -> str:
    return str(message["detail"]["metadata"]["messageId"])


def _is_next(last: Place, message: Message) -> bool:
    (last_epoch, last_seq), (epoch, seq) = last, place_of(message)
    if epoch == last_epoch:
        return seq == last_seq + 1
    previous = message["detail"]["metadata"].get("previousEpoch")
    is_first = seq == 1 or (previous is not None and previous <= last_epoch)
    return epoch > last_epoch and is_first and seq <= last_seq + 1


def next_message(last: Place, messages: Iterable[Message]) -> Message | None:
    """Returns the message that follows `last`.

    The first one of a later epoch comes before others: it shows that the messages of earlier epochs with its number are of
    lost events.
    """
    following = [message for message in messages if _is_next(last, message)]
    return min(following, key=lambda message: (-place_of(message)[0], place_of(message)[1]), default=None)
