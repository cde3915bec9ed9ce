//! `Type: DynamoDB` among a function's `Events`.

use std::time::Duration;

use crate::filter::Filter;
use crate::node::Node;
use crate::settings::{MappingSettings, StartingPosition};
use crate::template::{Setting, TemplateError};

/// Five filters are the default quota; AWS raises it to ten on request.
const MAX_FILTERS: usize = 10;

/// An event of `Type: DynamoDB`.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEvent {
    /// `Stream`: the stream's ARN.
    pub stream: Setting,
    /// `Enabled`.
    pub enabled: bool,
    /// `DestinationConfig.OnFailure`.
    pub on_failure: Option<OnFailure>,
    /// How the mapping behaves.
    pub settings: MappingSettings,
}

/// Where discarded records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnFailure {
    /// The destination's ARN.
    pub destination: Setting,
    /// `SQS`, `SNS`, `S3` or `Kafka`, where the template says so. Only S3 gets the records themselves.
    pub kind: Option<String>,
}

impl StreamEvent {
    pub(crate) fn read(event: &Node<'_>) -> Result<Self, TemplateError> {
        for (name, property) in event.members()? {
            match name {
                "BatchSize"
                | "BisectBatchOnFunctionError"
                | "DestinationConfig"
                | "Enabled"
                | "FilterCriteria"
                | "FunctionResponseTypes"
                | "MaximumBatchingWindowInSeconds"
                | "MaximumRecordAgeInSeconds"
                | "MaximumRetryAttempts"
                | "ParallelizationFactor"
                | "StartingPosition"
                | "Stream" => {}
                // Encryption of the filter, and metrics: neither changes which record is delivered when.
                "KmsKeyArn" | "MetricsConfig" => {}
                "TumblingWindowInSeconds" => return Err(property.error("tumbling windows are not supported")),
                _ => return Err(property.error("is no property of a DynamoDB event")),
            }
        }
        let flag = |name, default| event.get(name)?.map_or(Ok(default), |node| node.flag());
        let window = event.get("MaximumBatchingWindowInSeconds")?.map_or(Ok(0), |node| node.number(0..=300))?;
        let retries = event.get("MaximumRetryAttempts")?;
        let age = event.get("MaximumRecordAgeInSeconds")?;
        Ok(Self {
            stream: event.required("Stream")?.setting()?,
            enabled: flag("Enabled", true)?,
            on_failure: on_failure(event)?,
            settings: MappingSettings {
                batch_size: event.get("BatchSize")?.map_or(Ok(100), |node| node.number(1..=10_000))?,
                batching_window: Duration::from_secs(window),
                parallelization_factor: event
                    .get("ParallelizationFactor")?
                    .map_or(Ok(1), |node| node.number(1..=10))?,
                starting_position: starting_position(&event.required("StartingPosition")?)?,
                bisect_batch_on_function_error: flag("BisectBatchOnFunctionError", false)?,
                maximum_retry_attempts: unless_infinite(retries, |node| node.number(0..=10_000))?,
                maximum_record_age: unless_infinite(age, |node| node.number(60..=604_800))?.map(Duration::from_secs),
                report_batch_item_failures: report_batch_item_failures(event)?,
                filter: filter(event)?,
            },
        })
    }
}

/// -1 is infinite, and so is a limit that is not set.
fn unless_infinite<T>(
    node: Option<Node<'_>>,
    read: impl FnOnce(&Node<'_>) -> Result<T, TemplateError>,
) -> Result<Option<T>, TemplateError> {
    match node {
        Some(node) if node.known()? != "-1" => read(&node).map(Some),
        Some(_) | None => Ok(None),
    }
}

fn starting_position(node: &Node<'_>) -> Result<StartingPosition, TemplateError> {
    match node.known()?.as_str() {
        "TRIM_HORIZON" => Ok(StartingPosition::TrimHorizon),
        "LATEST" => Ok(StartingPosition::Latest),
        other => Err(node.error(format!("{other:?} is not TRIM_HORIZON or LATEST"))),
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

fn filter(event: &Node<'_>) -> Result<Filter, TemplateError> {
    let Some(filters) = event.find(&["FilterCriteria", "Filters"])? else { return Ok(Filter::default()) };
    let mut filter = Filter::default();
    for (index, node) in filters.elements()?.enumerate() {
        let pattern = node.required("Pattern")?;
        filter.add(&pattern.known()?).map_err(|bad| pattern.error(bad.to_string()))?;
        if index == MAX_FILTERS {
            return Err(filters.error(format!("more than {MAX_FILTERS} filters")));
        }
    }
    Ok(filter)
}

fn on_failure(event: &Node<'_>) -> Result<Option<OnFailure>, TemplateError> {
    let Some(node) = event.find(&["DestinationConfig", "OnFailure"])? else { return Ok(None) };
    Ok(Some(OnFailure {
        destination: node.required("Destination")?.setting()?,
        kind: node.get("Type")?.map(|kind| kind.known()).transpose()?,
    }))
}
