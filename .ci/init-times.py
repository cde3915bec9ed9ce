"""Prints how long each function takes from the start of its process until it requests its first event.

A small server replaces Lambda's Runtime API. Each function is started in two ways:
- The AWS endpoints refuse connections. This measures the function's own initialization, whose budget is 3 times that of an
  empty function of the same kind.
- A server responds to the function's warm-up call at once. This measures the time of that call, and checks that there is
  exactly one.

Other load on the machine can only make a start slower, so the fastest of several starts is compared. The script prints when
a time is over its budget, but fails only above 6 times the empty function's.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
from lambda_server import REFUSED, Run  # noqa: E402

RUNS = 25
BUDGET = 3.0
GROSS = 6.0
BASELINES = {
    "command-handler": "empty-http",
    "order-mails": "empty-stream",
    "projector": "empty-stream",
    "reactor": "empty-stream",
    "snapshotter": "empty-stream",
    "stream-relay": "empty-stream",
}


def start(function, variables):
    """Starts the function once. Returns its initialization time in milliseconds, and its calls to AWS."""
    respond = lambda *_: (400, b'{"__type":"ValidationException","message":"nothing is here"}', 0)
    run = Run([f"target/lambda/{function}/bootstrap"], [], respond, variables).wait()
    return run.initialization * 1000, len(run.server.calls_of_start)


def main():
    functions = [*sorted(set(BASELINES.values())), *BASELINES]
    alone, with_call, calls = {}, {}, {}
    for run in range(RUNS + 1):
        # In turns, so that other load on the machine affects all functions alike.
        for function in functions:
            own, _ = start(function, REFUSED)
            called, calls[function] = start(function, {})
            if run:  # the first run is slower, because it reads the file from the disk
                alone[function] = min(own, alone.get(function, own))
                with_call[function] = min(called, with_call.get(function, called))
    gross = False
    for function in functions:
        own, called = alone[function], with_call[function]
        line = f"{function:16} {own:5.2f} ms"
        if function in BASELINES:
            base = alone[BASELINES[function]]
            ratio = own / base
            line += f", {ratio:.1f} x {BASELINES[function]}" + (f": over {BUDGET:.0f} x" if ratio > BUDGET else "")
            line += f"; with {calls[function]} call to AWS {called:.2f} ms, {called / base:.1f} x"
            gross |= ratio > GROSS
            if calls[function] != 1:
                sys.exit(f"{function} makes {calls[function]} calls before its first event, expected only the warm-up call")
        print(line)
    if gross:
        sys.exit(f"an initialization takes more than {GROSS:.0f} times that of an empty function")


main()
