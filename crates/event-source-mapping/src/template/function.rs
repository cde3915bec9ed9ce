//! The template and its functions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::template::conditions;
use crate::template::node::{Node, Parameters, Setting, TemplateError};
use crate::template::stream_event::StreamEvent;

/// Lambda's default time-out.
const DEFAULT_TIMEOUT_SECONDS: u64 = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub functions: BTreeMap<String, Function>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// `Metadata.BuildProperties.Binary`: the binary that cargo-lambda builds for it.
    pub binary: Option<Setting>,
    pub timeout: Duration,
    pub environment: BTreeMap<String, Setting>,
    /// The streams that invoke it, by the name of the event.
    pub streams: BTreeMap<String, StreamEvent>,
}

impl Template {
    /// Reads a template, YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::with_parameters(text, &[])
    }

    /// Reads a template as it is deployed with these values for parameters, and the defaults of all others.
    pub fn with_parameters(text: &str, values: &[(&str, &str)]) -> Result<Self, TemplateError> {
        let template = conditions::parse(text)?;
        let mut parameters = parameter_defaults(&template)?;
        parameters.extend(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let template = conditions::resolve(template, &parameters);
        let root = Node::root(&template, &parameters);
        let globals = root.find(&["Globals", "Function"])?;

        let mut functions = BTreeMap::new();
        for (id, resource) in root.required("Resources")?.members()? {
            if resource.required("Type")?.known()? == "AWS::Serverless::Function" {
                functions.insert(id.to_owned(), function(&resource, globals.as_ref())?);
            }
        }
        Ok(Self { functions })
    }
}

fn parameter_defaults(template: &Value) -> Result<Parameters, TemplateError> {
    let mut defaults = Parameters::new();
    let none = Parameters::new();
    if let Some(parameters) = Node::root(template, &none).get("Parameters")? {
        for (name, parameter) in parameters.members()? {
            if let Some(default) = parameter.get("Default")? {
                defaults.insert(name.to_owned(), default.known()?);
            }
        }
    }
    Ok(defaults)
}

fn function(resource: &Node<'_>, globals: Option<&Node<'_>>) -> Result<Function, TemplateError> {
    let properties = resource.required("Properties")?;
    let mut environment = BTreeMap::new();
    for layer in globals.into_iter().chain([&properties]) {
        if let Some(variables) = layer.find(&["Environment", "Variables"])? {
            for (name, value) in variables.members()? {
                environment.insert(name.to_owned(), value.setting()?);
            }
        }
    }
    let mut streams = BTreeMap::new();
    if let Some(events) = properties.get("Events")? {
        for (name, event) in events.members()? {
            if event.required("Type")?.known()? == "DynamoDB" {
                streams.insert(name.to_owned(), StreamEvent::read(&event.required("Properties")?)?);
            }
        }
    }
    let timeout = match (properties.get("Timeout")?, globals) {
        (None, Some(globals)) => globals.get("Timeout")?,
        (own, _) => own,
    };
    let timeout = timeout.map_or(Ok(DEFAULT_TIMEOUT_SECONDS), |node| node.number(1..=900))?;
    let binary = resource.find(&["Metadata", "BuildProperties", "Binary"])?;
    Ok(Function {
        binary: binary.map(|binary| binary.setting()).transpose()?,
        timeout: Duration::from_secs(timeout),
        environment,
        streams,
    })
}
