"""Creates the stacks of the templates in an emulator of AWS (moto), with each set of parameters; updates and deletes them.

`sam` would package the code and the nested templates, and CloudFormation would apply the transform of SAM. Here, the
template gets the locations of empty packages, and SAM's own translator applies the transform. moto runs in this process, so nothing
listens on a port, and no call leaves the machine.

All sets of parameters, of samconfig.toml and of this script, must reach `CREATE_COMPLETE`, and the updates from each set of a
template to each other one `UPDATE_COMPLETE`. No resource may refer to one that the set does not create. Each condition of the
templates is true in one set and false in another. After each update and the deletion of each stack, all resources with data
must still exist, and after the deletion nothing else. An update creates what a condition adds, and deletes what it removes. It
replaces a resource if one of its properties changes that CloudFormation cannot change, and fails if that resource has a name.

At its end, the script lists the types of resources by the way in which they are created, with their numbers:

- moto's CloudFormation creates tables, bus, rules, archive, queues, bucket, topic, roles, managed policies, functions, event source
  mappings, permissions to invoke, log groups and the dashboard from the properties.
- The script calls moto's API of the service with the properties of API, routes, integration, authorizer, stage, domain and its
  mapping, alarms, metric filters, versions, aliases, CodeDeploy's application and deployment groups, bucket and queue policies, mail
  subscription, web ACL, Firehose's delivery stream, log stream, GitHub's provider and role policies. boto3 rejects unknown names,
  missing ones and wrong types.
- CloudFront's distribution and the capacity provider of managed instances are not created.

What this does not show: the emulator does not check permissions, quotas, the rules of parameters (`Rules`), stack policies or whether
names are taken. It runs no code, moves no traffic and calls no hook. It accepts an update of most types without changing the resource,
and treats `RetainExceptOnCreate` as `Retain`. SAM's transform is that of the version in deploy/requirements.txt.
"""

import collections
import contextlib
import copy
import functools
import itertools
import json
import logging
import os
import pathlib
import re
import tomllib
import unittest
import warnings

REGION, ACCOUNT = "eu-central-1", "123456789012"
os.environ.update(AWS_DEFAULT_REGION=REGION, AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")

import boto3
import botocore.exceptions
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER
from moto import mock_aws
from moto.cloudformation import parsing
from moto.cloudformation.models import Stack, cloudformation_backends
from moto.core.common_models import CloudFormationModel
from moto.events.models import Archive, EventBus
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse

# To make a client takes longer than most calls.
client = functools.cache(boto3.client)

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = "packages"
STACK = "daybook-staging"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"

# The sets of parameters; the others have their defaults. A test checks that each condition is true in one set and false in
# another.
MAIN = {
    "defaults": {},
    "everything": {
        "ReadModels": "true",
        "Reactor": "processes",
        "JwtIssuer": "https://issuer.example.com",
        "JwtAudience": "one,other",
        "AllowedOrigins": "https://app.example.com,https://other.example.com",
        "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
        "KmsKeyArn": KEY,
        "AlarmEmail": "on-call@example.com",
        "Release": "0123456789abcdef",
        "Architecture": "x86_64",
    },
    "read models": {"ReadModels": "true"},
    "reactor": {"Reactor": "deadlines"},
    "processes": {"Reactor": "processes"},
    "tokens": {"JwtIssuer": "https://issuer.example.com", "JwtAudience": "one"},
    "browsers": {"AllowedOrigins": "https://app.example.com"},
    "key": {"KmsKeyArn": KEY, "ReadModels": "true", "Reactor": "deadlines"},
    "boundary": {"PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary"},
    "alarms without mail": {"AlarmEmail": "none"},
    "all at once": {"TrafficShift": "AllAtOnce"},
    "mappings off": {"MappingsEnabled": "false", "AlarmEmail": "none"},
    "restored table": {"TableStreamArn": "of the table", "MappingsEnabled": "false", "Epoch": "2", "ReadModels": "true", "Reactor": "deadlines"},
}

# The sets of `sam deploy`, by their environments.
for name, environment in tomllib.loads((ROOT / "samconfig.toml").read_text()).items():
    if name != "version":
        overrides = [one.split("=", 1) for one in environment["deploy"]["parameters"]["parameter_overrides"]]
        MAIN[f"samconfig.toml, {name}"] = {parameter: value.strip('"') for parameter, value in overrides}

DOMAIN = {"DomainName": "api.example.com", "CertificateArn": f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/1"}
OF_INSTANCES = {
    "Subnets": "subnet-0a,subnet-0b,subnet-0c",
    "SecurityGroups": "sg-0a",
    "MainStack": STACK,
    "HttpApi": "a1b2c3d4e5",
    "TableName": "restored",
    "Role": f"arn:aws:iam::{ACCOUNT}:role/command-handler",
    "DeploymentRole": f"arn:aws:iam::{ACCOUNT}:role/deployment",
    "Notifications": f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms",
}
API = "a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com"
OF_COMMANDS = {
    "ApiArn": f"arn:aws:execute-api:{REGION}:{ACCOUNT}:a1b2c3d4e5/*",
    "ApiUrl": f"https://{API}",
    "EventBusName": "default",
}
OTHERS = {
    "deploy/cloudfront.yaml": {
        "defaults": {"ApiDomain": API},
        "domain": {
            "ApiDomain": API,
            "DomainName": "api.example.com",
            "CertificateArn": f"arn:aws:acm:us-east-1:{ACCOUNT}:certificate/1",
        },
    },
    "deploy/domain.yaml": {
        "root": {**DOMAIN, "HttpApi": "a1b2c3d4e5"},
        "path": {**DOMAIN, "HttpApi": "a1b2c3d4e5", "BasePath": "v1"},
    },
    "deploy/instances.yaml": {
        "defaults": OF_INSTANCES,
        "everything": {
            **OF_INSTANCES,
            "AuthorizerId": "f6g7h8",
            "JwtIssuer": "https://issuer.example.com",
            "ViewsTableName": "views",
            "KeysTableName": "keys",
            "KmsKeyArn": KEY,
            "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
            "Architecture": "x86_64",
        },
    },
    "app/order-mails/template.yaml": {
        "defaults": {"EventBusName": "default"},
        "notifications": {"EventBusName": "default", "Notifications": f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"},
        "boundary": {"EventBusName": "default", "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary"},
    },
    "app/carrier/template.yaml": {
        "defaults": OF_COMMANDS,
        "notifications": {**OF_COMMANDS, "Notifications": f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"},
        "boundary": {**OF_COMMANDS, "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary"},
    },
    "deploy/fan-out.yaml": {
        "queue": {"EventBusName": "default", "ToQueue": "true"},
        "everything but a queue": {
            "EventBusName": "default",
            "AggregateTypes": "order,account",
            "MessageTypes": "OrderPlaced",
            "ToTopic": "true",
            "ToKinesis": "true",
            "ToBucket": "true",
            "BucketDays": "30",
            "NotificationsTopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms",
            "KmsKeyArn": KEY,
            "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
        },
    },
    "deploy/operators.yaml": {
        "defaults": {"MainStack": STACK, "Operators": f"arn:aws:iam::{ACCOUNT}:root"},
        "key": {"MainStack": STACK, "Operators": f"arn:aws:iam::{ACCOUNT}:root", "KmsKeyArn": KEY},
        "boundary": {
            "MainStack": STACK,
            "Operators": f"arn:aws:iam::{ACCOUNT}:root",
            "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/people",
        },
    },
    "deploy/retained.yaml": {"defaults": {}, "key": {"KmsKeyArn": KEY}},
    ".github/aws.yaml": {
        "defaults": {"Repository": "organisation/repository", "Environment": "staging", "StackName": STACK},
        "existing provider": {
            "Repository": "organisation/repository",
            "Environment": "production",
            "StackName": "daybook-prod",
            "MakeProvider": "false",
        },
    },
}  # fmt: skip


# What moto does not have at all.
IGNORED = {"AWS::CloudFront::Distribution", "AWS::Lambda::CapacityProvider"}

# The resources that outlive the stack.
DATA = {"Table", "SubjectKeys", "EventBus", "Archive", "DeadLetterQueue", "DiscardedRecords"}


def decapitalized(value):
    """A value whose keys begin with a small letter, as in the APIs of CloudWatch Logs and CodeDeploy."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: decapitalized(one) for key, one in value.items()}
    return [decapitalized(one) for one in value] if isinstance(value, list) else value


def clean_json(value, resources, clean=parsing.clean_json):
    """A value as moto evaluates it, without the elements of lists that it leaves for `AWS::NoValue`."""
    cleaned = clean(value, resources)
    return [one for one in cleaned if one is not None] if isinstance(cleaned, list) else cleaned


parsing.clean_json = clean_json


def deployment_group(properties, name):
    group = {"deploymentGroupName": name, **decapitalized(properties)}
    if "alarmConfiguration" in group:
        group["alarmConfiguration"]["enabled"] = True
    return group


def provider(properties, _):
    return {key.replace("Id", "ID"): value for key, value in properties.items()}


# The types of resources that moto has, but that its CloudFormation does not create. For each: the service, the call that
# creates it, the member of the response or of the call that `Ref` returns, and how the call's parameters follow from the
# properties and a name. boto3 compares the parameters with the description of the service's API.
CALLS = {
    "AWS::ApiGatewayV2::Api": ("apigatewayv2", "create_api", "ApiId", None),
    "AWS::ApiGatewayV2::ApiMapping": ("apigatewayv2", "create_api_mapping", "ApiMappingId", None),
    "AWS::ApiGatewayV2::Authorizer": ("apigatewayv2", "create_authorizer", "AuthorizerId", None),
    "AWS::ApiGatewayV2::DomainName": ("apigatewayv2", "create_domain_name", "DomainName", None),
    "AWS::ApiGatewayV2::Integration": ("apigatewayv2", "create_integration", "IntegrationId", None),
    "AWS::ApiGatewayV2::Route": ("apigatewayv2", "create_route", "RouteId", None),
    "AWS::ApiGatewayV2::Stage": ("apigatewayv2", "create_stage", "StageName", None),
    "AWS::CloudWatch::Alarm": ("cloudwatch", "put_metric_alarm", "AlarmName", None),
    "AWS::CodeDeploy::Application": (
        "codedeploy",
        "create_application",
        "applicationName",
        lambda it, name: {"applicationName": name, **decapitalized(it)},
    ),
    "AWS::CodeDeploy::DeploymentGroup": (
        "codedeploy",
        "create_deployment_group",
        "deploymentGroupName",
        deployment_group,
    ),
    "AWS::IAM::OIDCProvider": ("iam", "create_open_id_connect_provider", "OpenIDConnectProviderArn", provider),
    "AWS::IAM::RolePolicy": (
        "iam",
        "put_role_policy",
        "PolicyName",
        lambda it, _: {**it, "PolicyDocument": json.dumps(it["PolicyDocument"])},
    ),
    "AWS::KinesisFirehose::DeliveryStream": ("firehose", "create_delivery_stream", "DeliveryStreamName", None),
    "AWS::Lambda::Alias": ("lambda", "create_alias", "AliasArn", None),
    "AWS::Lambda::EventInvokeConfig": ("lambda", "put_function_event_invoke_config", "FunctionArn", None),
    "AWS::Lambda::Version": ("lambda", "publish_version", "FunctionArn", None),
    "AWS::Logs::LogStream": (
        "logs",
        "create_log_stream",
        "logStreamName",
        lambda it, name: {"logStreamName": name, **decapitalized(it)},
    ),
    "AWS::Logs::MetricFilter": (
        "logs",
        "put_metric_filter",
        "filterName",
        lambda it, name: {"filterName": name, **decapitalized(it)},
    ),
    "AWS::S3::BucketPolicy": (
        "s3",
        "put_bucket_policy",
        "Bucket",
        lambda it, _: {"Bucket": it["Bucket"], "Policy": json.dumps(it["PolicyDocument"])},
    ),
    "AWS::SNS::Subscription": ("sns", "subscribe", "SubscriptionArn", None),
    "AWS::SQS::QueuePolicy": (
        "sqs",
        "set_queue_attributes",
        "QueueUrl",
        # One of the queues of the policy stands for all.
        lambda it, _: {"QueueUrl": it["Queues"][0], "Attributes": {"Policy": json.dumps(it["PolicyDocument"])}},
    ),
    "AWS::WAFv2::WebACL": ("wafv2", "create_web_acl", "Name", lambda it, name: {"Name": name, **it}),
}


# moto keeps the resources of a type under the second part of the name of its module.
MODULE = "daybook.stacks"


def type_of_resource(resource_type):
    """The class that creates resources of a type of `CALLS`. moto finds it among the direct subclasses."""
    service, operation, ref, parameters = CALLS.get(resource_type, ("", None, None, None))

    class Resource(CloudFormationModel):
        __module__ = MODULE

        @staticmethod
        def cloudformation_name_type():
            return ""

        @staticmethod
        def cloudformation_type():
            return resource_type

        @classmethod
        def has_cfn_attr(cls, _):
            return True

        @classmethod
        def create_from_cloudformation_json(cls, name, resource, account, region, **_):
            properties = resource.get("Properties", {})
            call = parameters(properties, name) if parameters else properties
            response = getattr(client(service), operation)(**call) if operation else {}
            created = cls()
            created.physical_resource_id = response.get(ref) or call.get(ref) or name
            created.members = {**call, **response, "Arn": f"arn:aws:{service}:{region}:{account}:{name}"}
            return created

        @classmethod
        def update_from_cloudformation_json(cls, original_resource, **_):
            return original_resource

        @classmethod
        def delete_from_cloudformation_json(cls, *_):
            pass

        def get_cfn_attribute(self, name):
            return self.members.get(name, name)

        def is_created(self):
            return True

    return Resource


class NestedStack(CloudFormationModel):
    """A nested stack, in place of moto's, which has no outputs and is created anew by an update."""

    __module__ = MODULE

    @staticmethod
    def cloudformation_name_type():
        return ""

    @staticmethod
    def cloudformation_type():
        return "AWS::CloudFormation::Stack"

    @classmethod
    def has_cfn_attr(cls, _):
        return True

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account, region, **_):
        stack = cls()
        stack.physical_resource_id = create(name, *cls.template(resource))
        return stack

    @classmethod
    def update_from_cloudformation_json(cls, original_resource, cloudformation_json, **_):
        try:
            update(original_resource.physical_resource_id, *cls.template(cloudformation_json))
        except botocore.exceptions.ClientError as error:
            # CloudFormation updates a nested stack only if something changes.
            if "No updates are to be performed" not in str(error):
                raise
        return original_resource

    @staticmethod
    def template(resource):
        properties = resource["Properties"]
        return properties["TemplateURL"], {name: str(value) for name, value in properties["Parameters"].items()}

    def delete(self, *_):
        delete(self.physical_resource_id)

    def get_cfn_attribute(self, name):
        return described(self.physical_resource_id, "Output")[name.removeprefix("Outputs.")]

    def is_created(self):
        return True


RESOURCES = [type_of_resource(name) for name in [*CALLS, *IGNORED]]
# These have no id in moto, which `Ref` needs.
for model in [Archive, EventBus]:
    model.physical_resource_id = property(lambda resource: resource.name)
# moto forgets a resource that an update changes if it cannot update its type, and replaces an archive. Here, such a resource
# stays as it is.
for model in CloudFormationModel.__subclasses__():
    if model is Archive or hasattr(model.update_from_cloudformation_json, "__isabstractmethod__"):
        model.update_from_cloudformation_json = classmethod(lambda cls, original_resource, **_: original_resource)


@functools.cache
def schema(resource_type):
    """The properties of a type of resource that an update cannot change, and those that identify a resource."""
    of_type = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource_type).schema
    names = [of_type.get(key, []) for key in ("createOnlyProperties", "primaryIdentifier")]
    return [{one.removeprefix("/properties/") for one in properties} for properties in names]


def unchangeable(resources, name):
    """The properties of a resource that an update cannot change, with their values."""
    resource = resources._resource_json_map[name]
    properties, _ = schema(resource["Type"])
    own = resource.get("Properties", {})
    return parsing.clean_json({key: value for key, value in own.items() if key in properties}, resources)


def update_resources(self, template, parameters=None):
    """Updates the resources of a stack in the order of CloudFormation: first it creates, changes and replaces, then it deletes.

    moto deletes first, and neither replaces a resource nor creates or deletes one whose condition changes.
    """
    changed, old = self.build_resource_diff(template, parameters)["Modify"], self._resource_json_map
    before = {name: unchangeable(self, name) for name in old if name in self._parsed_resources}
    self._template, self._resource_json_map, self.input_parameters = template, template["Resources"], parameters
    self.load_mapping()
    self.load_parameters()
    self.load_conditions()
    holds = self.lazy_condition_map
    wanted = {name: one for name, one in template["Resources"].items() if holds.get(one.get("Condition"), True)}
    unneeded = [("DeletionPolicy", old[name], self._parsed_resources.pop(name)) for name in before if name not in wanted]
    for name in wanted.keys() & before:
        after = unchangeable(self, name)
        if after != before[name]:
            identifiers = schema(wanted[name]["Type"])[1] & after.keys()
            if any(after[key] == before[name].get(key) for key in identifiers):
                raise ValueError(f"{name} has a name, and an update cannot change {before[name]} to {after}")
            unneeded.append(("UpdateReplacePolicy", old[name], self._parsed_resources.pop(name)))
    for name, resource in wanted.items():
        if name in self._parsed_resources and name in changed:
            account = {"account_id": ACCOUNT, "region_name": REGION}
            self._parsed_resources[name] = parsing.parse_and_update_resource(name, resource, self, **account)
        self[name]  # creates it, unless it exists
    for policy, definition, resource in reversed(unneeded):
        if definition.get(policy) != "Retain":
            self._delete_resource(resource, definition)


def delete_resource(self, resource, definition, delete=parsing.ResourceMap._delete_resource):
    """Deletes a resource. Like CloudFormation, and unlike moto, it detaches policies from a role first."""
    if definition["Type"] == "AWS::IAM::Role":
        iam, role = client("iam"), resource.physical_resource_id
        for policy in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
            iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
    delete(self, resource, definition)


parsing.ResourceMap.update, parsing.ResourceMap._delete_resource = update_resources, delete_resource
# All templates here are JSON, which moto would read as YAML, in most of the time of this script.
Stack.parse_template = staticmethod(json.loads)


def for_moto(value, numbers):
    """A template without what moto reads in another way than CloudFormation.

    The variables of `Fn::Sub` with two dots become explicit, because moto reads only one dot. Where a condition compares a
    parameter of the type Number with a text, the text becomes a number, because moto never takes them as equal.
    """
    if isinstance(value, list):
        return [for_moto(one, numbers) for one in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Sub" in value:
        text, variables = value["Fn::Sub"] if isinstance(value["Fn::Sub"], list) else (value["Fn::Sub"], {})
        variables = {name: for_moto(one, numbers) for name, one in variables.items()}
        for name in re.findall(r"\$\{(\w+\.\w+\.\w+)\}", text):
            key = name.replace(".", "")
            text = text.replace("${%s}" % name, "${%s}" % key)
            variables[key] = {"Fn::GetAtt": name.split(".", 1)}
        return {"Fn::Sub": [text, variables]}
    if "Fn::Equals" in value and value["Fn::Equals"][0] in numbers:
        return {"Fn::Equals": [value["Fn::Equals"][0], int(value["Fn::Equals"][1])]}
    return {name: for_moto(one, numbers) for name, one in value.items()}


parsed = functools.cache(yaml_parse)


def source(file):
    """A template: packaged by `sam`, if `file` is its address in S3, or else that of the file, with empty packages."""
    if file.startswith("http"):
        bucket, key = file.split("/", 4)[3:]
        return yaml_parse(client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
    template = copy.deepcopy(parsed((ROOT / file).read_text()))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = {"Bucket": PACKAGES, "Key": "package.zip"}
        if resource["Type"] == "AWS::Lambda::Function":
            resource["Properties"]["Code"] = {"S3Bucket": PACKAGES, "S3Key": "package.zip"}
        if resource["Type"] == "AWS::CloudFormation::Stack":
            nested = ROOT / pathlib.Path(file).parent / resource["Properties"]["TemplateURL"]
            resource["Properties"]["TemplateURL"] = os.path.relpath(nested.resolve(), ROOT)
    return template


def as_created(template, parameters):
    """A template as CloudFormation creates it, translated by SAM, in a form that moto reads."""
    for resource in template["Resources"].values():
        # moto knows only this one of the two. After its creation, a resource with either of them outlives the stack.
        if resource.get("DeletionPolicy") == "RetainExceptOnCreate":
            resource["DeletionPolicy"] = "Retain"
    if "Transform" in template:
        template = Translator({}, Parser()).translate(template, parameters)
    numbers = [{"Ref": name} for name, one in template.get("Parameters", {}).items() if one["Type"] == "Number"]
    return for_moto(json.loads(json.dumps(template)), numbers)


@functools.cache
def translated(file, parameters):
    """The template of a file, as CloudFormation creates it. The parameters are pairs."""
    return as_created(source(file), dict(parameters))


def arguments(name, file, parameters):
    template = translated(file, tuple(parameters.items()))
    unknown = parameters.keys() - template["Parameters"].keys()
    assert not unknown, f"{file} has no parameters {unknown}"
    values = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    return {"StackName": name, "TemplateBody": json.dumps(template), "Parameters": values}


def create(name, file, parameters):
    """Creates a stack, and returns its id."""
    return client("cloudformation").create_stack(**arguments(name, file, parameters))["StackId"]


def update(name, file, parameters):
    client("cloudformation").update_stack(**arguments(name, file, parameters))


def delete(name):
    client("cloudformation").delete_stack(StackName=name)


def resources(name):
    """The resources of a stack. moto also lists those whose condition is false, without an id."""
    listed = client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    return [resource for resource in listed if "LogicalResourceId" in resource]


def stack(name):
    """A stack, without a call, which would describe all of its resources."""
    return cloudformation_backends[ACCOUNT][REGION].get_stack(name)


def stacks():
    """The statuses of all stacks, by their names."""
    pages = client("cloudformation").get_paginator("describe_stacks").paginate()
    return {stack["StackName"]: stack["StackStatus"] for page in pages for stack in page["Stacks"]}


def described(name, kind):
    """The parameters or outputs of a stack."""
    stack = client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
    return {one[f"{kind}Key"]: one[f"{kind}Value"] for one in stack.get(f"{kind}s", [])}


@contextlib.contextmanager
def account():
    """An account with the packages, a restored table, a role and an API. Returns the parameters that name these."""
    with mock_aws():
        s3 = client("s3")
        s3.create_bucket(Bucket=PACKAGES, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=PACKAGES, Key="package.zip", Body=b"PK\5\6" + bytes(18))
        table = client("dynamodb").create_table(
            TableName="restored",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}]}
        client("iam").create_role(RoleName="command-handler", AssumeRolePolicyDocument=json.dumps(trust))
        api = client("apigatewayv2").create_api(Name="other", ProtocolType="HTTP")
        yield {"TableStreamArn": table["TableDescription"]["LatestStreamArn"], "HttpApi": api["ApiId"]}


def of_account(parameters, existing):
    return {name: existing.get(name, value) for name, value in parameters.items()}


class Stacks(unittest.TestCase):
    created, ignored = collections.Counter(), collections.Counter()

    def count(self, name, file, parameters):
        """Asserts that the emulator has each resource of the stack that has no condition, and counts them by type."""
        template = translated(file, tuple(parameters.items()))["Resources"]
        existing = {one["LogicalResourceId"]: one for one in resources(name)}
        for id, resource in template.items():
            if resource["Type"] in IGNORED:
                Stacks.ignored[resource["Type"]] += 1
            elif id in existing:
                Stacks.created[resource["Type"]] += 1
            else:
                self.assertIn("Condition", resource, f"{file}: {id} is not created")
        for id, one in existing.items():
            if one["ResourceType"] == "AWS::CloudFormation::Stack":
                name = one["PhysicalResourceId"]
                self.count(name, template[id]["Properties"]["TemplateURL"], described(name, "Parameter"))

    def test_each_set_of_parameters_reaches_create_complete(self):
        files, values = {"template.yaml": MAIN, **OTHERS}, set()
        for file, name, parameters in [(file, name, it) for file in files for name, it in files[file].items()]:
            with self.subTest(f"{file}: {name}"), account() as existing:
                parameters = of_account(parameters, existing)
                create(STACK, file, parameters)
                self.assertEqual(set(stacks().values()), {"CREATE_COMPLETE"})
                self.count(STACK, file, parameters)
                self.assert_no_reference_to_what_is_not_created(file, parameters)
                self.assert_resolved()
                # An add-on within another one is tested in each of its conditions with its own sets of parameters.
                for name in stacks() if file == "template.yaml" else [STACK]:
                    of_stack = file if name == STACK else "nested stacks"
                    values |= {(of_stack, *pair) for pair in stack(name).resource_map.lazy_condition_map.items()}
                self.assert_deletion_leaves(self.data())
        for file, name in {(file, name) for file, name, _ in values}:
            with self.subTest(f"{file}: {name}"):
                self.assertEqual({value for *of, value in values if of == [file, name]}, {True, False})

    def assert_no_reference_to_what_is_not_created(self, file, parameters):
        """Asserts what CloudFormation requires and moto does not: a resource refers to no resource whose condition is false."""
        template = translated(file, tuple(parameters.items()))
        holds = stack(STACK).resource_map.lazy_condition_map

        def is_created(name):
            condition = template["Resources"].get(name, {}).get("Condition")
            return not condition or holds[condition]

        def references(value):
            if isinstance(value, list):
                return [name for one in value for name in references(one)]
            if not isinstance(value, dict):
                return []
            if "Fn::If" in value:
                condition, *branches = value["Fn::If"]
                return references(branches[0 if holds[condition] else 1])
            own = [value["Ref"]] if "Ref" in value else []
            own += value["Fn::GetAtt"][:1] if "Fn::GetAtt" in value else []
            if "Fn::Sub" in value:
                text, variables = value["Fn::Sub"] if isinstance(value["Fn::Sub"], list) else (value["Fn::Sub"], {})
                own += [name for name in re.findall(r"\$\{(\w+)", text) if name not in variables]
            return own + [name for one in value.values() for name in references(one)]

        for name, resource in template["Resources"].items():
            if is_created(name):
                missing = [one for one in references(resource) if not is_created(one)]
                self.assertEqual(missing, [], f"{file}: {name}")

    def assert_resolved(self):
        """Asserts that no reference is left in what operators and functions read."""
        texts = [json.dumps(described(name, "Output")) for name in stacks()]
        texts += [json.dumps(one.get("Environment")) for one in client("lambda").list_functions()["Functions"]]
        texts += [json.dumps(one, default=str) for one in client("cloudwatch").describe_alarms()["MetricAlarms"]]
        for one in client("cloudwatch").list_dashboards()["DashboardEntries"]:
            body = client("cloudwatch").get_dashboard(DashboardName=one["DashboardName"])["DashboardBody"]
            texts.append(json.dumps(json.loads(body)))
        for text in texts:
            self.assertNotIn("${", text)
            self.assertNotIn("AWS::", text)

    def test_updates_from_each_set_to_each_other_and_a_deletion_leave_the_data(self):
        files = {"template.yaml": MAIN, **OTHERS}
        del files[".github/aws.yaml"]  # its sets are those of two accounts
        for file, sets in files.items():
            with self.subTest(file), account() as existing:
                sets = {name: of_account(parameters, existing) for name, parameters in sets.items()}
                # Contains each two sets as neighbours, once in this order and once in the other: a b a c b c, and again a.
                names = [name for pair in itertools.combinations(sets, 2) for name in pair]
                steps = [*itertools.pairwise(names + names[:1])]
                self.assertEqual(len(set(steps)), len(sets) * (len(sets) - 1))
                create(STACK, file, sets[names[0]])
                kept = self.data()
                # The first set has no key.
                self.assertEqual({name for name, _ in kept}, DATA & source(file)["Resources"].keys() - {"SubjectKeys"})
                for before, after in steps:
                    created = {"Table"} if before == "restored table" else set()
                    created |= {"SubjectKeys"} if "KmsKeyArn" in sets[after].keys() - sets[before].keys() else set()
                    try:
                        kept |= self.update(file, sets[after], kept, created)
                    except Exception as error:
                        raise AssertionError(f"the update from {before} to {after} fails") from error
                self.assert_deletion_leaves(kept)

    def assert_deletion_leaves(self, kept):
        """Deletes the stack, and asserts that only this of it is left."""
        self.unprotect_views()
        delete(STACK)
        self.assertEqual(stacks(), {})
        self.assertEqual(client("lambda").list_functions()["Functions"], [])
        self.assertEqual([role["RoleName"] for role in client("iam").list_roles()["Roles"]], ["command-handler"])
        if kept:
            self.assertEqual(self.existing(), kept | {("Table", "restored")})

    def update(self, file, parameters, kept, created):
        """Updates the stack, and returns its resources with data. Those of `kept` must still exist; only `created` may be new."""
        self.unprotect_views()
        update(STACK, file, parameters)
        self.assertEqual(stack(STACK).status, "UPDATE_COMPLETE")
        self.assertLessEqual({name for name, _ in self.data() - kept}, created)
        if kept:
            self.assertEqual(kept - self.existing(), set())
        return self.data()

    def data(self):
        """The resources of the stack that have data, by their names in the template."""
        found = stack(STACK).resource_map._parsed_resources
        return {(name, found[name].physical_resource_id) for name in DATA & found.keys()}

    def existing(self):
        """The resources that have data, in the stack or not."""
        archives, buses = client("events").list_archives()["Archives"], client("events").list_event_buses()["EventBuses"]
        tables = client("dynamodb").list_tables()["TableNames"]
        ids = {
            "Table": [name for name in tables if "-SubjectKeys-" not in name],
            "SubjectKeys": [name for name in tables if "-SubjectKeys-" in name],
            "EventBus": [one["Name"] for one in buses if one["Name"] != "default"],
            "Archive": [one["ArchiveName"] for one in archives],
            "DeadLetterQueue": client("sqs").list_queues(QueueNamePrefix=f"{STACK}-DeadLetterQueue").get("QueueUrls", []),
            "DiscardedRecords": [one["Name"] for one in client("s3").list_buckets()["Buckets"] if one["Name"] != PACKAGES],
        }
        return {(name, id) for name in ids for id in ids[name] if "-Views-" not in id}

    def unprotect_views(self):
        """Does what docs/deploy.md describes. Without it, the views table outlives the read models and the stack."""
        for name in client("dynamodb").list_tables()["TableNames"]:
            if "-Views-" in name:
                client("dynamodb").update_table(TableName=name, DeletionProtectionEnabled=False)

    @classmethod
    def tearDownClass(cls):
        by_moto = [f"{name} ({count})" for name, count in sorted(cls.created.items()) if name not in CALLS]
        by_calls = [f"{name} ({count})" for name, count in sorted(cls.created.items()) if name in CALLS]
        print("created by moto's CloudFormation:", ", ".join(by_moto))
        print("created by a call of moto's service:", ", ".join(by_calls))
        print("not created:", ", ".join(sorted(cls.ignored)))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    unittest.main(verbosity=2)
