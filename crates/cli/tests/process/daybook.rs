//! A running `daybook dev`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the process may take for anything. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `daybook dev`, killed when it is dropped.
pub(crate) struct Daybook {
    process: Child,
    pub(crate) api: String,
    pub(crate) dynamodb: String,
    pub(crate) bus: String,
    epoch: Option<String>,
    output: Option<Lines<BufReader<ChildStdout>>>,
    printed: Arc<AtomicUsize>,
}

impl Daybook {
    /// A stack with the table in memory.
    pub(crate) fn in_memory() -> Self {
        Self::start(None, &template())
    }

    /// A stack with the table in a file.
    pub(crate) fn with_data(data: &Path) -> Self {
        Self::start(Some(data), &template())
    }

    pub(crate) fn start(data: Option<&Path>, template: &Path) -> Self {
        Self::start_in_epoch(data, template, None)
    }

    /// A stack with this setting `EPOCH`.
    pub(crate) fn start_in_epoch(data: Option<&Path>, template: &Path, epoch: Option<&str>) -> Self {
        Self::spawn(data, template, epoch, &[]).with_reader()
    }

    /// A stack with the table in memory that sends its traces to this collector.
    pub(crate) fn traced(collector: &str) -> Self {
        Self::spawn(None, &template(), None, &["--otlp", collector]).with_reader()
    }

    fn with_reader(mut self) -> Self {
        let (output, printed) = (self.output.take().unwrap(), self.printed.clone());
        std::thread::spawn(move || {
            for _ in output {
                printed.fetch_add(1, Ordering::Relaxed);
            }
        });
        self
    }

    /// A stack whose messages on standard output nobody reads.
    pub(crate) fn start_unread(data: Option<&Path>, template: &Path) -> Self {
        Self::spawn(data, template, None, &[])
    }

    /// A stack that is started in this folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command.args(["dev", "--no-restart", "--template"]).arg(template()).current_dir(folder);
        Self::run(command, None).with_reader()
    }

    fn spawn(data: Option<&Path>, template: &Path, epoch: Option<&str>, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        // These tests have the variables of cargo, as `cargo run` has.
        command.args(["dev", "--no-restart", "--template"]).arg(template);
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
        // Not in the folder of a project, where commands of other tests would find it.
        command.args(options).envs(epoch.map(|epoch| ("EPOCH", epoch))).current_dir(std::env::temp_dir());
        Self::run(command, epoch)
    }

    /// A stack whose functions are in a process of their own, which this command builds.
    pub(crate) fn with_build_command(binary: &Path, build_command: &str, log: File) -> Self {
        let mut command = Command::new(binary);
        command.args(["dev", "--build-command", build_command, "--template"]).arg(template()).stderr(log);
        command.current_dir(std::env::temp_dir());
        Self::run(command, None).with_reader()
    }

    fn run(mut command: Command, epoch: Option<&str>) -> Self {
        command.args(["--port", "0", "--dynamodb-port", "0", "--bus-port", "0"]);
        let mut process = loop {
            match command.stdout(Stdio::piped()).spawn() {
                // Another test starts a process, which has a copied binary open for writing until it runs a program of its own.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                process => break process.unwrap(),
            }
        };
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut url = |name: &str| loop {
            let line = lines.next().unwrap().unwrap();
            if let Some(rest) = line.trim_start().strip_prefix(name) {
                return rest.split_whitespace().next().unwrap().to_owned();
            }
        };
        let (api, dynamodb, bus) = (url("API"), url("DynamoDB"), url("Bus, DLQ"));
        let epoch = epoch.map(str::to_owned);
        Self { process, api, dynamodb, bus, epoch, output: Some(lines), printed: Arc::default() }
    }

    /// The number of messages that the stack has printed: those that reached the bus since its start.
    pub(crate) fn printed(&self) -> usize {
        self.printed.load(Ordering::Relaxed)
    }

    /// Waits until the stack has printed this number of messages.
    pub(crate) async fn wait_until_printed(&self, messages: usize) {
        let (mut last, mut changed) = (self.printed(), Instant::now());
        while last < messages {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if self.printed() > last {
                (last, changed) = (self.printed(), Instant::now());
            }
            assert!(changed.elapsed() < PATIENCE, "{last} messages were printed, expected {messages}");
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn end(mut self, signal: &str) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        send_signal(&self.process, signal);
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status, begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the process does not end after SIG{signal}");
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        reqwest::get(format!("{}{path}", self.api)).await.unwrap().json().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let client = reqwest::Client::new();
        let response = client.post(format!("{}{path}", self.api)).json(body).send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
        response.json().await.unwrap()
    }

    pub(crate) async fn create_todo(&self, id: &str, message: &str) {
        self.post("/todo", &json!({"id": id, "title": "t", "message": message})).await;
    }

    pub(crate) async fn set_faults(&self, faults: &Value) {
        let client = reqwest::Client::new();
        let response = client.put(format!("{}/_dev/faults", self.api)).json(faults).send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }

    /// Moves the clock of the stack forward.
    pub(crate) async fn move_clock(&self, by: &str) {
        let request = reqwest::Client::new().put(format!("{}/_dev/clock", self.api));
        let response = request.json(&json!({"forwardBy": by})).send().await.unwrap();
        assert!(response.status().is_success(), "{response:?}");
    }

    /// Waits until this list of the stack has this length, and returns it.
    pub(crate) async fn list(&self, path: &str, length: usize) -> Vec<Value> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let list = self.get(path).await.as_array().unwrap().clone();
            if list.len() >= length {
                assert_eq!(list.len(), length, "{list:?}");
                return list;
            }
            assert!(Instant::now() < give_up, "{path} has {} entries, expected {length}", list.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until this many different messages are on the bus.
    pub(crate) async fn wait_for_messages(&self, count: usize) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let bus = self.get("/_dev/bus").await;
            let ids = bus.as_array().unwrap().iter().map(|entry| entry["detail"]["metadata"]["messageId"].to_string());
            let found = ids.collect::<BTreeSet<_>>().len();
            if found == count {
                return;
            }
            assert!(found < count && Instant::now() < give_up, "{found} messages, expected {count}: {bus}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Runs an operator command on the stack. Returns its output.
    pub(crate) fn operate(&self, words: &[&str]) -> String {
        self.operate_to_end(words).1
    }

    /// The variables that select the stack.
    fn environment(&self) -> Vec<(String, String)> {
        let mut stream = TcpStream::connect(self.api.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(b"GET /_dev/environment HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let variable = |line: &str| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('\'').to_owned()))
        };
        text.lines().filter_map(variable).collect()
    }

    /// Runs an operator command on the stack. Returns its exit status and its output.
    pub(crate) fn operate_to_end(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
        command
            .args(words)
            .env_clear()
            .envs(self.environment())
            .envs(self.epoch.as_ref().map(|epoch| ("EPOCH", epoch)));
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), printed)
    }
}

impl Drop for Daybook {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal to a process: `TERM`, `INT`.
pub(crate) fn send_signal(process: &Child, signal: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", process.id())]).status().unwrap();
    assert!(sent.success());
}

/// The template of this repository.
pub(crate) fn template() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../template.yaml")
}

/// The names of the files in a folder.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
