"""Runs a function as Lambda does: a server for the Runtime API, which is also the AWS endpoint of the function."""

import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import threading
import time

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"}
READS = {"GetItem", "Query", "BatchGetItem", "Scan", "TransactGetItems"}


class Call:
    """A call to AWS: its operation, the bytes of both bodies, and the capacity units that it consumed."""

    def __init__(self, operation, sent, received, units, failed):
        self.operation, self.sent, self.received, self.failed = operation, sent, received, failed
        self.read_units = units if operation in READS else 0
        self.write_units = units if operation in WRITES else 0


class Engine:
    """The DynamoDB engine of a local stack, whose own table stays empty."""

    def __init__(self, daybook, workspace):
        ports = ["--port", "0", "--dynamodb-port", "0", "--bus-port", "0"]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen([daybook, "dev", *ports], cwd=workspace, **output)
        lines = []
        while not (lines and "DynamoDB" in lines[-1]):
            lines.append(self.process.stdout.readline())
            if not lines[-1]:
                raise SystemExit("the local stack does not start: " + "".join(lines))
        self.port = int(re.search(r"DynamoDB +http://127.0.0.1:(\d+)", lines[-1])[1])
        self.connections = threading.local()
        # What it prints later is not read, and must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def post(self, operation, body):
        """Sends a request, and returns the status and the body of the response."""
        connection = getattr(self.connections, "connection", None)
        if connection is None:
            connection = self.connections.connection = http.client.HTTPConnection("127.0.0.1", self.port)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "Authorization": "AWS4-HMAC-SHA256 Credential=local/20261122/us-east-1/dynamodb/aws4_request, "
            "SignedHeaders=host, Signature=0",
            "X-Amz-Date": "20261122T000000Z",
        }
        connection.request("POST", "/", body, headers)
        response = connection.getresponse()
        return response.status, response.read()

    def call(self, operation, **request):
        """Calls an operation that must succeed."""
        status, body = self.post(operation, json.dumps(request))
        if status != 200:
            raise RuntimeError(f"{operation} fails: {body.decode()}")
        return json.loads(body)

    def respond(self, operation, body):
        """Responds to a call of a function as DynamoDB does. Returns the consumed units too."""
        request = json.loads(body)
        asked = "ReturnConsumedCapacity" in request
        if operation in READS | WRITES:
            request["ReturnConsumedCapacity"] = "TOTAL"
        status, response = self.post(operation, json.dumps(request))
        if operation not in READS | WRITES:
            return status, response, 0
        parsed = json.loads(response)
        consumed = parsed.get("ConsumedCapacity") or []
        consumed = consumed if isinstance(consumed, list) else [consumed]
        units = sum(table["CapacityUnits"] for table in consumed)
        if not asked:
            parsed.pop("ConsumedCapacity", None)
            response = json.dumps(parsed, separators=(",", ":")).encode()
        return status, response, units

    def stop(self):
        self.process.terminate()
        self.process.wait()


def canned(operation, body):
    """Responds at once, as a service that accepts everything."""
    response = b"{}"
    if operation == "PutEvents":
        entries = [{"EventId": f"00000000-0000-4000-8000-{n:012}"} for n in range(len(json.loads(body)["Entries"]))]
        response = json.dumps({"FailedEntryCount": 0, "Entries": entries}, separators=(",", ":")).encode()
    elif operation == "DescribeEventBus":
        response = b'{"Name":"daybook","Arn":"arn:aws:events:us-east-1:123456789012:event-bus/daybook"}'
    return 200, response, 0


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, events, respond):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.events, self.respond = list(events), respond
        self.started = None  # when the function asked for its first event
        self.finished = threading.Event()
        self.passed, self.answered, self.failed = 0, 0, 0
        self.responses, self.latencies, self.passed_at = {}, [], {}
        self.calls, self.first_calls = [], []

    def next_event(self):
        """The number and the text of the next event; None when there is no other one."""
        with self.lock:
            if self.started is None:
                self.started = time.perf_counter()
                self.first_calls, self.calls = self.calls, []
            if self.passed == len(self.events):
                if self.answered == len(self.events):
                    self.finished.set()
                return None
            number, self.passed = self.passed, self.passed + 1
            self.passed_at[number] = time.perf_counter()
            return number, self.events[number]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self):
        event = self.server.next_event()
        if event is None:
            time.sleep(600)  # there is no other event
            return
        number, text = event
        headers = {
            "Lambda-Runtime-Aws-Request-Id": f"00000000-0000-4000-8000-{number:012}",
            "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + 300_000),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:123456789012:function:function",
            "Lambda-Runtime-Trace-Id": "Root=1-6b00bd67-00000000000000000000000b;Parent=0000000000000001;Sampled=0",
        }
        self.reply(200, text.encode(), headers)

    def do_POST(self):
        body = self.body()
        if "/runtime/" in self.path:
            number = int(self.path.split("/")[-2][-12:]) if "/invocation/" in self.path else None
            with self.server.lock:
                self.server.responses[number] = body
                if number is not None:
                    self.server.answered += 1
                    self.server.failed += not self.path.endswith("/response")
                    self.server.latencies.append(time.perf_counter() - self.server.passed_at[number])
            if number is None:  # the initialisation failed
                self.server.failed += 1
                self.server.finished.set()
            self.reply(202, b'{"status":"OK"}')
            return
        operation = (self.headers.get("X-Amz-Target") or "").split(".")[-1]
        status, response, units = self.server.respond(operation, body)
        with self.server.lock:
            self.server.calls.append(Call(operation, len(body), len(response), units, status != 200))
        self.reply(status, response, {"Content-Type": "application/x-amz-json-1.0"})

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def reply(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {"Content-Type": "application/json"}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Run:
    """A process of a function, from its start until it has responded to every event."""

    def __init__(self, command, events, respond, environment, wrapper=()):
        self.server = Server(events, respond)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        endpoint = f"127.0.0.1:{self.server.server_port}"
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [*wrapper, *command],
            env={
                "AWS_LAMBDA_RUNTIME_API": endpoint,
                "AWS_LAMBDA_FUNCTION_NAME": "function",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
                "AWS_LAMBDA_FUNCTION_VERSION": "1",
                "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "local",
                "AWS_SECRET_ACCESS_KEY": "local",
                "AWS_ENDPOINT_URL": f"http://{endpoint}",
                "RUST_LOG": "info",
                "TABLE_NAME": "daybook-bench",
                "EVENT_BUS_NAME": "daybook",
                "EVENT_SOURCE": "com.example.daybook",
                "DLQ_URL": f"http://{endpoint}/000000000000/daybook-dlq",
                "PATH": os.environ["PATH"],
                **environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self):
        """Waits for the last response, and then ends the process. Returns the server with everything that it saw."""
        finished = self.server.finished
        while not finished.wait(0.5):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args} ended: {self.server.responses}")
        self.seconds = time.perf_counter() - self.began
        self.initialisation = self.server.started - self.began if self.server.started else None
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        self.peak_kilobytes = int(fields["VmHWM"].split()[0])
        self.process.terminate()
        self.process.wait()
        self.server.shutdown()
        self.server.server_close()
        return self
