//! `POST /commands`: commands to several aggregates, of which all or none are executed.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::{AggregateKey, Claim, CommandError, CommandRequest, Involved, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::ResponseHeader::IdempotencyReplayed;
use super::endpoint::{Body, Endpoint, RequestBody, Success};
use super::request_headers::WRITE_HEADERS;
use super::write::{CHANGE_PROBLEMS, ConditionalCommand, Recipient, RequestedCommands, WRITE, WRITE_PROBLEMS, execute};
use crate::api::Api;
use crate::openapi::aggregate_type::AggregateType;
use crate::openapi::sample::ID;
use crate::openapi::schemas::{Content, Schemas, named};
use crate::problem::{self, Problem};
use crate::request::WriteRequest;
use crate::response::JointResponse;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/commands",
    handler: |method| on(method, joint),
    name: "Joint",
    operation_id: "joint",
    summary: "Send commands to several aggregates",
    description: "An array of commands, each with its aggregate, `type/id`. All are executed in one transaction, or none. They \
                  are decided in their order, each on the state after those before it. If one is rejected, the events that \
                  record the rejection are appended, and no others; `index` names the command, and `aggregate` its \
                  aggregate. Instead of `aggregate`, a command can name a `claim`, `name:value`, and is then for the \
                  aggregate that has it. `ifMatch` is the version that the aggregate must have before the request. At \
                  most 11 aggregates.",
    request_headers: &[WRITE_HEADERS],
    request_body: Some(RequestBody::Service(body)),
    successes: &[Success {
        status: axum::http::StatusCode::OK,
        description: "The commands were executed.",
        headers: &[(IdempotencyReplayed, false)],
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

/// A command with its aggregate.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AddressedCommand {
    aggregate: Option<String>,
    claim: Option<String>,
    command: String,
    #[serde(default = "Json::empty_object")]
    data: Json,
    if_match: Option<u64>,
}

fn body(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Content {
    let commands: Vec<Value> = types.iter().flat_map(AggregateType::addressed_commands).collect();
    let command = schemas.add("AddressedCommand", json!({ "oneOf": commands }));
    let schema = json!({"type": "array", "minItems": 1, "maxItems": 99, "items": command});
    let creations = types.iter().filter(|of| of.created.is_some()).take(2).map(|of| {
        let mut command = of.sample_of(of.model.commands().create);
        command["aggregate"] = format!("{}/{ID}", of.model.type_name()).into();
        command
    });
    Content { schema, examples: named([("two", Some(creations.collect::<Value>()))]) }
}

fn response(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Content {
    let one_of = |part: for<'a> fn(&'a AggregateType<'_>) -> &'a Value| json!({"anyOf": types.iter().map(part).collect::<Vec<_>>()});
    let (state, event, message) = (one_of(|of| &of.state), one_of(|of| &of.event), one_of(|of| &of.message));
    let result = "results/items/properties";
    let parts = [("state", &state), ("events/items", &event), ("messages/items", &message)];
    let parts = parts.map(|(path, part)| (format!("{result}/{path}"), part));
    let parts: Vec<_> = parts.iter().map(|(path, part)| (path.as_str(), *part)).collect();
    let schema = schemas.add_response::<JointResponse<'_>>("JointWritten", &parts);
    Content { schema, examples: json!({}) }
}

async fn joint(State(api): State<Api>, request: Result<WriteRequest, Problem>) -> Result<Response, Problem> {
    let request = request?;
    if request.if_match.is_some() {
        return Err(problem::bad_header("If-Match", "left out: each command can have an ifMatch of its own"));
    }
    let bad_body = |reason: String| Problem::new(&problem::BAD_BODY, reason);
    let commands: Vec<AddressedCommand> = request.body.read_strictly().map_err(|error| {
        bad_body(format!("the body must be an array of {{\"aggregate\", \"command\", \"data\"}}: {error}"))
    })?;
    let named: BTreeSet<_> = commands.iter().map(|command| (&command.aggregate, &command.claim)).collect();
    if named.len() > 1 + Involved::MAX {
        return Err(Problem::new(&problem::TOO_LARGE, CommandError::TooManyInvolved.to_string()));
    }
    let mut conditional = Vec::new();
    for (index, AddressedCommand { aggregate, claim, command, data, if_match }) in commands.into_iter().enumerate() {
        let to = match (aggregate, claim) {
            (Some(aggregate), None) => Recipient::Aggregate(named_aggregate(&api, &aggregate)?),
            (None, Some(claim)) => Recipient::Holder(
                Claim::parse(&claim)
                    .ok_or_else(|| bad_body(format!("command {index}: claim must be name:value, not {claim:?}")))?,
            ),
            _ => return Err(bad_body(format!("command {index} must have either aggregate or claim"))),
        };
        let command = CommandRequest { command, data };
        conditional.push(ConditionalCommand { to, command, expected: if_match });
    }
    // Responses are stored in the partition of the first aggregate.
    let own = match conditional.first().map(|first| &first.to) {
        None => return Err(bad_body("the array has no command".to_owned())),
        Some(Recipient::Aggregate(key)) => key.clone(),
        Some(Recipient::Holder(_)) if request.identity.is_some() => {
            let expected = "left out if the first command names a claim: it may belong to another aggregate when the request is \
                            repeated. Put a command with `aggregate` first";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        Some(Recipient::Holder(claim)) => api.store.claim(claim).await?.ok_or_else(problem::not_found)?.holder(),
    };
    let model = api.model(&own.aggregate_type)?;
    execute(&api, model, own, RequestedCommands::Joint(conditional), request).await
}

/// The aggregate `type/id`.
fn named_aggregate(api: &Api, name: &str) -> Result<AggregateKey, Problem> {
    let (type_name, id) = name
        .split_once('/')
        .ok_or_else(|| Problem::new(&problem::BAD_BODY, format!("aggregate must be type/id, not {name:?}")))?;
    Ok(api.aggregate(type_name, id)?.1)
}
