//! The functions' settings: those of the template, with local names for resources that only a deployment creates.

use std::collections::BTreeMap;

use daybook_event_source_mapping::Template;
use daybook_event_source_mapping::template::{Function, Setting};
use daybook_function_runtime::SdkConfig;
use daybook_settings::Environment;

use crate::error::DevError;

/// Not "daybook": for table names under 8 characters, AWS SDKs reject the shard ids of the engine's stream.
const TABLE_NAME: &str = "daybook-dev";

pub(crate) type Variables = BTreeMap<String, String>;

/// The environment with these variables.
pub(crate) fn of(variables: &Variables) -> Environment {
    variables.iter().collect()
}

/// The function of a template that runs a binary, and its environment variables. A variable of this process overrides the
/// template's. Feeds have no delay, because one process with one clock appends and reads. The stack has read models.
pub(crate) fn function<'a>(
    template: &'a Template,
    binary: &'static str,
    sqs: &SdkConfig,
) -> Result<(&'a Function, Variables), DevError> {
    let is_built = |function: &&Function| function.binary == Some(Setting::Known(binary.to_owned()));
    let function = template.functions.values().find(is_built).ok_or(DevError::NoFunction { binary })?;
    let process = Environment::of_process();
    let variable = |(name, setting): (&String, &Setting)| {
        let of_template = if let Setting::Known(value) = setting { Some(value.clone()) } else { None };
        let of_local_stack = match name.as_str() {
            "FEED_DELAY_MS" => Some("0".to_owned()),
            _ => None,
        };
        let of_stack = match name.as_str() {
            "TABLE_NAME" => Some(TABLE_NAME.to_owned()),
            "EVENT_BUS_NAME" => Some("daybook".to_owned()),
            "VIEWS_TABLE_NAME" => Some(format!("{TABLE_NAME}-views")),
            "DLQ_URL" => Some(format!("{}/000000000000/daybook-dlq", sqs.endpoint_url().unwrap_or_default())),
            "CHANGES_QUEUE_URL" => {
                Some(format!("{}/000000000000/daybook-changes", sqs.endpoint_url().unwrap_or_default()))
            }
            _ => None,
        };
        Some((name.clone(), process.optional(name).or(of_local_stack).or(of_template).or(of_stack)?))
    };
    Ok((function, function.environment.iter().filter_map(variable).collect()))
}
