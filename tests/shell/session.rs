//! An interactive shell that runs a page's commands, with stubs instead of programs.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs of all pages. Another one is an error, because the shell does not find it.
const PROGRAMS: [&str; 24] = [
    "aws",
    "awscurl",
    "bash",
    "cargo",
    "cp",
    "curl",
    "datamodel-codegen",
    "daybook",
    "git",
    "jq",
    "json2ts",
    "pip",
    "gh",
    "python3",
    "rm",
    "sam",
    // These record the beginning and the end of a command.
    "begins",
    "ends",
    "tests/mutations/breadth",
    "tests/mutations/run",
    ".ci/local-invoke",
    ".ci/run",
    ".ci/lint",
    "bench/run",
];

/// Records its name and its arguments, and prints what the commands after it read. The separators appear on no page.
const STUB: &str = r#"#!/bin/sh
case ${0##*/} in jq) while read -r line; do :; done ;; esac
called=${0##*/}
for argument; do called=$called$(printf '\037')$argument; done
# In one write, because the programs of a pipe run at the same time.
printf '%s\036' "$called" >>"$RECORD"
case "${0##*/} $*" in
  "aws configure export-credentials"*)
    printf 'export %s\n' AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=secret/key+ AWS_SESSION_TOKEN=token/+== ;;
  "aws sts get-caller-identity"*"--query Account"*) echo 123456789012 ;;
  *OperatorEnvironment*) echo AWS_REGION=eu-central-1 TABLE_NAME=daybook-Table EVENT_TYPE_SHARDS=1 DLQ_URL=https://sqs.example/q ;;
  *Outputs*OutputKey*ApiUrl*) echo https://api.example ;;
  *Outputs*OutputKey*) echo output-of-the-stack ;;
esac
"#;

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// `None` if the shell did not run the command.
    pub(crate) status: Option<i32>,
    /// The programs that it called, with their arguments.
    pub(crate) calls: Vec<Vec<String>>,
}

pub(crate) struct Session {
    shell: &'static str,
    folder: PathBuf,
}

impl Session {
    pub(crate) fn new(shell: &'static str, name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        drop(std::fs::remove_dir_all(&folder));
        let (home, programs) = (folder.join("home"), folder.join("programs"));
        for folder in [&home.join(".daybook-tools/bin"), &programs] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(home.join(".daybook-tools/bin/activate"), "").unwrap();
        // The project of the tutorial.
        std::fs::create_dir_all(folder.join("../tickets")).unwrap();
        let stub = folder.join("stub");
        std::fs::write(&stub, STUB).unwrap();
        std::fs::set_permissions(&stub, Permissions::from_mode(0o755)).unwrap();
        for program in PROGRAMS {
            // A path is one in the workspace, which is the current folder.
            let path = if program.contains('/') { folder.join(program) } else { programs.join(program) };
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(&stub, path).unwrap();
        }
        Self { shell, folder }
    }

    /// Runs the commands one after the other, as if they were pasted.
    pub(crate) fn run(&self, commands: &[String]) -> Vec<Ran> {
        let options: &[&str] = match self.shell {
            "zsh" => &["-f", "-i", "-s"],
            _ => &["--norc", "--noprofile", "-i", "-s"],
        };
        let record = self.folder.join(format!("record-{}", self.shell));
        let mut shell = Command::new(self.shell)
            .args(options)
            .current_dir(&self.folder)
            .env_clear()
            .env("HOME", self.folder.join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("RECORD", &record)
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut typed = format!("PATH='{}'\n", self.folder.join("programs").display());
        for (index, command) in commands.iter().enumerate() {
            typed.push_str(&format!("begins {index}\n{command}\nends $?\n"));
        }
        shell.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        shell.wait().unwrap();
        let record = std::fs::read_to_string(record).unwrap_or_default();
        (0..commands.len()).map(|index| of_command(&record, index)).collect()
    }
}

/// The part of the record between the beginning and the end of a command.
fn of_command(record: &str, index: usize) -> Ran {
    let begin = format!("begins\u{1f}{index}");
    let all = record.split('\u{1e}').skip_while(|call| *call != begin).skip(1);
    let mut calls: Vec<Vec<String>> = all
        .take_while(|call| !call.starts_with("begins\u{1f}"))
        .map(|call| call.split('\u{1f}').map(str::to_owned).collect())
        .filter(|call: &Vec<String>| !call[0].is_empty())
        .collect();
    // The programs of a pipe run at the same time.
    calls.sort();
    let (ends, calls): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call[0] == "ends");
    Ran { status: ends.first().and_then(|end| end.get(1)?.parse().ok()), calls }
}
