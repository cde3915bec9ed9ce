#!/usr/bin/env python3
"""An example of a consumer that answers a message with a command: it hands requested shipments to a carrier.

It is a Lambda function behind a queue. Lambda's Python has botocore, so this file is the whole package, and nothing is built.
"""

import json
import os
from typing import Any
from urllib.request import Request, urlopen

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.httpsession import URLLib3Session
from botocore.session import Session

AWS, HTTP = Session(), URLLib3Session(timeout=(1, 4))

# Problems that are the answer to a command. After every other error, the queue delivers the message again, and after the fifth, it
# is in the dead-letter queue, whose alarm rings: the API was unavailable, or this function or its permissions are wrong.
ANSWERS = ["urn:daybook:problem:refused", "urn:daybook:problem:deleted"]


def answer(message: Any) -> str:
    """Sends the command that answers a message. Raises an error if the message must be delivered again."""
    metadata = message["detail"]["metadata"]
    shipment, id = metadata["aggregateId"], metadata["messageId"]
    command = {"command": "CollectShipment", "data": {"trackingNumber": f"T-{shipment}"}}
    trace = {"X-Causation-Id": id, "X-Correlation-Id": metadata.get("correlationId", id)}
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"carrier/{id}", **trace}
    request = AWSRequest("POST", f"{os.environ['API_URL']}/shipment/{shipment}/commands", headers, json.dumps(command))
    SigV4Auth(AWS.get_credentials(), "execute-api", os.environ["AWS_REGION"]).add_auth(request)
    response = HTTP.send(request.prepare())
    if response.status_code >= 300 and json.loads(response.text).get("type") not in ANSWERS:
        raise RuntimeError(f"the API responded with {response.status_code}: {response.text}")
    return f"{response.status_code}: {response.text}"


def handler(event: Any, _: object) -> dict[str, Any]:
    """Answers a batch of messages. Returns the partial batch response."""
    failures = []
    for record in event["Records"]:
        result = {"level": "INFO", "message": record.get("body")}
        try:
            result["response"] = answer(json.loads(record["body"]))
        except Exception as error:
            result |= {"level": "ERROR", "error": repr(error)}
            failures.append({"itemIdentifier": record["messageId"]})
        print(json.dumps(result), flush=True)
    return {"batchItemFailures": failures}


# The local stack starts this file as a program, which gets its batches over Lambda's Runtime API.
if __name__ == "__main__":
    invocations = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
    while True:
        with urlopen(f"{invocations}/next") as response:
            invocation, event = response.headers["Lambda-Runtime-Aws-Request-Id"], json.load(response)
        urlopen(Request(f"{invocations}/{invocation}/response", json.dumps(handler(event, None)).encode())).close()
