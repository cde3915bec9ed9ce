//! A SAM template's functions and the DynamoDB streams that they are mapped to.
//!
//! Only `AWS::Serverless::Function` resources are read, with the defaults of `Globals.Function`, and of their `Events`
//! only those of `Type: DynamoDB`. Intrinsic functions are not evaluated, except `!Ref` to a parameter with a
//! `Default`, and `!If` with a condition on such parameters. A function with such a condition that does not hold is left
//! out.
//!
//! `json`: the template as JSON, with the branches of `!If`; values with their paths, and errors.

mod json;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use self::json::{Node, Parameters};
pub use self::json::{Setting, TemplateError};
use crate::settings::{MappingSettings, RecordFilter};

/// Lambda's default time-out.
const DEFAULT_TIMEOUT_SECONDS: u64 = 3;

/// Five filters are the default quota; AWS raises it to ten on request.
const MAX_FILTERS: usize = 10;

/// The properties of a stream event that are supported. Encryption of the filter, and metrics, do not affect the delivery of records.
const PROPERTIES: &str = "BatchSize BisectBatchOnFunctionError DestinationConfig Enabled FilterCriteria \
                          FunctionResponseTypes MaximumBatchingWindowInSeconds MaximumRecordAgeInSeconds \
                          MaximumRetryAttempts ParallelizationFactor StartingPosition Stream KmsKeyArn MetricsConfig";

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

/// An entry of `Type: DynamoDB` in a function's `Events`.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEvent {
    pub enabled: bool,
    pub settings: MappingSettings,
}

impl Template {
    /// Reads a template, YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        Self::with_parameters(text, &[])
    }

    /// Reads a template as it is deployed with these values for parameters, and the defaults of all others.
    pub fn with_parameters(text: &str, values: &[(&str, &str)]) -> Result<Self, TemplateError> {
        let template = json::parse(text)?;
        let mut parameters = parameter_defaults(&template)?;
        parameters.extend(values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let template = json::resolve(template, &parameters);
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

impl StreamEvent {
    fn read(event: &Node<'_>) -> Result<Self, TemplateError> {
        check_properties(event)?;
        let flag = |name, default| event.get(name)?.map_or(Ok(default), |node| node.flag());
        let window = event.get("MaximumBatchingWindowInSeconds")?.map_or(Ok(0), |node| node.number(0..=300))?;
        let retries = event.get("MaximumRetryAttempts")?;
        let age = event.get("MaximumRecordAgeInSeconds")?;
        Ok(Self {
            enabled: flag("Enabled", true)?,
            settings: MappingSettings {
                batch_size: event.get("BatchSize")?.map_or(Ok(100), |node| node.number(1..=10_000))?,
                batching_window: Duration::from_secs(window),
                parallelization_factor: event
                    .get("ParallelizationFactor")?
                    .map_or(Ok(1), |node| node.number(1..=10))?,
                bisect_batch_on_function_error: flag("BisectBatchOnFunctionError", false)?,
                maximum_retry_attempts: unless_infinite(retries, |node| node.number(0..=10_000))?,
                maximum_record_age: unless_infinite(age, |node| node.number(60..=604_800))?.map(Duration::from_secs),
                report_batch_item_failures: report_batch_item_failures(event)?,
                filter: filter(event)?,
            },
        })
    }
}

/// Checks the names of all properties, and the values of those that [`Mapping`](crate::Mapping) does not use: the code
/// that runs a mapping chooses the stream, the starting position and the destination.
fn check_properties(event: &Node<'_>) -> Result<(), TemplateError> {
    for (name, property) in event.members()? {
        if name == "TumblingWindowInSeconds" {
            return Err(property.error("tumbling windows are not supported"));
        }
        if !PROPERTIES.split(' ').any(|known| known == name) {
            return Err(property.error("is not a property of a DynamoDB event"));
        }
    }
    event.required("Stream")?.setting()?;
    let position = event.required("StartingPosition")?;
    if !["TRIM_HORIZON", "LATEST"].contains(&position.known()?.as_str()) {
        return Err(position.error(format!("{:?} is not TRIM_HORIZON or LATEST", position.known()?)));
    }
    if let Some(on_failure) = event.find(&["DestinationConfig", "OnFailure"])? {
        on_failure.required("Destination")?.setting()?;
    }
    Ok(())
}

/// Reads a limit. -1 and a missing value are infinite.
fn unless_infinite<T>(
    node: Option<Node<'_>>,
    read: impl FnOnce(&Node<'_>) -> Result<T, TemplateError>,
) -> Result<Option<T>, TemplateError> {
    match node {
        Some(node) if node.known()? != "-1" => read(&node).map(Some),
        Some(_) | None => Ok(None),
    }
}

fn report_batch_item_failures(event: &Node<'_>) -> Result<bool, TemplateError> {
    let Some(types) = event.get("FunctionResponseTypes")? else { return Ok(false) };
    let mut report = false;
    for node in types.elements()? {
        match node.known()?.as_str() {
            "ReportBatchItemFailures" => report = true,
            other => return Err(node.error(format!("{other:?} is not ReportBatchItemFailures"))),
        }
    }
    Ok(report)
}

fn filter(event: &Node<'_>) -> Result<RecordFilter, TemplateError> {
    let Some(filters) = event.find(&["FilterCriteria", "Filters"])? else { return Ok(RecordFilter::default()) };
    let mut filter = RecordFilter::default();
    for (index, node) in filters.elements()?.enumerate() {
        let pattern = node.required("Pattern")?;
        filter.add(&pattern.known()?).map_err(|error| pattern.error(error))?;
        if index == MAX_FILTERS {
            return Err(filters.error(format!("more than {MAX_FILTERS} filters")));
        }
    }
    Ok(filter)
}
