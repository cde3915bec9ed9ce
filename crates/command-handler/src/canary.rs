//! The deployment canary: the aggregate that the hook of a deployment writes and reads through the new version of this
//! function, before that version gets requests of callers.
//!
//! The hook invokes the function itself, with an event in the form of API Gateway's. A client of the API cannot make such
//! a request: it is known by the id of the API in the request context, which API Gateway always sets to its own id of ten
//! letters and digits. Nor can the hook reach anything else: its requests get a registry with the canary only.
//!
//! There is one canary in a table. Its stream grows by one event in each deployment. Its type is reserved, so its events are in
//! no feed and no list, and no snapshot of it is due. It publishes a message only if the request asks for it, as
//! `daybook deploy` does.

use std::sync::Arc;

use axum::extract::Request;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, RegistrationError, Registry};
use lambda_http::RequestExt;
use lambda_http::request::RequestContext;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::settings::ApiSettings;

/// The id of the API in the hook's events. The ids of API Gateway contain no hyphen.
const HOOK_API_ID: &str = "daybook-deployment-hook";

pub(crate) fn is_from_hook(request: &Request) -> bool {
    let context = request.request_context_ref();
    matches!(context, Some(RequestContext::ApiGatewayV2(context)) if context.apiid.as_deref() == Some(HOOK_API_ID))
}

/// The API over the canary, in the same store.
pub(crate) fn api(api: &Api) -> Result<Api, RegistrationError> {
    // The hook sends no `If-Match`: nobody else writes to the canary.
    let settings = ApiSettings { require_if_match: false, ..api.settings.clone() };
    let registry = Arc::new(Registry::reserved::<Canary>()?);
    Ok(Api { registry, settings, views: None, document: Arc::default(), ..api.clone() })
}

/// The aggregate `__canary`.
struct Canary;

/// The last deployment that was checked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Canary")]
struct State {
    /// CodeDeploy's id of the deployment.
    deployment_id: String,
    /// The version of the function that was checked.
    function_version: String,
}

/// The commands of the canary. The first deployment that is checked creates it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
#[schemars(rename = "CanaryCommand")]
enum Command {
    /// Records the first deployment.
    #[serde(rename_all = "camelCase")]
    RecordFirstDeployment {
        deployment_id: String,
        function_version: String,
        #[serde(default)]
        publish: bool,
    },
    /// Records a later deployment.
    #[serde(rename_all = "camelCase")]
    RecordDeployment {
        deployment_id: String,
        function_version: String,
        #[serde(default)]
        publish: bool,
    },
}

/// The event of the canary. The name is a stored format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[schemars(rename = "CanaryEvent")]
enum Event {
    /// A deployment was checked.
    #[serde(rename = "DeploymentRecorded", rename_all = "camelCase")]
    Recorded {
        deployment_id: String,
        function_version: String,
        /// Whether the event is published too.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        publish: bool,
    },
}

impl Aggregate for Canary {
    const TYPE: &'static str = "__canary";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands =
        Commands { create: "RecordFirstDeployment", update: Some("RecordDeployment"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("DeploymentRecorded", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        let (Command::RecordFirstDeployment { deployment_id, function_version, publish }
        | Command::RecordDeployment { deployment_id, function_version, publish }) = command;
        Ok(vec![Event::Recorded { deployment_id, function_version, publish }])
    }

    fn evolve(_: State, event: &Event) -> State {
        let Event::Recorded { deployment_id, function_version, .. } = event.clone();
        State { deployment_id, function_version }
    }

    fn announce(_: &State, event: &Event, _: &State) -> Vec<Message> {
        let Event::Recorded { publish, .. } = event;
        if *publish { vec![Message::of(event)] } else { Vec::new() }
    }
}
