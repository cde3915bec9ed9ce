//! The functions' settings: what the template says, with the stack's own names for what exists only once it is deployed.

use daybook_event_source_mapping::Template;
use daybook_event_source_mapping::template::{Function, Setting};
use daybook_settings::Environment;

use super::stack::DevError;

/// Not "daybook": AWS SDKs refuse the engine's stream shards for names under 8 characters.
const TABLE_NAME: &str = "daybook-dev";

/// The function of a template that a binary is built for.
pub(super) fn function<'a>(template: &'a Template, binary: &'static str) -> Result<&'a Function, DevError> {
    let is_it = |function: &&Function| function.binary == Some(Setting::Known(binary.to_owned()));
    template.functions.values().find(is_it).ok_or(DevError::NoFunction { binary })
}

/// The environment of a function. A variable of this process goes before the template's.
pub(super) fn of_function(function: &Function, bus_url: &str) -> Environment {
    let process = Environment::of_process();
    let setting = |(name, setting): (&String, &Setting)| {
        let local = match name.as_str() {
            "TABLE_NAME" => Some(TABLE_NAME.to_owned()),
            "EVENT_BUS_NAME" => Some("daybook".to_owned()),
            "DLQ_URL" => Some(format!("{bus_url}/000000000000/daybook-dlq")),
            _ => None,
        };
        let of_template = match setting {
            Setting::Known(value) => Some(value.clone()),
            Setting::Unresolved(_) => None,
        };
        Some((name.clone(), process.optional(name).or(of_template).or(local)?))
    };
    function.environment.iter().filter_map(setting).collect()
}
