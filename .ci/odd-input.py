"""Sends each built function events that differ from those of events/ in a few places, and one with each odd body. A function must
respond to each of them, and none may make it panic. `odd-input.py SEED` repeats a run. The services accept every call, and have
no rows."""

import json
import pathlib
import random
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(root / "bench"))
from lambda_server import Run, canned  # noqa: E402

FOLDERS = {name: root / "events" / name for name in ("command-handler", "projector", "reactor", "snapshotter", "stream-relay")}
FOLDERS["order-mails"] = root / "app/order-mails/events"
EVENTS = 300
PATIENCE = 60
ODD = [None, True, 0, -1, 2**64 - 1, 10**400, 1.5, "", "\0", "é", "[", "two words", "x" * 3000, [], {}, [None], {"S": 1}]


def changed(value, chance):
    """The value with another one, or none, in one place. JSON in a text is changed in the text."""
    if isinstance(value, str) and value[:1] in ("{", "[") and chance.random() < 0.8:
        try:
            return json.dumps(changed(json.loads(value), chance))
        except ValueError:
            pass
    if not value or not isinstance(value, (dict, list)) or chance.random() < 0.03:
        return chance.choice(ODD)
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    value = value.copy()
    if chance.random() < 0.15:
        del value[key]
    else:
        value[key] = changed(value[key], chance)
    return value


def with_body(event, odd):
    """The event with another body, or another change of a row, in its first record if it has records."""
    if not event.get("Records"):
        return event | {"body": odd}
    first, *others = event["Records"]
    part = {"dynamodb": odd} if "dynamodb" in first else {"body": odd if isinstance(odd, str) else json.dumps(odd)}
    return event | {"Records": [first | part, *others]}


seed = sys.argv[1] if len(sys.argv) > 1 else str(time.time_ns())
print(f"seed {seed}")
for function, folder in FOLDERS.items():
    chance = random.Random(f"{function} {seed}")
    originals = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json")) if file.name.count(".") == 1]
    events = [with_body(chance.choice(originals), odd) for odd in ODD]
    events += [changed(changed(chance.choice(originals), chance), chance) for _ in range(EVENTS)]
    with tempfile.TemporaryFile("w+") as log:
        run = Run([root / f"target/lambda/{function}/bootstrap"], [json.dumps(event) for event in events], canned, stderr=log)
        run.server.finished.wait(PATIENCE)
        run.process.kill()
        run.process.wait()
        log.seek(0)
        panics = [line for line in log if "panicked at" in line]
    responses = run.server.responses
    print(f"{function}: {len(responses)} responses, {sum(b'errorMessage' in each for each in responses.values())} errors")
    failed = [number for number in range(len(events)) if b"panicked" in responses.get(number, b"panicked")]
    if failed:
        sys.exit(f"{function} panicked or did not respond to {json.dumps(events[failed[0]])}")
    if panics:
        sys.exit(f"{function} panicked: {panics[0]}")
