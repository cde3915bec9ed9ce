"""A whole consumer over SQLite, by the rules of consumers.md."""

import json
import sqlite3


def connect(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("""
        CREATE TABLE IF NOT EXISTS position (aggregate TEXT PRIMARY KEY, epoch INTEGER, seq INTEGER);
        CREATE TABLE IF NOT EXISTS stored (
            aggregate TEXT, epoch INTEGER, seq INTEGER, event TEXT, PRIMARY KEY (aggregate, epoch, seq)
        );
    """)
    return db


def is_next(position, metadata):
    epoch, seq = metadata.get("epoch", 1), metadata["messageSeq"]
    if epoch == position[0]:
        return seq == position[1] + 1
    is_first = seq == 1 or metadata.get("previousEpoch", epoch) <= position[0]
    return epoch > position[0] and is_first and seq <= position[1] + 1


def next_message(db, aggregate, position):
    after = "SELECT epoch, seq, event FROM stored WHERE aggregate = ? AND (epoch, seq) > (?, ?) ORDER BY epoch DESC, seq"
    for epoch, seq, text in db.execute(after, (aggregate, *position)).fetchall():
        event = json.loads(text)
        if is_next(position, event["detail"]["metadata"]):
            return (epoch, seq), event
    return None


def receive(db, event, handle):
    """Applies or stores a message. An exception of `handle` leaves the message stored and the position before it."""
    metadata = event["detail"]["metadata"]
    aggregate = metadata["aggregateType"] + "/" + metadata["aggregateId"]
    place = (metadata.get("epoch", 1), metadata["messageSeq"])
    failure = None
    db.execute("BEGIN IMMEDIATE")
    try:
        known = db.execute("SELECT epoch, seq FROM position WHERE aggregate = ?", (aggregate,)).fetchone()
        position = known or (0, 0)
        if place > position:
            db.execute("INSERT OR IGNORE INTO stored VALUES (?, ?, ?, ?)", (aggregate, *place, json.dumps(event)))
        while found := next_message(db, aggregate, position):
            db.execute("SAVEPOINT message")
            try:
                handle(db, found[1])
            except Exception as error:
                db.execute("ROLLBACK TO message")
                failure = error
                break
            position = found[0]
        db.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?)", (aggregate, *position))
        db.execute("DELETE FROM stored WHERE aggregate = ? AND (epoch, seq) <= (?, ?)", (aggregate, *position))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    if failure:
        raise failure
