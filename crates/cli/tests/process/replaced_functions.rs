//! The functions of a running stack are replaced after a change of a source file.
//!
//! Nothing is compiled: the build copies the binary of this package, and replaces a text in it by that of the source file.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daybook::Daybook;

/// The text in the binary: the title of the problem `version-conflict`.
const TITLE: &str = "Version conflict";

/// How long a process may take to end after the stack.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a binary, its source file, and the list of source files that cargo writes.
struct Project {
    folder: TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        project.save(TITLE);
        let long_ago = SystemTime::now() - Duration::from_secs(60 * 60);
        File::options().append(true).open(project.path("title.rs")).unwrap().set_modified(long_ago).unwrap();
        project.list("main.rs");
        fs::copy(env!("CARGO_BIN_EXE_daybook"), project.path("daybook")).unwrap();
        project
    }

    /// Writes the list of the source files, which has this `main`.
    fn list(&self, main: &str) {
        let [binary, source, main] = ["daybook", "title.rs", main].map(|name| self.path(name));
        let list = format!("{}: {} {}\n", binary.display(), source.display(), main.display());
        fs::write(self.path("daybook.d"), list).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn save(&self, title: &str) {
        fs::write(self.path("title.rs"), title).unwrap();
    }

    /// A stack that builds the binary: a title of another length is an error.
    fn start(&self) -> Daybook {
        let folder = self.folder.path().display();
        let original = env!("CARGO_BIN_EXE_daybook");
        let build = format!(
            "cd '{folder}' && title=$(cat title.rs) && echo build >> builds \
             && {{ test ${{#title}} = {} || {{ echo 'error: wrong title' >&2; exit 101; }}; }} \
             && LC_ALL=C sed \"s/{TITLE}/$title/\" '{original}' > new && chmod +x new && mv new daybook",
            TITLE.len()
        );
        Daybook::with_build_command(&self.path("daybook"), &build, File::create(self.path("log")).unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// The processes of the binary.
    fn processes(&self) -> Vec<String> {
        let listed = Command::new("ps").args(["-e", "-o", "pid=,args="]).output().unwrap();
        let binary = self.path("daybook").display().to_string();
        let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
        lines.lines().filter(|line| line.contains(&format!("{binary} dev"))).map(str::to_owned).collect()
    }

    /// Sends a signal to the process of the functions.
    fn signal_functions(&self, signal: &str) {
        let processes = self.processes();
        let functions = processes.iter().find(|line| line.contains("daybook dev-functions")).unwrap();
        let id = functions.trim().split(' ').next().unwrap();
        let status = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status().unwrap();
        assert!(status.success(), "{processes:?}");
    }

    /// Waits until the functions have been replaced.
    async fn wait_for_new_functions(&self) {
        let give_up = Instant::now() + PATIENCE;
        while !self.log().contains("the functions run in a new process\n") {
            assert!(Instant::now() < give_up, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the binary has this number of processes.
    fn wait_for_processes(&self, number: usize) {
        let give_up = Instant::now() + PATIENCE;
        while self.processes().len() != number {
            assert!(Instant::now() < give_up, "{:?}, expected {number}", self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The token in the forms of the console.
async fn form_token(daybook: &Daybook) -> String {
    let page = reqwest::get(format!("{}/_console/command/todo", daybook.api)).await.unwrap().text().await.unwrap();
    let token = page.split_once("name=\"token\" value=\"").and_then(|(_, token)| token.split_once('"'));
    token.unwrap_or_else(|| panic!("no token in {page}")).0.to_owned()
}

/// The title of a version conflict.
async fn title(daybook: &Daybook) -> Value {
    title_and_reason(daybook).await.0
}

/// The title of a version conflict, and the reason why the response is from the previous functions.
async fn title_and_reason(daybook: &Daybook) -> (Value, Option<String>) {
    let request = reqwest::Client::new().post(format!("{}/todo/1", daybook.api)).header("if-match", "9");
    let response = request.json(&json!({"title": "t", "message": ""})).send().await.unwrap();
    let reason =
        response.headers().get("x-daybook-previous-functions").map(|reason| reason.to_str().unwrap().to_owned());
    (response.json::<Value>().await.unwrap()["title"].clone(), reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_source_file_is_used_by_the_next_request_and_the_state_of_the_stack_survives() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    daybook.list("/_dev/bus", 1).await;
    daybook.set_faults(&json!({"entries": [{"containing": "TodoUpdated", "code": "MalformedDetail"}]})).await;
    daybook.post("/todo/1", &json!({"title": "updated", "message": ""})).await;
    daybook.list("/_dev/dlq", 1).await;
    daybook.set_faults(&json!({"entries": [{"containing": "TodoDeleted", "code": "MalformedDetail"}]})).await;
    assert_eq!(title(&daybook).await, TITLE);
    let before = daybook.get("/_dev/usage").await;
    let token = form_token(&daybook).await;

    for next in ["Version c0nflict", "Version_conflict"] {
        project.save(next);
        assert_eq!(title(&daybook).await, next, "{}", project.log());
    }
    assert_eq!(fs::read_to_string(project.path("builds")).unwrap(), "build\nbuild\n");
    // The table, the bus, the dead letters, the faults and the counts are those of before, and a form that was open still
    // belongs to the stack.
    assert_eq!(form_token(&daybook).await, token);
    assert_eq!(daybook.get("/todo/1").await["version"], 2);
    assert_eq!((daybook.list("/_dev/bus", 1).await.len(), daybook.list("/_dev/dlq", 1).await.len()), (1, 1));
    let after = daybook.get("/_dev/usage").await;
    assert_eq!(after["calls"]["TransactWriteItems"], before["calls"]["TransactWriteItems"]);
    assert!(after["readUnits"].as_f64().unwrap() > before["readUnits"].as_f64().unwrap(), "{after}");
    // The mappings go on after the last record: each message is sent once.
    let deleted = reqwest::Client::new().delete(format!("{}/todo/1", daybook.api)).send().await.unwrap();
    assert!(deleted.status().is_success(), "{deleted:?}");
    daybook.create_todo("2", "").await;
    daybook.list("/_dev/dlq", 2).await;
    daybook.list("/_dev/bus", 2).await;

    project.wait_for_processes(2);
    assert_eq!(daybook.end("INT").0.code(), Some(0));
    project.wait_for_processes(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn source_file_that_was_saved_while_the_binary_was_built_is_used_by_the_first_request() {
    let project = Project::new();
    // The build has read the file before, and writes the binary afterwards.
    project.save("Version c0nflict");
    let binary = File::options().append(true).open(project.path("daybook")).unwrap();
    binary.set_modified(SystemTime::now() + Duration::from_secs(1)).unwrap();
    drop(binary);
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    assert_eq!(title(&daybook).await, "Version c0nflict", "{}", project.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_build_is_shown_and_the_functions_stay_as_they_are_until_a_build_succeeds() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    project.save("too short");
    assert_eq!(title_and_reason(&daybook).await, (json!(TITLE), Some("the build failed".to_owned())));
    let log = project.log();
    // The path is relative to the folder in which the stack was started.
    let saved = project.path("title.rs");
    let saved = saved.strip_prefix(std::env::temp_dir()).unwrap();
    let begun = format!("daybook: building after a change of {}\n", saved.display());
    assert!(log.contains(&begun), "{log}");
    assert!(log.contains("error: wrong title\n") && log.contains("the previous version keeps running\n"), "{log}");
    let console = async || reqwest::get(format!("{}/_console", daybook.api)).await.unwrap().text().await.unwrap();
    let page = console().await;
    assert!(page.contains("role=\"alert\">Your code has changed since, but the build failed"), "{page}");
    // It is not built again before the next change.
    assert_eq!(title_and_reason(&daybook).await, (json!(TITLE), Some("the build failed".to_owned())));
    assert_eq!(fs::read_to_string(project.path("builds")).unwrap(), "build\n");
    // Without a request too, the next change is noticed.
    project.save("Version c0nflict");
    project.wait_for_new_functions().await;
    assert_eq!(title_and_reason(&daybook).await, (json!("Version c0nflict"), None));
    assert!(!console().await.contains("Your code has changed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_of_another_project_in_the_same_target_folder_is_not_used() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    project.list("other/main.rs");
    project.save("Version c0nflict");
    let replaced = || Some("another project has replaced the binary".to_owned());
    for _ in 0..2 {
        assert_eq!(title_and_reason(&daybook).await, (json!(TITLE), replaced()));
    }
    assert_eq!(project.log().matches("give each project a target folder of its own").count(), 1, "{}", project.log());
    assert!(!project.path("builds").exists());
    project.list("main.rs");
    assert_eq!(title_and_reason(&daybook).await, (json!("Version c0nflict"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_functions_are_started_again_and_end_with_a_killed_stack() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    project.signal_functions("KILL");
    project.wait_for_new_functions().await;
    assert_eq!(daybook.get("/todo/1").await["version"], 1);
    project.wait_for_processes(2);

    daybook.kill();
    project.wait_for_processes(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_do_not_respond_end_with_the_stack() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    project.signal_functions("STOP");
    assert_eq!(daybook.end("INT").0.code(), Some(0));
    project.wait_for_processes(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_processes_of_a_running_build_end_with_the_stack() {
    let project = Project::new();
    // A wrapper, as a script that runs cargo is one.
    let folder = project.folder.path().display();
    let build = format!("cd '{folder}' && sh -c 'echo $$ > started && mv started building && exec sleep 300'; true");
    let daybook =
        Daybook::with_build_command(&project.path("daybook"), &build, File::create(project.path("log")).unwrap());
    project.save("Version c0nflict");
    let give_up = Instant::now() + PATIENCE;
    while !project.path("building").exists() {
        assert!(Instant::now() < give_up, "{}", project.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let child = fs::read_to_string(project.path("building")).unwrap();
    let is_running = || {
        let listed = Command::new("ps").args(["-o", "stat=", "-p", child.trim()]).output().unwrap();
        let state = String::from_utf8(listed.stdout).unwrap();
        !state.is_empty() && !state.starts_with('Z')
    };
    assert!(is_running());
    assert_eq!(daybook.end("INT").0.code(), Some(0));
    while is_running() {
        assert!(Instant::now() < give_up, "the process {child} of the build runs on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_clock_is_that_of_the_functions_and_of_those_that_replace_them() {
    let project = Project::new();
    let daybook = project.start();
    daybook.create_todo("1", "").await;
    daybook.list("/_dev/bus", 1).await;
    daybook.move_clock("1d").await;
    daybook.create_todo("2", "").await;
    project.save("Version c0nflict");
    assert_eq!(title(&daybook).await, "Version c0nflict", "{}", project.log());
    daybook.create_todo("3", "").await;
    daybook.move_clock("1d").await;
    daybook.create_todo("4", "").await;
    let mut hours = Vec::new();
    for id in ["1", "2", "3", "4"] {
        let events = daybook.get(&format!("/todo/{id}/events")).await;
        let at: jiff::Timestamp = events["events"][0]["occurredAt"].as_str().unwrap().parse().unwrap();
        hours.push(at.as_second() / 60 / 60);
    }
    // The machine needs less than an hour for all of this.
    let days: Vec<_> = hours.iter().map(|at| (at - hours[0]) / 24).collect();
    assert_eq!(days, [0, 1, 1, 2], "{hours:?}");
}
