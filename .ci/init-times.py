"""Prints how long each function takes from the start of its process until it requests its first event.

A small server replaces Lambda's Runtime API. Each function is started in two ways:
- The AWS endpoints refuse connections. This measures the function's own initialisation, whose budget is 3 times that of an
  empty function of the same kind.
- A server responds to the function's warm-up call at once. This measures the time of that call, and checks that there is
  exactly one.

Other load on the machine can only make a start slower, so the fastest of several starts is compared. The script prints when
a time is over its budget, but fails only above 6 times the empty function's.
"""

import http.server
import subprocess
import sys
import threading
import time

RUNS = 25
BUDGET = 3.0
GROSS = 6.0
BASELINES = {
    "command-handler": "empty-http",
    "order-mails": "empty-stream",
    "projector": "empty-stream",
    "snapshotter": "empty-stream",
    "stream-relay": "empty-stream",
}


class Services(http.server.BaseHTTPRequestHandler):
    """A server for the Runtime API and for any AWS service."""

    protocol_version = "HTTP/1.1"
    asked = threading.Event()
    calls = 0

    def do_GET(self):
        Services.at = time.perf_counter()
        Services.asked.set()
        time.sleep(60)  # there is no event

    def do_POST(self):
        Services.calls += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"__type":"ValidationException","message":"nothing is here"}'
        self.send_response(400)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def environment(port, aws_answers):
    endpoint = f"http://127.0.0.1:{port if aws_answers else 1}"
    return {
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}",
        "AWS_LAMBDA_FUNCTION_NAME": "function",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_ENDPOINT_URL": endpoint,
        "RUST_LOG": "info",
        "TABLE_NAME": "daybook-dev",
        "VIEWS_TABLE_NAME": "daybook-views",
        "EVENT_BUS_NAME": "daybook",
        "EVENT_SOURCE": "com.example.daybook",
        "DLQ_URL": f"{endpoint}/000000000000/daybook-dlq",
    }


def milliseconds(function, port, aws_answers):
    """Starts the function once and returns its initialisation time."""
    Services.asked.clear()
    Services.calls = 0
    began = time.perf_counter()
    process = subprocess.Popen(
        [f"target/lambda/{function}/bootstrap"], env=environment(port, aws_answers), stdout=subprocess.DEVNULL
    )
    try:
        if not Services.asked.wait(30):
            sys.exit(f"{function} does not request an event")
        return (Services.at - began) * 1000
    finally:
        process.kill()
        process.wait()


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    functions = [*sorted(set(BASELINES.values())), *BASELINES]
    times, calls = {}, {}
    for run in range(RUNS + 1):
        # In turns, so that other load on the machine affects all functions alike.
        for function in functions:
            for aws_answers in (False, True):
                took = milliseconds(function, server.server_port, aws_answers)
                calls[function] = Services.calls
                if run:  # the first run is slower, because it reads the file from the disk
                    times.setdefault((function, aws_answers), []).append(took)
    fastest = {start: min(of) for start, of in times.items()}
    gross = False
    for function in functions:
        own, called = fastest[function, False], fastest[function, True]
        line = f"{function:16} {own:5.2f} ms"
        if function in BASELINES:
            base = fastest[BASELINES[function], False]
            ratio = own / base
            line += f", {ratio:.1f} x {BASELINES[function]}" + (f": over {BUDGET:.0f} x" if ratio > BUDGET else "")
            line += f"; with {calls[function]} call to AWS {called:.2f} ms, {called / base:.1f} x"
            gross |= ratio > GROSS
            if calls[function] != 1:
                sys.exit(f"{function} makes {calls[function]} calls before its first event, expected only the warm-up call")
        print(line)
    if gross:
        sys.exit(f"an initialisation takes more than {GROSS:.0f} times that of an empty function")


main()
