"""Runs a function as Lambda does: with a server that is both its Runtime API and its endpoint of AWS."""

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
    """A call to AWS: the bytes of both bodies, and the capacity units that it consumed."""

    def __init__(self, operation, sent, received, units):
        self.sent, self.received = sent, received
        self.read_units = units if operation in READS else 0
        self.write_units = units if operation in WRITES else 0


class Engine:
    """The DynamoDB engine of a local stack. The functions of the stack do nothing, because no row changes in its own tables."""

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
        # The stack would wait if it printed more lines than the pipe can hold and nothing read them.
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
    """Responds without delay, like a service that accepts everything."""
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
        self.finished, self.ended = threading.Event(), threading.Event()
        self.passed = 0
        self.responses, self.initialization_error = {}, None
        self.calls = []
        self.calls_until = {}  # by the number of an event, the count of the calls until its response

    def next_event(self):
        """The number and the text of the next event; None when there is no other one."""
        with self.lock:
            if self.started is None:
                self.started = time.perf_counter()
                self.calls_of_start, self.calls = self.calls, []
            if self.passed == len(self.events):
                if len(self.responses) == len(self.events):
                    self.finished.set()
                return None
            number, self.passed = self.passed, self.passed + 1
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
            # The function waits for an event until its process is ended.
            self.server.ended.wait()
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
            with self.server.lock:
                if "/invocation/" in self.path:
                    number = int(self.path.split("/")[-2][-12:])
                    self.server.responses[number] = body
                    self.server.calls_until[number] = len(self.server.calls)
                else:
                    self.server.initialization_error = body
                    self.server.finished.set()
            self.reply(202, b'{"status":"OK"}')
            return
        operation = (self.headers.get("X-Amz-Target") or "").split(".")[-1]
        status, response, units = self.server.respond(operation, body)
        with self.server.lock:
            self.server.calls.append(Call(operation, len(body), len(response), units))
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


def environment(runtime, aws):
    """The environment variables of a function, with the addresses of the Runtime API and of AWS."""
    return {
        "AWS_LAMBDA_RUNTIME_API": runtime,
        "AWS_LAMBDA_FUNCTION_NAME": "function",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_FUNCTION_VERSION": "1",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_ENDPOINT_URL": f"http://{aws}",
        "RUST_LOG": "info",
        "TABLE_NAME": "daybook-bench",
        "VIEWS_TABLE_NAME": "daybook-views",
        "EVENT_BUS_NAME": "daybook",
        "EVENT_SOURCE": "com.example.daybook",
        "DLQ_URL": f"http://{aws}/000000000000/daybook-dlq",
        "REACTIONS_QUEUE_URL": f"http://{aws}/000000000000/daybook-reactions",
        "PATH": os.environ["PATH"],
    }


# The variables of a function whose calls to AWS are refused.
REFUSED = {name: value for name, value in environment("", "127.0.0.1:1").items() if name.endswith("_URL")}


class NotAccepted(Exception):
    """A function failed, or its response says that it did not do everything that an event asked for."""


class Run:
    """A process of a function, from its start until it has responded to every event."""

    def __init__(self, command, events, respond, variables=None, wrapper=(), stderr=subprocess.DEVNULL):
        self.server = Server(events, respond)
        threading.Thread(target=self.server.serve_forever, args=[0.01], daemon=True).start()
        endpoint = f"127.0.0.1:{self.server.server_port}"
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [*wrapper, *command],
            env=environment(endpoint, endpoint) | (variables or {}),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )

    def wait(self):
        """Waits for the last response and ends the process. Every event must have been accepted."""
        while not self.server.finished.wait(0.5):
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args} ended: {self.server.responses}")
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        self.peak_kilobytes = int(fields["VmHWM"].split()[0])
        self.process.terminate()
        self.process.wait()
        self.server.ended.set()
        self.server.shutdown()
        self.server.server_close()
        if self.server.initialization_error:
            raise RuntimeError(f"{self.process.args} does not start: {self.server.initialization_error}")
        for response in map(json.loads, self.server.responses.values()):
            if response.get("statusCode") not in (200, 201) and response.get("batchItemFailures") != []:
                raise NotAccepted(response.get("errorMessage") or response)
        self.initialization = self.server.started - self.began
        return self

    def calls_of(self, event):
        """The calls to AWS during an event."""
        first = self.server.calls_until[event - 1] if event else 0
        return self.server.calls[first : self.server.calls_until[event]]
