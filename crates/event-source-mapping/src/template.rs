//! A SAM template's functions and the DynamoDB streams that they are mapped to.
//!
//! Only `AWS::Serverless::Function` resources are read, with `Globals.Function` under them, and of their `Events` those of
//! `Type: DynamoDB`. Intrinsic functions are not evaluated, except `!Ref` to a parameter with a `Default`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::node::{self, Node, Parameters};
pub use crate::stream_event::{OnFailure, StreamEvent};

/// Lambda's time-out for a function that sets none.
const DEFAULT_TIMEOUT_SECONDS: u64 = 3;

/// What a template says about its functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The functions by logical id.
    pub functions: BTreeMap<String, Function>,
}

/// A function of a template.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// `Handler`.
    pub handler: Option<Setting>,
    /// `CodeUri`, when it is a path and not a place in S3.
    pub code_uri: Option<Setting>,
    /// `Metadata.BuildMethod`.
    pub build_method: Option<Setting>,
    /// `Metadata.BuildProperties.Binary`: the binary that cargo-lambda builds for it.
    pub binary: Option<Setting>,
    /// `Timeout`.
    pub timeout: Duration,
    /// `Environment.Variables`.
    pub environment: BTreeMap<String, Setting>,
    /// The streams that invoke it, by the name of the event.
    pub streams: BTreeMap<String, StreamEvent>,
}

/// A value that may hang on something that exists only once it is deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A literal, or the default of a parameter.
    Known(String),
    /// An intrinsic function in its short form: `!Ref Table`, `!GetAtt Queue.Arn`.
    Unresolved(String),
}

/// A template that cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It is not YAML.
    #[error("template is not YAML")]
    Yaml(#[from] serde_yaml_ng::Error),
    /// Something in it is wrong.
    #[error("template at {path:?}: {reason}")]
    At {
        /// The keys that lead to it, joined by dots.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl TemplateError {
    pub(crate) fn at(path: &str, reason: impl Into<String>) -> Self {
        Self::At { path: path.to_owned(), reason: reason.into() }
    }
}

impl Template {
    /// Reads a template, YAML or JSON.
    ///
    /// # Errors
    ///
    /// When it is not YAML, or a function or one of its streams has a value that Lambda would refuse, that is not known
    /// before it is deployed, or that [`Mapping`](crate::Mapping) does not honour.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let template = node::parse(text)?;
        let parameters = parameter_defaults(&template)?;
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
    let inherited = |name: &str| match (properties.get(name)?, globals) {
        (None, Some(globals)) => globals.get(name),
        (own, _) => Ok(own),
    };
    let code_uri = match inherited("CodeUri")? {
        Some(in_s3) if in_s3.is_object_with("Bucket") => None,
        path => path,
    };
    let setting = |node: Option<Node<'_>>| node.map(|node| node.setting()).transpose();

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
    let timeout = inherited("Timeout")?.map_or(Ok(DEFAULT_TIMEOUT_SECONDS), |node| node.number(1..=900))?;
    Ok(Function {
        handler: setting(inherited("Handler")?)?,
        code_uri: setting(code_uri)?,
        build_method: setting(resource.find(&["Metadata", "BuildMethod"])?)?,
        binary: setting(resource.find(&["Metadata", "BuildProperties", "Binary"])?)?,
        timeout: Duration::from_secs(timeout),
        environment,
        streams,
    })
}
