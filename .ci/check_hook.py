"""Runs the deployment hook, deploy/hook, with a server in place of Lambda and CodeDeploy.

The code runs as in Lambda, with the real boto3. The server responds to the hook's calls with the responses of
tests/suite/canary/deployments.json, which tests/suite/canary.rs compares with those of the function, or with a failure.
"""

import http.server
import importlib
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

import boto3  # noqa: F401
from samtranslator.yaml_helper import yaml_parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOOK = yaml_parse((ROOT / "template.yaml").read_text())["Resources"]["DeploymentHook"]["Properties"]
DEPLOYMENTS = json.loads((ROOT / "tests/suite/canary/deployments.json").read_text())
FUNCTION = "arn:aws:lambda:eu-central-1:123456789012:function:daybook-prod-CommandHandler-EXAMPLE"
EXECUTION = "eyJlbmNyeXB0ZWREYXRhIjoi"


def response(call):
    """The response of the function to a call, as Lambda returns it."""
    return {
        "statusCode": call["status"],
        "headers": {"content-type": "application/json"},
        "body": json.dumps(call["body"]),
        "isBase64Encoded": False,
        "cookies": [],
    }


# boto3 is imported once: that takes longer than the rest of a run.
FORK = multiprocessing.get_context("fork")


def run_hook(environment, event, output):
    """Runs the hook in this process, which has imported boto3 but not the hook."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / HOOK["Code"]))
    module, function = HOOK["Handler"].split(".")
    print(getattr(importlib.import_module(module), function)(event, None))


class Aws:
    """A server for the calls of the hook. `invoke` responds to Lambda's, `report` to CodeDeploy's."""

    def __init__(self, invoke, report=lambda _: (200, {})):
        self.invoked, self.reported = [], []
        aws = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                assert self.headers["authorization"].startswith("AWS4-HMAC-SHA256 "), "the call is not signed"
                headers = {}
                if self.path == "/":
                    assert self.headers["x-amz-target"] == "CodeDeploy_20141006.PutLifecycleEventHookExecutionStatus"
                    aws.reported.append(json.loads(body))
                    status, answer = report(len(aws.reported))
                else:
                    path = urllib.parse.unquote(self.path)
                    aws.invoked.append((path, json.loads(body)))
                    status, answer, headers = invoke(len(aws.invoked) - 1)
                answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(answer)
                except BrokenPipeError:
                    pass  # the hook did not wait

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # The end of each run waits for this interval.
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def run(self, deployment=DEPLOYMENTS[1], limit="20", **changes):
        """Runs the hook in a process, as Lambda does. Returns its exit code, its output and its seconds."""
        url = f"http://127.0.0.1:{self.server.server_port}"
        environment = {
            "PATH": os.environ["PATH"],
            "AWS_ENDPOINT_URL_LAMBDA": url,
            "AWS_ENDPOINT_URL_CODEDEPLOY": url,
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "NEW_VERSION": f"{FUNCTION}:{deployment['functionVersion']}",
            "LIMIT_SECONDS": limit,
            **changes,
        }
        event = {"DeploymentId": deployment["deploymentId"], "LifecycleEventHookExecutionId": EXECUTION}
        with tempfile.TemporaryFile("w+") as output:
            process = FORK.Process(target=run_hook, args=(environment, event, output.fileno()))
            began = time.monotonic()
            process.start()
            process.join(120)
            seconds = time.monotonic() - began
            process.kill()
            output.seek(0)
            text = output.read()
        self.server.shutdown()
        self.server.server_close()
        return process.exitcode, text, seconds


def recorded(deployment):
    """Lambda that executes the calls of a deployment."""
    executed = {"X-Amz-Executed-Version": deployment["functionVersion"]}
    return lambda index: (200, response(deployment["calls"][index]), executed)


class TheHook(unittest.TestCase):
    def assert_reported(self, aws, deployment, status):
        expected = {
            "deploymentId": deployment["deploymentId"],
            "lifecycleEventHookExecutionId": EXECUTION,
            "status": status,
        }
        self.assertEqual(aws.reported, [expected])

    def test_sends_the_recorded_calls_and_reports_success(self):
        for deployment in DEPLOYMENTS:
            aws = Aws(recorded(deployment))
            code, output, _ = aws.run(deployment)
            self.assertEqual((code, output), (0, "Succeeded\n"))
            self.assert_reported(aws, deployment, "Succeeded")
            path = f"/2015-03-31/functions/{FUNCTION}:{deployment['functionVersion']}/invocations"
            expected = [(path, call["event"]) for call in deployment["calls"]]
            for (_, invoked), (_, event) in zip(aws.invoked, expected):
                if event["body"]:
                    self.assertEqual(json.loads(invoked["body"]), json.loads(event["body"]))
                    invoked["body"] = event["body"]
            self.assertEqual(aws.invoked, expected)

    def test_reports_failure_whatever_lambda_returns(self):
        deployment = DEPLOYMENTS[1]
        write, read = (response(call) for call in deployment["calls"])
        executed = {"X-Amz-Executed-Version": "42"}

        def of(answer, headers=executed, status=200):
            return lambda _: (status, answer, headers)

        def with_body(body, **changes):
            return {**write, "body": body if isinstance(body, str) else json.dumps(body), **changes}

        def then_read(answer):
            return lambda index: (200, [write, answer][index], executed)

        state = deployment["calls"][1]["body"]
        error = {"errorMessage": "RequestId: 1 Error: Runtime exited", "errorType": "Runtime.ExitError"}
        cases = {
            "no permission": of({"Message": "no"}, {"X-Amzn-ErrorType": "AccessDeniedException"}, 403),
            "no such version": of({"Message": "no"}, {"X-Amzn-ErrorType": "ResourceNotFoundException"}, 404),
            "no such function state": of({"Message": "no"}, {"X-Amzn-ErrorType": "ResourceConflictException"}, 409),
            "throttled": of({"Message": "no"}, {"X-Amzn-ErrorType": "TooManyRequestsException"}, 429),
            "Lambda fails": of({"Message": "no"}, {"X-Amzn-ErrorType": "ServiceException"}, 500),
            "a broken error": of(b"<html>", {}, 502),
            "the function crashes": of(error, {**executed, "X-Amz-Function-Error": "Unhandled"}),
            "an error with a usual payload": of(write, {**executed, "X-Amz-Function-Error": "Handled"}),
            "another version": of(write, {"X-Amz-Executed-Version": "41"}),
            "the unpublished version": of(write, {"X-Amz-Executed-Version": "$LATEST"}),
            "no version": of(write, {}),
            "the version answers 500": of(with_body({"type": "internal"}, statusCode=500)),
            "the version answers 503 with a state": lambda index: (200, [{**write, "statusCode": 503}, read][index], executed),
            "the version does not know the canary": of(with_body({"type": "unknown-type"}, statusCode=404)),
            "an empty payload": of(b""),
            "no JSON": of(b"hello"),
            "no text": of(b"\xff\xfe"),
            "a list": of([]),
            "a number": of(7),
            "null": of(b"null"),
            "no status": of({"body": "{}"}),
            "no body": of({"statusCode": 200}),
            "a body that is no JSON": of(with_body("hello")),
            "a body that is a list": of(with_body([])),
            "a body without a version": of(with_body({})),
            "a read that fails": then_read({**read, "statusCode": 404}),
            "a read of another version": then_read({**read, "body": json.dumps({**state, "version": 1})}),
            "a read of another state": then_read({**read, "body": json.dumps({**state, "state": {}})}),
            "a read without a body": then_read({"statusCode": 200}),
        }
        for name, invoke in cases.items():
            with self.subTest(name):
                aws = Aws(invoke)
                code, output, _ = aws.run()
                self.assertEqual((code, output.splitlines()[-1]), (0, "Failed"), output)
                self.assertIn("the new version fails its check", output)
                self.assert_reported(aws, deployment, "Failed")

    def test_tries_again_what_lambda_could_not_execute(self):
        deployment = DEPLOYMENTS[1]
        calls = recorded(deployment)
        throttled = (429, {"Message": "no"}, {"X-Amzn-ErrorType": "TooManyRequestsException"})
        aws = Aws(lambda index: throttled if index == 0 else calls(index - 1))
        self.assertEqual(aws.run()[0], 0)
        self.assert_reported(aws, deployment, "Succeeded")

    def test_reports_failure_within_its_time_when_lambda_hangs(self):
        def hang(_):
            time.sleep(30)
            return 200, {}, {}

        aws = Aws(hang)
        code, output, seconds = aws.run(limit="2")
        self.assertEqual(code, 0, output)
        self.assertIn("TimeUp", output)
        self.assertLess(seconds, 15)
        self.assert_reported(aws, DEPLOYMENTS[1], "Failed")

    def test_reports_failure_when_nothing_listens_or_a_setting_is_missing(self):
        for changes in [{"AWS_ENDPOINT_URL_LAMBDA": "http://127.0.0.1:1"}, {"NEW_VERSION": "odd"}, {"NEW_VERSION": ""}]:
            with self.subTest(changes):
                aws = Aws(recorded(DEPLOYMENTS[1]))
                self.assertEqual(aws.run(**changes)[0], 0)
                self.assert_reported(aws, DEPLOYMENTS[1], "Failed")

    def test_tries_again_to_report_and_fails_when_it_cannot(self):
        failed = (500, {"__type": "InternalServiceError"})
        aws = Aws(recorded(DEPLOYMENTS[1]), lambda count: failed if count < 3 else (200, {}))
        self.assertEqual(aws.run()[0], 0)
        self.assertEqual([report["status"] for report in aws.reported], ["Succeeded"] * 3)
        aws = Aws(recorded(DEPLOYMENTS[1]), lambda _: failed)
        code, output, _ = aws.run()
        self.assertNotEqual(code, 0, output)
        aws = Aws(recorded(DEPLOYMENTS[1]), lambda _: (400, {"__type": "InvalidLifecycleEventHookExecutionIdException"}))
        self.assertNotEqual(aws.run()[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
