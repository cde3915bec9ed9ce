"""Prints how long each function takes from the start of its process until it asks for its first event.

The functions run one after the other beside a small server that is both Lambda's Runtime API and the AWS services: it
never has an event, and answers any call at once with an error, so what is measured is the function's own work. Budget:
3 times an empty function of its kind. Times are measured and machines differ, so only a gross excess fails.
"""

import http.server
import os
import statistics
import subprocess
import sys
import threading
import time

RUNS = 15
BUDGET = 3.0
GROSS = 10.0
BASELINES = {"command-handler": "empty-http", "snapshotter": "empty-stream", "stream-relay": "empty-stream"}


class Services(http.server.BaseHTTPRequestHandler):
    """The Runtime API and any AWS service."""

    protocol_version = "HTTP/1.1"
    asked = threading.Event()
    calls = 0

    def do_GET(self):
        Services.at = time.perf_counter()
        Services.asked.set()
        time.sleep(60)  # There is no event.

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


def environment(port):
    endpoint = f"http://127.0.0.1:{port}"
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
        "EVENT_BUS_NAME": "daybook",
        "EVENT_SOURCE": "com.example.daybook",
        "DLQ_URL": f"{endpoint}/000000000000/daybook-dlq",
    }


def milliseconds(function, port):
    """One start."""
    Services.asked.clear()
    Services.calls = 0
    began = time.perf_counter()
    process = subprocess.Popen(
        [f"target/lambda/{function}/bootstrap"], env=environment(port), stdout=subprocess.DEVNULL
    )
    try:
        if not Services.asked.wait(30):
            sys.exit(f"{function} does not ask for an event")
        return (Services.at - began) * 1000
    finally:
        process.kill()
        process.wait()


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    functions = [*sorted(set(BASELINES.values())), *BASELINES]
    times, calls = {function: [] for function in functions}, {}
    for run in range(RUNS + 1):
        # In turns, so that whatever else the machine does meets them all alike.
        for function in functions:
            took = milliseconds(function, server.server_port)
            calls[function] = Services.calls
            if run:  # The first reads the file from the disk.
                times[function].append(took)
    medians = {function: statistics.median(of) for function, of in times.items()}
    gross = False
    for function in functions:
        line = f"{function:16} {medians[function]:6.1f} ms (fastest {min(times[function]):.1f}), {calls[function]} AWS calls"
        if function in BASELINES:
            ratio = medians[function] / medians[BASELINES[function]]
            line += f", {ratio:.1f} x {BASELINES[function]}"
            line += "" if ratio <= BUDGET else f": over the budget of {BUDGET:.0f} x"
            gross |= ratio > GROSS
        print(line)
    sys.exit(gross)


main()
