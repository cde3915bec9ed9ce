//! The events of a project's `events/` folder, and the responses that its API must return.
//!
//! - `comparison`: compares a response with the recorded one, and records one.

mod comparison;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_command_handler::{Api, ApiSettings, gateway, router, store_settings};
use daybook_event_store::EventStore;
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_settings::Environment;
use daybook_view_store::ViewStore;
use serde_json::Value;
use tokio::runtime::Runtime;

pub use self::comparison::{Extent, difference, generalized};
use crate::project::Project;

/// The time-out of an invocation, as in the template.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the events in this folder to the API of the project, in the order of their names, over an empty table. The file
/// `NAME.json` is an event as AWS sends it, `NAME.answer.json` the response. The length of the response is not compared, because
/// the rest determines it. With `RECORD` in the environment, a response that has no file is recorded.
pub fn check(project: Project, folder: &Path) -> Result<(), String> {
    let checked = Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(check_all(project, folder)));
    checked.map_err(|error: Box<dyn Error>| error.to_string())
}

async fn check_all(project: Project, folder: &Path) -> Result<(), Box<dyn Error>> {
    let database = LocalDynamoDb::in_memory().await?;
    let config = aws_config_at(database.url());
    let environment: Environment = [("TABLE_NAME", "daybook-dev"), ("FEED_DELAY_MS", "0")].into_iter().collect();
    let store = EventStore::new(&config, store_settings(&environment)?);
    store.admin().create_table().await?;
    let views = ViewStore::new(&config, "daybook-dev-views".to_owned());
    views.create_table().await?;
    let api = Api::new((project.aggregates)()?, store, ApiSettings::read(&environment)?);
    let router = router(api.with_views((project.projections)()?, views));
    for path in events(folder)? {
        let event = read(&path)?;
        let mut response = gateway::respond(router.clone(), &event, TIMEOUT).await?;
        if let Some(headers) = response["headers"].as_object_mut() {
            headers.remove("content-length");
        }
        compare(&path, &event, &response)?;
    }
    Ok(())
}

/// The files with events, by name.
fn events(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let entries = fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    let is_event =
        |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(".json") && !path.ends_with(".answer.json"));
    let mut events: Vec<_> = paths.into_iter().filter(is_event).collect();
    events.sort();
    Ok(events)
}

fn compare(path: &Path, event: &str, response: &Value) -> Result<(), Box<dyn Error>> {
    let recorded = path.with_extension("answer.json");
    if std::env::var_os("RECORD").is_some() && !recorded.exists() {
        fs::write(&recorded, format!("{:#}\n", generalized(response, event)))?;
    }
    let file = recorded.display();
    if !recorded.exists() {
        return Err(format!("{file} does not exist; with RECORD=1, the test records the response").into());
    }
    let written: Value = serde_json::from_str(&read(&recorded)?)?;
    let (before, now) = (&written["statusCode"], &response["statusCode"]);
    let difference = match difference(&written, response, Extent::Whole) {
        None => return Ok(()),
        Some(_) if before != now => format!("the status was {before} and is {now}"),
        Some(difference) => difference,
    };
    Err(format!(
        "{file}: {difference}\nin {response:#}\nIf the response is right, delete the file, and run the test with RECORD=1. If a \
         command has changed, change the request first: {}",
        path.display()
    )
    .into())
}

fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

#[cfg(test)]
mod tests {
    use daybook_decider::Registry;
    use daybook_projection::Projections;

    use super::*;

    #[test]
    fn other_response_is_reported_with_its_status_and_how_to_record_it() {
        let folder = tempfile::tempdir().unwrap();
        let (event, answer) = (folder.path().join("a.json"), folder.path().join("a.answer.json"));
        let check = || {
            let project = Project::new(|| Ok(Registry::new()), || Ok(Projections::new()));
            check(project, folder.path()).unwrap_err()
        };
        fs::write(&event, include_str!("../../scaffold/template/event.json").replace("{{aggregate}}", "item")).unwrap();
        assert!(check().contains("a.answer.json does not exist; with RECORD=1, the test records the response"));
        fs::write(&answer, r#"{"statusCode": 201, "body": {"id": "item-1"}}"#).unwrap();
        let error = check();
        assert!(error.contains("a.answer.json: the status was 201 and is 404\nin {"), "{error}");
        assert!(error.contains("delete the file, and run the test with RECORD=1. If a command has changed"), "{error}");
        assert!(error.ends_with(&event.display().to_string()), "{error}");
    }
}
