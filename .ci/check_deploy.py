"""Deploys the project in this folder to an emulator of AWS, as a user does, updates and checks it: `check_deploy.py DAYBOOK`.

`daybook deploy` runs `sam build`, and `sam deploy`, which uploads the functions and the nested templates, and creates or updates the
stack by a change set. check_stacks.py describes how the emulator creates the resources, and what it does not show. The command
of the canary is executed by the built command handler, with the variables of the deployed one, and the project's local stack
takes its message to the bus.
"""

import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading

import check_stacks as stacks
import requests
from check_stacks import ACCOUNT, REGION, client
from moto import mock_aws
from moto.cloudformation import responses
from moto.cloudformation.models import ChangeSet, CloudFormationBackend
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket
from readme_commands import local_stack

EMULATE = pathlib.Path(__file__).resolve().parent / "emulate"
TUTORIAL = pathlib.Path(__file__).resolve().parent.parent / "docs/tutorial.md"


def create_change_set(self, template, parameters, create=CloudFormationBackend.create_change_set, **others):
    """Applies the transform of SAM first, as CloudFormation does."""
    created = json.dumps(stacks.as_created(stacks.yaml_parse(template), parameters))
    return create(self, template=created, parameters=parameters, **others)


def apply(change_set):
    """Creates or updates the stack of a change set. In moto, such a stack has no outputs."""
    stack, template, parameters = change_set.stack, change_set.template, change_set.parameters
    if change_set.change_set_type == "UPDATE":
        stack.update(template, parameters=parameters)
    else:
        stack.__init__(stack.stack_id, stack.name, template, parameters, ACCOUNT, REGION, tags=change_set.tags)
        stack.create_resources()


CloudFormationBackend.create_change_set, ChangeSet.apply = create_change_set, apply
# moto reads templates only from the addresses of AWS.
responses.get_stack_from_s3_url = lambda url, **_: json.dumps(stacks.source(url))
# moto ignores conditions of policies, such as that of SAM's bucket, which denies calls without TLS.
FakeBucket.get_permission = lambda *_: PermissionResult.NEUTRAL


class Aws(http.server.BaseHTTPRequestHandler):
    """All services of AWS at one address: the emulator in this process, and the built command handler."""

    protocol_version = "HTTP/1.1"
    dynamodb_port: int
    one_by_one = threading.Lock()

    def respond(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.one_by_one:
            status, headers, content = self.call(body)
        self.send_response(status)
        for name in {"Content-Type", "ETag"} & headers.keys():
            self.send_header(name, headers[name])
        self.send_header("Content-Length", len(content))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)

    do_GET = do_HEAD = do_POST = do_PUT = respond

    def call(self, body):
        invoked = re.fullmatch(r"/2015-03-31/functions/(.*)%3Alive/invocations", self.path)
        if invoked:
            return 200, {}, self.invoke(invoked[1], body)
        if self.path == "/2016-08-19/account-settings/":  # moto has no such operation
            return 200, {}, b'{"AccountLimit": {"ConcurrentExecutions": 10}}'
        service = self.headers["Authorization"].split("/")[3]
        headers = {name: value for name, value in self.headers.items() if name not in ("Host", "Expect")}
        url = f"https://{service}.{REGION}.amazonaws.com{self.path}"
        response = requests.request(self.command, url, headers=headers, data=body)
        # The message is seen on the bus of the local stack.
        content = re.sub(rb"EVENT_BUS_NAME=shop-\w+-bus", b"EVENT_BUS_NAME=daybook", response.content)
        return response.status_code, response.headers, content

    def invoke(self, function, event):
        """Executes the built command handler, with the variables of the deployed one and the table of the local stack."""
        deployed = client("lambda").get_function_configuration(FunctionName=function, Qualifier="live")
        local = pathlib.Path("events/env.json").read_text().replace(":8000", f":{self.dynamodb_port}")
        variables = deployed["Environment"]["Variables"] | json.loads(local)["CommandHandler"]
        variables = {name: str(value) for name, value in variables.items()}  # moto has numbers
        with tempfile.NamedTemporaryFile("w") as environment, socket.create_server(("127.0.0.1", 0)) as free:
            json.dump({"CommandHandler": variables}, environment)
            environment.flush()
            of_emulate = {"ENVIRONMENT": environment.name, "EMULATOR_PORT": str(free.getsockname()[1])}
            free.close()
            command = [EMULATE, "CommandHandler", "/dev/stdin"]
            return subprocess.run(command, input=event, env=os.environ | of_emulate, stdout=subprocess.PIPE, check=True).stdout

    def log_message(self, *_):
        pass


def deploy(daybook, variables, *missing, stack="shop-staging", options=("--config-env", "staging")):
    """Deploys the project, and asserts that the last lines of the output are those of a deployment that lacks this."""
    command = [daybook, "deploy", *options]
    output = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True).stdout
    patterns = [rf"deployed {stack}: https://\w+\.execute-api\.{REGION}\.amazonaws\.com", "message on the bus, .*"]
    patterns += [f"missing {one}.*" for one in missing]
    lines = output[output.rfind("\ndeployed ") :].strip().splitlines()
    if len(lines) != len(patterns) or not all(map(re.fullmatch, patterns, lines)):
        sys.exit(f"{output}\ndoes not end with {patterns}")
    print(*lines, sep="\n")


def check_deployment(daybook, variables, api):
    """Checks the deployed alarms, and the table, the bus and the queues of the local stack.

    The check of event source mappings is left out: they read the emulator's table.
    """
    local = requests.get(f"http://127.0.0.1:{api}/_dev/environment").text
    environment = os.environ | dict(re.findall(r"^export (\w+)='(.*)'$", local, re.MULTILINE)) | variables | {"STACK": "shop-staging"}
    command = [daybook, "check-deployment"]
    listed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    checks = [name for name in re.findall("^would-check (.*?):", listed, re.MULTILINE) if name != "event-source-mappings"]
    subprocess.run([*command, *checks, "--yes"], env=environment, check=True)


def check(daybook):
    with mock_aws(), local_stack(daybook) as (api, dynamodb, bus):
        Aws.dynamodb_port = dynamodb
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Aws)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = {"DYNAMODB": dynamodb, "EVENTBRIDGE": bus, "SQS": bus}
        ports |= dict.fromkeys(["CLOUDFORMATION", "CLOUDWATCH", "LAMBDA", "S3", "SNS", "STS"], server.server_port)
        variables = {f"AWS_ENDPOINT_URL_{service}": f"http://127.0.0.1:{port}" for service, port in ports.items()}
        variables |= {"AWS_REGION": REGION, "SAM_CLI_POLL_DELAY": "1"}
        parts = ["ReadModels=true in samconfig.toml", "Reactor=processes in samconfig.toml"]
        nobody, few = "nobody gets the alarms: .*", "the account runs only 10 functions"
        deploy(daybook, variables, *parts, nobody + "NotificationsTopic", nobody + "TicketsTopic", few)
        config = pathlib.Path("samconfig.toml")
        config.write_text(config.read_text().replace("AlarmEmail=none", "AlarmEmail=me@example.com"))
        deploy(daybook, variables, *parts, few)
        check_deployment(daybook, variables, api)
        # As the tutorial does, with its parameters, but of a project that also has processes.
        line = re.search(r"^```toml\n(parameter_overrides = .*\n)```$", TUTORIAL.read_text(), re.MULTILINE)[1]
        config.write_text(re.sub(r"^parameter_overrides = .*\n", line, config.read_text(), count=1, flags=re.MULTILINE))
        deploy(daybook, variables, parts[1], "there are no alarms and no dashboard: .*", few, stack="shop-dev", options=())


check(sys.argv[1])
