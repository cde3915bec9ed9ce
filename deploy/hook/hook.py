"""Writes and reads the canary through the new version of a command handler, and reports the result to CodeDeploy.

`.ci/check-hook` tests it, with servers in place of Lambda and CodeDeploy.
"""

import json
import os
import signal

import boto3
from botocore.config import Config


class TimeUp(BaseException):
    """No Exception: boto3 would catch that, and try again."""


def time_up(*_):
    raise TimeUp("the time is up")


def client(service, seconds):
    retries = {"mode": "standard", "total_max_attempts": 3}
    return boto3.client(service, config=Config(connect_timeout=3, read_timeout=seconds, retries=retries))


def call(function, method, path, query="", data=None):
    """Invokes the new version with a request in the form of API Gateway. Returns the status and the body."""
    http = {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"content-type": "application/json"},
        # API Gateway never sends this id, so no client can send such a request.
        "requestContext": {"apiId": "daybook-deployment-hook", "http": http, "stage": "$default", "timeEpoch": 0},
        "body": json.dumps(data) if data else None,
        "isBase64Encoded": False,
    }
    response = client("lambda", 30).invoke(FunctionName=function, Payload=json.dumps(event))
    payload = response["Payload"].read().decode()
    executed = response.get("ExecutedVersion")
    if "FunctionError" in response or executed != function.rsplit(":", 1)[1]:
        raise ValueError(f"{function}: version {executed} was executed and returned {payload[:1000]}")
    result = json.loads(payload)
    return result["statusCode"], json.loads(result["body"])


def check(function, deployment):
    data = {"deploymentId": deployment, "functionVersion": function.rsplit(":", 1)[1]}
    status, written = call(function, "POST", "/__canary/deployments", data=data)
    if status == 404:
        status, written = call(function, "POST", "/__canary", data={"id": "deployments", **data})
    if status not in (200, 201):
        raise ValueError(f"the write returned {status}: {written}")
    # From all rows, not from what the function remembers of the write.
    status, read = call(function, "GET", "/__canary/deployments", query="rebuild=true")
    if status != 200 or read["version"] != written["version"] or read["state"] != data:
        raise ValueError(f"the write returned {written}, and then the read returned {status}: {read}")


def handler(event, _):
    status = "Failed"
    signal.signal(signal.SIGALRM, time_up)
    try:
        signal.alarm(int(os.environ["LIMIT_SECONDS"]))
        try:
            check(os.environ["NEW_VERSION"], event["DeploymentId"])
        finally:
            signal.alarm(0)
        status = "Succeeded"
    except BaseException as error:
        print(json.dumps({"level": "ERROR", "message": "the new version fails its check", "error": repr(error)}))
    client("codedeploy", 10).put_lifecycle_event_hook_execution_status(
        deploymentId=event["DeploymentId"],
        lifecycleEventHookExecutionId=event["LifecycleEventHookExecutionId"],
        status=status,
    )
    return status
