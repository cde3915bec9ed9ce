//! An endpoint as an operation of the document, with its parameters: the id in the path, the query and the headers of a request.

use axum::http::StatusCode;
use daybook_decider::{Model, Registry};
use serde_json::{Map, Value, json};

use super::aggregate_type::AggregateType;
use super::responses::{self, fixed, headers};
use super::schemas::{
    Content, ID, Schemas, id_schema, in_document, reference, referred_name, ulid, upper_camel, without_null,
};
use super::view::ViewSubject;
use crate::endpoints::ENDPOINTS;
use crate::endpoints::endpoint::{Body, Endpoint, RequestBody, Success};
use crate::endpoints::request_headers::RequestHeader;

#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    Type(&'a AggregateType<'a>),
    View(&'a ViewSubject<'a>),
    /// The service: operations that are not about one aggregate type.
    Service(&'a [AggregateType<'a>]),
}

impl Subject<'_> {
    pub(super) fn tag(self) -> String {
        match self {
            Self::Type(of) => of.model.type_name().to_owned(),
            Self::View(of) => of.tag.clone(),
            Self::Service(_) => "suite".to_owned(),
        }
    }

    /// The name that ends the ids of its operations.
    fn name(&self) -> &str {
        match self {
            Self::Type(of) => &of.name,
            Self::View(of) => &of.name,
            Self::Service(_) => "",
        }
    }

    fn has(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Type(of) => {
                let command = endpoint.command.map(|command| command(of.model.commands()));
                endpoint.is_about_a_type() && command.is_none_or(|command| command.is_some())
            }
            Self::View(_) => endpoint.is_about_a_view(),
            Self::Service(_) => !endpoint.is_about_a_type() && !endpoint.is_about_a_view(),
        }
    }

    fn path(self, endpoint: &Endpoint) -> String {
        endpoint.path.replace("views/{view}", &self.tag()).replace("{type}", &self.tag()).replace("{*key}", "{key}")
    }

    fn summary(self, endpoint: &Endpoint) -> String {
        match self {
            Self::Type(of) => {
                let command = endpoint.command.and_then(|command| command(of.model.commands()));
                match command.and_then(|command| Some((command, of.description_of(command)?))) {
                    Some((command, description)) => format!("{command}: {}", description.trim_end_matches('.')),
                    None => format!("{} ({})", endpoint.summary, of.model.type_name()),
                }
            }
            Self::View(of) => format!("{} ({})", endpoint.summary, of.model.name()),
            Self::Service(_) => endpoint.summary.to_owned(),
        }
    }

    fn content(self, body: Body, schemas: &mut Schemas) -> Option<Content> {
        match (self, body) {
            (Self::Type(of), Body::Type(content)) => Some(content(of, schemas)),
            (Self::View(of), Body::View(content)) => Some(content(of, schemas)),
            (Self::Service(types), Body::Service(content)) => Some(content(types, schemas)),
            _ => None,
        }
    }

    /// The operations that can follow on an aggregate that the endpoint has created.
    fn links(self, endpoint: &Endpoint) -> Option<Value> {
        if !endpoint.creates {
            return None;
        }
        let link = |endpoint: &Endpoint| {
            let operation_id = format!("{}{}", endpoint.operation_id, self.name());
            let mut parameters = json!({"id": "$response.body#/id"});
            if endpoint.method != "GET" {
                parameters["header.If-Match"] = "$response.header.ETag".into();
            }
            (operation_id.clone(), json!({"operationId": operation_id, "parameters": parameters}))
        };
        let others = ENDPOINTS.iter().filter(|endpoint| endpoint.path.contains("{id}") && self.has(endpoint));
        Some(others.map(link).collect::<Map<_, _>>().into())
    }
}

/// The operations by path and method, and the responses, headers and parameters that they share, by name.
pub(super) struct Operations {
    pub(super) paths: Map<String, Value>,
    pub(super) components: Value,
    /// The names under which streams contain events, including those of earlier releases.
    event_types: Vec<&'static str>,
}

impl Operations {
    /// No operation yet, and the responses of a gateway.
    pub(super) fn new(registry: &Registry) -> Self {
        let event_types = registry.iter().flat_map(Model::stored_events).map(|(name, _)| name).collect();
        let mut operations = Self { paths: Map::new(), components: json!({}), event_types };
        for (name, response) in fixed("gatewayResponses").as_object().into_iter().flatten() {
            operations.share_response(name, response.clone());
        }
        operations
    }

    pub(super) fn add_all(&mut self, subject: Subject<'_>, schemas: &mut Schemas) {
        for endpoint in ENDPOINTS.iter().filter(|endpoint| subject.has(endpoint)) {
            self.add(endpoint, subject, schemas);
        }
    }

    fn add(&mut self, endpoint: &Endpoint, subject: Subject<'_>, schemas: &mut Schemas) {
        let view = if let Subject::View(view) = subject { Some(view) } else { None };
        let mut operation = json!({
            "operationId": format!("{}{}", endpoint.operation_id, subject.name()),
            "tags": [subject.tag()],
            "summary": subject.summary(endpoint),
            "description": endpoint.description,
            "parameters": self.parameters(endpoint, view),
            "responses": self.responses(endpoint, subject, schemas),
        });
        let body = match (endpoint.request_body, subject) {
            (Some(RequestBody::Type(body)), Subject::Type(of)) => Some(body(of, schemas)),
            (Some(RequestBody::Service(body)), Subject::Service(types)) => Some((body(types, schemas), true)),
            _ => None,
        };
        if let Some((content, required)) = body {
            operation["requestBody"] = json!({"required": required, "content": json_content(content)});
        }
        let head = (endpoint.method == "GET").then(|| self.head(endpoint, &operation));
        let path = self.paths.entry(subject.path(endpoint)).or_insert_with(|| json!({}));
        if let Some(head) = head {
            path["head"] = head;
        }
        path[endpoint.method.to_lowercase()] = operation;
    }

    /// The `HEAD` operation of a `GET`: the same responses without bodies.
    fn head(&mut self, endpoint: &Endpoint, get: &Value) -> Value {
        let text = |member: &str| get[member].as_str().unwrap_or_default();
        let id = text("operationId");
        let responses = get["responses"].as_object().into_iter().flatten();
        let responses: Map<_, _> =
            responses.map(|(status, response)| (status.clone(), self.without_body(endpoint, response))).collect();
        let mut head = get.clone();
        head["operationId"] = format!("head{}{}", id[..1].to_uppercase(), &id[1..]).into();
        head["summary"] = format!("{}: the headers alone", text("summary")).into();
        head["responses"] = responses.into();
        head
    }

    /// The responses by status. The subjects of the endpoint share those that are problems, and those without a body.
    fn responses(&mut self, endpoint: &Endpoint, subject: Subject<'_>, schemas: &mut Schemas) -> Map<String, Value> {
        let name = |status| format!("{}{}", endpoint.name, reason(status));
        let mut responses = Vec::new();
        for success in endpoint.successes {
            let response = success_response(endpoint, subject, success, schemas);
            let response = match success.body {
                Some(_) => self.with_shared_headers(response),
                None => self.share_response(&name(success.status), response),
            };
            responses.push((success.status, response));
        }
        for status in responses::GATEWAY_STATUSES {
            responses.push((status, reference("responses", &of_gateway(status))));
        }
        for (status, types) in responses::by_status(endpoint.problems) {
            let mut response = responses::response(status, &types);
            if let Some(of_gateway) = self.components["responses"].get(of_gateway(status)) {
                responses::add_to(&mut response, of_gateway);
            }
            // Endpoints share the response that is one problem.
            let name = if let [one] = *types { upper_camel(one.slug) } else { name(status) };
            responses.push((status, self.share_response(&name, response)));
        }
        responses.into_iter().map(|(status, response)| (status.as_str().to_owned(), response)).collect()
    }

    fn without_body(&mut self, endpoint: &Endpoint, response: &Value) -> Value {
        let name = referred_name(response).unwrap_or(endpoint.name);
        let mut headers_alone = self.components["responses"].get(name).unwrap_or(response).clone();
        match headers_alone.as_object_mut().and_then(|members| members.remove("content")) {
            Some(_) => self.share("responses", &format!("Head{name}"), headers_alone),
            None => response.clone(),
        }
    }

    fn parameters(&mut self, endpoint: &Endpoint, view: Option<&ViewSubject<'_>>) -> Vec<Value> {
        let id = endpoint.path.contains("{id}").then(|| self.share("parameters", "Id", id_parameter()));
        let id = id.or_else(|| Some(view.filter(|_| endpoint.path.contains("{*key}"))?.key_parameter()));
        let mut parameters = Vec::from_iter(id);
        for (parameter, is_shared) in query_parameters(endpoint, &self.event_types, view) {
            let name = format!("{}{}", endpoint.name, upper_camel(parameter["name"].as_str().unwrap_or_default()));
            parameters.push(if is_shared { self.share("parameters", &name, parameter) } else { parameter });
        }
        for header in endpoint.request_headers.concat() {
            parameters.push(self.share("parameters", header.component, header_parameter(header)));
        }
        parameters
    }

    pub(super) fn share_response(&mut self, name: &str, response: Value) -> Value {
        let response = self.with_shared_headers(response);
        self.share("responses", name, response)
    }

    fn with_shared_headers(&mut self, mut response: Value) -> Value {
        let Some(headers) = response["headers"].as_object().cloned() else { return response };
        let shared = headers.into_iter().map(|(name, header)| {
            let kind = if header["required"] == true { "" } else { "Optional" };
            let reference = self.share("headers", &format!("{kind}{}", name.replace('-', "")), header);
            // Both kinds of `ETag` have this name in a response.
            (name.strip_prefix("Row-").unwrap_or(&name).to_owned(), reference)
        });
        response["headers"] = shared.collect();
        response
    }

    /// Adds a part of the document under a name, and returns the reference to it.
    fn share(&mut self, kind: &str, name: &str, part: Value) -> Value {
        let place = &mut self.components[kind][name];
        debug_assert!(place.is_null() || *place == part, "two different {kind} have the name {name}");
        *place = part;
        reference(kind, name)
    }
}

fn success_response(endpoint: &Endpoint, subject: Subject<'_>, success: &Success, schemas: &mut Schemas) -> Value {
    let mut response = json!({"description": success.description, "headers": headers(success.headers)});
    if let Some(content) = success.body.and_then(|body| subject.content(body, schemas)) {
        response["content"] = json_content(content);
    }
    if let Some(links) = subject.links(endpoint) {
        response["links"] = links;
    }
    response
}

fn json_content(Content { schema, examples }: Content) -> Value {
    let mut json = json!({ "schema": schema });
    if examples.as_object().is_some_and(|examples| !examples.is_empty()) {
        json["examples"] = examples;
    }
    json!({ "application/json": json })
}

fn reason(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or_default().replace(' ', "")
}

fn of_gateway(status: StatusCode) -> String {
    format!("Gateway{}", reason(status))
}

fn id_parameter() -> Value {
    json!({
        "name": "id",
        "in": "path",
        "required": true,
        "description": "The id of the aggregate.",
        "example": ID,
        "schema": id_schema(),
    })
}

fn header_parameter(header: &RequestHeader) -> Value {
    json!({
        "name": header.name,
        "in": "header",
        "required": false,
        "description": header.description,
        "example": header.example,
        "schema": (header.schema)(),
    })
}

/// The query parameters of an endpoint, each with whether it is the same for all its subjects. The parameter for an event type
/// lists the existing event types.
fn query_parameters(endpoint: &Endpoint, event_types: &[&str], view: Option<&ViewSubject<'_>>) -> Vec<(Value, bool)> {
    let Some(schema) = endpoint.query else { return Vec::new() };
    let mut schema = in_document(schema().into(), &str::to_owned);
    // A missing parameter is not null.
    without_null(&mut schema);
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let parameter = |(name, member): (&String, &Value)| {
        let mut schema = member.as_object().cloned().unwrap_or_default();
        let description = schema.remove("description");
        schema.retain(|member, value| member != "default" || !value.is_null());
        let own = view.and_then(|view| view.query_example(name, &mut schema));
        let is_shared = own.is_none();
        let example = own.unwrap_or_else(|| match name.as_str() {
            "after" if schema["type"] == "string" => ulid(1).to_string().into(),
            "after" | "limit" => 100.into(),
            "version" => 2.into(),
            "rebuild" | "descending" => true.into(),
            "claim" => "personal-email:ann@example.com".into(),
            "type" => {
                schema.insert("enum".to_owned(), json!(event_types));
                json!(event_types.first())
            }
            _ => Value::Null,
        });
        let parameter = json!({
            "name": name,
            "in": "query",
            "required": required(name),
            "description": description,
            "schema": schema,
            "example": example,
        });
        (parameter, is_shared)
    };
    schema["properties"].as_object().into_iter().flatten().map(parameter).collect()
}
