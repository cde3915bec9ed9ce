//! `POST /commands`: commands to several aggregates, of which all or none are executed.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::{Addressed, AggregateKey, Claim, CommandError, CommandRequest, Decisions, Involved, Json};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::endpoint::{Body, Endpoint, RequestBody, Success};
use super::request_headers::WRITE_HEADERS;
use super::write::{
    CHANGE_PROBLEMS, ConditionalCommand, Recipient, RequestedCommands, WRITE, WRITE_PROBLEMS, execute, written,
};
use crate::api::Api;
use crate::openapi::aggregate_type::{AggregateType, command_request, decide, write_json};
use crate::openapi::schemas::{Content, ID, Schemas, json_of, named};
use crate::problem::{self, Problem};
use crate::request::WriteRequest;
use crate::response::{JointResponse, JointResult};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/commands",
    handler: |method| on(method, joint),
    name: "Joint",
    operation_id: "joint",
    summary: "Send commands to several aggregates",
    description: "An array of commands, each with its aggregate as `type/id`, or with a `claim`, `name:value`, of its aggregate. \
                  All are executed in one transaction, or none.\n\nThe commands are decided in their order, each on the \
                  state after those before it; after each follow those that it sends to others. Every one is authorized as if \
                  it were alone. A problem with one of them names it by `index` and `aggregate`. If the rules reject it, \
                  only the events that record the rejection are appended. `ifMatch` is the version that the aggregate must \
                  have before the request. One request names, changes and reads at most 11 aggregates.",
    request_headers: &[WRITE_HEADERS],
    request_body: Some(RequestBody::Service(body)),
    successes: &[Success {
        status: StatusCode::OK,
        description: "The commands were executed.",
        headers: &[("Idempotency-Replayed", false)],
        body: Some(Body::Service(response)),
    }],
    problems: &[
        CHANGE_PROBLEMS,
        &[&problem::ALREADY_EXISTS, &problem::UNKNOWN_TYPE],
        &[&problem::BAD_BODY, &problem::UNKNOWN_COMMAND, &problem::INVALID_COMMAND],
        WRITE_PROBLEMS,
    ],
    ..WRITE
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddressedCommand {
    #[serde(default, deserialize_with = "not_null")]
    aggregate: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    claim: Option<String>,
    command: String,
    #[serde(default = "Json::empty_object")]
    data: Json,
    #[serde(default, deserialize_with = "not_null")]
    if_match: Option<u64>,
}

fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(member: D) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

fn body(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Content {
    let commands: Vec<Value> = types.iter().flat_map(|of| of.addressed_commands(schemas)).collect();
    let command = schemas.add("AddressedCommand", json!({ "anyOf": commands }));
    let schema = json!({"type": "array", "minItems": 1, "maxItems": 99, "items": command});
    Content { schema, examples: named([("two", example(types).map(|(request, _)| request))]) }
}

fn response(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Content {
    let result = |of: &AggregateType<'_>| {
        let pattern = format!("^{}/", of.model.type_name());
        let aggregate = json!({"type": "string", "description": "The aggregate, `type/id`.", "pattern": pattern});
        let of_aggregate = json!({"type": "object", "properties": {"aggregate": aggregate}, "required": ["aggregate"]});
        json!({"allOf": [written(of, schemas, []).schema, of_aggregate]})
    };
    let results: Vec<_> = types.iter().map(result).collect();
    let description = "The result for each aggregate that the request names, in its order.";
    let results = json!({"type": "array", "description": description, "minItems": 1, "items": {"anyOf": results}});
    let schema = json!({"type": "object", "properties": {"results": results}, "required": ["results"]});
    let schema = schemas.add("JointWritten", schema);
    Content { schema, examples: named([("two", example(types).map(|(_, response)| response))]) }
}

/// The creations of two aggregates, and their response.
fn example(types: &[AggregateType<'_>]) -> Option<(Value, Value)> {
    let mut created = types.iter().filter(|of| of.created.is_some());
    let two = [created.next()?, created.next()?];
    let key = |of: &AggregateType<'_>| AggregateKey::new(of.model.type_name(), ID);
    let samples = two.map(|of| (key(of), of.sample_of(of.model.commands().create)));
    let request: Value = samples
        .iter()
        .map(
            |(key, sample)| json!({"aggregate": key.to_string(), "command": sample["command"], "data": sample["data"]}),
        )
        .collect();
    let commands = samples.iter().map(|(_, sample)| command_request(sample)).collect::<Option<Vec<_>>>()?;
    let addressed: Vec<_> = samples
        .iter()
        .zip(&commands)
        .map(|((to, _), command)| Addressed::new(to, std::slice::from_ref(command)))
        .collect();
    let before = two[0].model.before_first_event();
    let Decisions { own, others, .. } = decide(two[0].registry, &before, &addressed, &mut Involved::default(), None)?;
    let (_, other) = others.first()?;
    let result = |of, decided| JointResult { aggregate: key(of).to_string(), result: write_json(decided) };
    let response = JointResponse { results: vec![result(two[0], &own), result(two[1], other)] };
    Some((request, json_of(&response)?))
}

async fn joint(State(api): State<Api>, request: Result<WriteRequest, Problem>) -> Result<Response, Problem> {
    let request = request?;
    if request.if_match.is_some() {
        return Err(problem::bad_header("If-Match", "left out: each command can have an ifMatch of its own"));
    }
    let commands: Vec<AddressedCommand> = request.body.read_strictly().map_err(|error| {
        problem::bad_body(format!("the body must be an array of {{\"aggregate\", \"command\", \"data\"}}: {error}"))
    })?;
    let named: BTreeSet<_> = commands.iter().map(|command| (&command.aggregate, &command.claim)).collect();
    if named.len() > 1 + Involved::MAX {
        return Err(Problem::new(&problem::TOO_LARGE, CommandError::TooManyInvolved.to_string()));
    }
    let mut conditional = Vec::new();
    for (index, command) in commands.into_iter().enumerate() {
        let command = conditional_command(&api, command);
        conditional.push(command.map_err(|problem| Problem { index: u32::try_from(index).ok(), ..problem })?);
    }
    // Responses are stored in the partition of the first aggregate.
    let own = match conditional.first().map(|first| &first.to) {
        None => return Err(problem::bad_body("the array has no command")),
        Some(Recipient::Aggregate(key)) => key.clone(),
        Some(Recipient::Holder(_)) if request.identity.is_some() => {
            let expected = "left out if the first command names a claim: it may belong to another aggregate when the request is \
                            repeated. Put a command with `aggregate` first";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        Some(Recipient::Holder(claim)) => {
            let not_found = || Problem { index: Some(0), ..Problem::of(&problem::NOT_FOUND) };
            api.store.claim(claim).await?.ok_or_else(not_found)?.holder()
        }
    };
    let model = api.model(&own.aggregate_type)?;
    execute(&api, model, own, RequestedCommands::Joint(conditional), request).await
}

fn conditional_command(api: &Api, command: AddressedCommand) -> Result<ConditionalCommand, Problem> {
    let AddressedCommand { aggregate, claim, command, data, if_match: expected } = command;
    let to = match (aggregate, claim) {
        (Some(name), None) => {
            let key = name.split_once('/');
            let (type_name, id) =
                key.ok_or_else(|| problem::bad_body(format!("aggregate must be type/id, not {name:?}")))?;
            Recipient::Aggregate(api.aggregate(type_name, id)?.1)
        }
        (None, Some(claim)) => {
            let claim = Claim::parse(&claim);
            Recipient::Holder(claim.ok_or_else(|| problem::bad_body("claim must be name:value"))?)
        }
        _ => return Err(problem::bad_body("a command must have either aggregate or claim")),
    };
    Ok(ConditionalCommand { to, command: CommandRequest { command, data }, expected })
}
