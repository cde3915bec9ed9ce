//! The subjects of operations: an aggregate type, or the service. A view is one too.

use daybook_decider::Model;
use serde_json::{Map, Value, json};

use super::examples::Examples;
use super::schemas::{Schemas, TypeSchemas, feed_schema};
use crate::endpoints::ENDPOINTS;
use crate::endpoints::endpoint::{Endpoint, RequestBody, Success};

pub(super) trait Subject {
    /// The tag of its operations.
    fn tag(&self) -> &str;

    /// The name that ends the ids of its operations.
    fn name(&self) -> &str;

    /// Whether the endpoint is one of its operations.
    fn has(&self, endpoint: &Endpoint) -> bool;

    /// The path of the endpoint in the document.
    fn path(&self, endpoint: &Endpoint) -> String {
        endpoint.path.replace("{type}", self.tag())
    }

    /// The parameter of that path, if it differs between subjects.
    fn path_parameter(&self, _endpoint: &Endpoint) -> Option<Value> {
        None
    }

    /// The example of a query parameter, if the subject has its own. It may also restrict the parameter's schema.
    fn query_example(&self, _name: &str, _schema: &mut Map<String, Value>) -> Option<Value> {
        None
    }

    /// The state version in its `ETag`s.
    fn state_version(&self) -> u32 {
        1
    }

    fn summary(&self, endpoint: &Endpoint) -> String {
        endpoint.summary.to_owned()
    }

    /// The content of requests, and whether it is required.
    fn request(&self, _body: RequestBody) -> Option<(Content, bool)> {
        None
    }

    fn response(&self, endpoint: &Endpoint, success: Success) -> Option<Content>;

    /// The operations that can follow a success of this one.
    fn links(&self, _endpoint: &Endpoint) -> Option<Value> {
        None
    }
}

/// The schema and the examples of a body.
pub(super) struct Content {
    pub(super) schema: Value,
    pub(super) examples: Value,
}

pub(super) struct AggregateType<'a> {
    pub(super) schemas: TypeSchemas,
    pub(super) examples: Examples<'a>,
    model: &'a dyn Model,
}

impl<'a> AggregateType<'a> {
    pub(super) fn new(model: &'a dyn Model, schemas: &mut Schemas) -> Self {
        Self { schemas: TypeSchemas::new(model, schemas), examples: Examples::of(model), model }
    }
}

impl Subject for AggregateType<'_> {
    fn tag(&self) -> &str {
        self.model.type_name()
    }

    fn name(&self) -> &str {
        &self.schemas.name
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_about_a_type() && endpoint.command.is_none_or(|command| command(self.model.commands()).is_some())
    }

    fn state_version(&self) -> u32 {
        self.model.state_version()
    }

    /// The summary of the command, if the endpoint runs one.
    fn summary(&self, endpoint: &Endpoint) -> String {
        let command = endpoint.command.and_then(|command| command(self.model.commands()));
        match command.and_then(|command| self.schemas.command_descriptions.get_key_value(command)) {
            Some((command, description)) => format!("{command}: {}", description.trim_end_matches('.')),
            None => format!("{} ({})", endpoint.summary, self.tag()),
        }
    }

    fn request(&self, body: RequestBody) -> Option<(Content, bool)> {
        let schema = match body {
            RequestBody::CreateData => &self.schemas.create,
            RequestBody::UpdateData => self.schemas.update.as_ref()?,
            RequestBody::Commands => &self.schemas.commands,
        };
        let required = body != RequestBody::CreateData || self.schemas.create_needs_data;
        Some((Content { schema: schema.clone(), examples: self.examples.requests(body) }, required))
    }

    fn response(&self, endpoint: &Endpoint, success: Success) -> Option<Content> {
        let (schema, examples) = match success {
            Success::Created | Success::Changed => {
                (&self.schemas.write, self.examples.writes(endpoint.request_body, success))
            }
            Success::State => (&self.schemas.state, self.examples.state()),
            Success::EventPage => (&self.schemas.event_page, self.examples.events()),
            Success::AggregatePage => (&self.schemas.aggregate_page, self.examples.list()),
            _ => return None,
        };
        Some(Content { schema: schema.clone(), examples })
    }

    /// The operations on an aggregate that was created.
    fn links(&self, endpoint: &Endpoint) -> Option<Value> {
        if endpoint.request_body != Some(RequestBody::CreateData) {
            return None;
        }
        let link = |endpoint: &Endpoint| {
            let operation_id = format!("{}{}", endpoint.operation_id, self.name());
            let mut parameters = json!({"id": "$response.body#/id"});
            if !endpoint.method.is_safe() {
                parameters["header.If-Match"] = "$response.header.ETag".into();
            }
            (operation_id.clone(), json!({"operationId": operation_id, "parameters": parameters}))
        };
        let others = ENDPOINTS.iter().filter(|endpoint| endpoint.path.contains("{id}") && self.has(endpoint));
        Some(others.map(link).collect::<Map<_, _>>().into())
    }
}

/// The subject of operations that are not about one aggregate type.
pub(super) struct Service {
    feed_schema: Value,
    feed_examples: Value,
}

impl Service {
    pub(super) fn new(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Self {
        let feed_schema = feed_schema(types.iter().map(|one| (one.model.type_name(), &one.schemas)), schemas);
        let feed_examples = types.first().map(|first| first.examples.feed()).unwrap_or_default();
        Self { feed_schema, feed_examples }
    }
}

impl Subject for Service {
    fn tag(&self) -> &str {
        "suite"
    }

    fn name(&self) -> &str {
        ""
    }

    fn has(&self, endpoint: &Endpoint) -> bool {
        !endpoint.is_about_a_type() && !endpoint.is_about_a_view()
    }

    fn response(&self, _endpoint: &Endpoint, success: Success) -> Option<Content> {
        let (schema, examples) = match success {
            Success::FeedPage => (self.feed_schema.clone(), self.feed_examples.clone()),
            _ => (json!({"type": "object"}), json!({"beginning": {"value": {"openapi": "3.1.1"}}})),
        };
        Some(Content { schema, examples })
    }
}
