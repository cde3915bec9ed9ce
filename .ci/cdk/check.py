"""Packages the templates, synthesizes the CDK application in the given folder, and creates its stack.

`sam package` runs in this process, with the emulator of check_stacks.py and empty functions.
"""

import contextlib
import io
import json
import logging
import os
import pathlib
import subprocess
import sys

import check_stacks as stacks
import yaml
from check_stacks import ACCOUNT, PACKAGES, REGION, ROOT, client
from samcli.commands.package.package_context import PackageContext

WORK = pathlib.Path(sys.argv[1]).resolve()
STACK = "shop"


def build():
    """Writes what `sam build` writes, with empty functions."""
    (WORK / "build/deploy/empty").mkdir(parents=True, exist_ok=True)
    (WORK / "build/deploy/empty/bootstrap").touch()
    for file in ["template.yaml", *(f"deploy/{path.name}" for path in (ROOT / "deploy").glob("*.yaml"))]:
        template = stacks.source(file)
        for resource in template["Resources"].values():
            for code in {"CodeUri", "Code"} & resource.get("Properties", {}).keys():
                resource["Properties"][code] = str(WORK / "build/deploy/empty")
        (WORK / "build" / file).write_text(yaml.safe_dump(json.loads(json.dumps(template))))


def package():
    options = dict.fromkeys(["s3_prefix", "image_repository", "image_repositories", "kms_key_id", "metadata", "profile"])
    flags = dict.fromkeys(["use_json", "force_upload", "no_progressbar", "on_deploy"], False)
    template, packaged = str(WORK / "build/template.yaml"), str(WORK / "packaged.yaml")
    with contextlib.redirect_stdout(io.StringIO()):
        PackageContext(template, PACKAGES, output_template_file=packaged, region=REGION, **options, **flags).run()


def resources(name):
    """The resources of a stack with their types."""
    return {one["LogicalResourceId"]: one["ResourceType"] for one in stacks.resources(name)}


def put(bucket, key, body):
    client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    client("s3").put_object(Bucket=bucket, Key=key, Body=body)


logging.disable(logging.WARNING)
with stacks.account():
    build()
    package()
    packaged = (WORK / "packaged.yaml").read_bytes()
    environment = os.environ | {"CDK_OUTDIR": str(WORK / "synthesized")}
    subprocess.run(["node", "out/app.js"], cwd=WORK, env=environment, check=True)

    # What `cdk deploy` does, in an account after `cdk bootstrap`.
    [asset] = (WORK / "synthesized").glob("asset.*")
    put(f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}", asset.name.removeprefix("asset."), asset.read_bytes())
    client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
    [file] = (WORK / "synthesized").glob("*.template.json")
    template = json.loads(file.read_text())
    release = template["Resources"]["Daybook"]["Properties"]["Parameters"]["Release"]
    body = json.dumps(stacks.as_created(template, {}))
    client("cloudformation").create_stack(StackName=STACK, TemplateBody=body)
    [name] = [one["PhysicalResourceId"] for one in stacks.resources(STACK) if one["LogicalResourceId"] == "Daybook"]
    nested, outputs = resources(name), stacks.described(name, "Output")

    assert asset.read_bytes() == packaged, "the nested template is not that of `sam package`"
    api_url = client("ssm").get_parameter(Name=f"/{STACK}/api-url")["Parameter"]["Value"]
    assert api_url == outputs["ApiUrl"] and api_url.startswith("https://"), api_url
    rules = client("events").list_rules(EventBusName=outputs["EventBusName"])["Rules"]
    assert any('"aggregateType": ["order"]' in rule["EventPattern"] for rule in rules), rules
    stacks.create("alone", "template.yaml", {"AlarmEmail": "none", "Reactor": "deadlines", "Release": release})
    assert nested == resources("alone"), "the nested stack has other resources than a stack of `sam deploy`"
    print(f"passed: {len(nested)} resources, {len(outputs)} outputs")
