//! The shell blocks of all pages mean the same in bash and in zsh, and fail in neither.
//!
//! The shells are interactive, as for somebody who pastes a command: only then zsh reads a `#` after a command as an argument,
//! and `!` as history. No command runs. Stubs on the PATH record how they were called, and print what later commands need.
//!
//! Without zsh, the tests run bash only, and print that. `.ci/run` installs zsh and sets `REQUIRE_ZSH`, with which a missing
//! zsh is an error.
//!
//! In reading order: the tests, then `page` (the commands of a page) and `session` (a shell that runs them).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod page;
mod session;

use std::path::{Path, PathBuf};

use page::commands;
use session::{Ran, Session};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All pages, by their paths in the workspace.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![workspace().to_owned()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                let is_source = name != "target" && !name.starts_with('.') && name != "node_modules";
                folders.extend(is_source.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The shells to run: zsh too, if it is installed.
fn shells() -> Vec<&'static str> {
    let has_zsh = std::process::Command::new("zsh").arg("--version").output().is_ok();
    assert!(has_zsh || std::env::var_os("REQUIRE_ZSH").is_none(), "zsh is not installed, but REQUIRE_ZSH is set");
    if has_zsh {
        return vec!["bash", "zsh"];
    }
    eprintln!("zsh is not installed: only bash runs the shell blocks");
    vec!["bash"]
}

/// The errors of commands that are pasted one after the other into one shell.
fn errors(name: &str, commands: &[String]) -> Vec<String> {
    let run = |shell: &'static str| (shell, Session::new(shell, name).run(commands));
    let ran: Vec<_> = shells().into_iter().map(run).collect();
    let mut errors = Vec::new();
    for (index, command) in commands.iter().enumerate() {
        for (shell, ran) in &ran {
            if ran[index].status != Some(0) {
                errors.push(format!("{shell}: status {:?} of {command}\n{:#?}", ran[index].status, ran[index].calls));
            }
        }
        let differs = |(_, of_shell): &&(&str, Vec<Ran>)| of_shell[index] != ran[0].1[index];
        for (shell, of_shell) in ran.iter().filter(differs) {
            let (bash, other) = (&ran[0].1[index].calls, &of_shell[index].calls);
            errors.push(format!("bash and {shell} call differently: {command}\n{bash:#?}\n{other:#?}"));
        }
    }
    errors
}

#[test]
fn shell_blocks_of_each_page_run_alike_in_bash_and_zsh() {
    let (mut all, mut count) = (Vec::new(), 0);
    for path in pages() {
        let text = std::fs::read_to_string(&path).unwrap();
        let commands = commands(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += commands.len();
        let name = path.strip_prefix(workspace()).unwrap().to_str().unwrap().replace('/', "-");
        all.extend(errors(&name, &commands).into_iter().map(|error| format!("{}: {error}", path.display())));
    }
    assert!(count > 130, "only {count} commands were found");
    assert!(all.is_empty(), "{}", all.join("\n\n"));
}

#[test]
fn command_that_only_zsh_misreads_is_an_error() {
    let expected = shells().len() - 1;
    for command in [
        "curl aws:amz:$AWS_REGION:execute-api", // `:e` is the extension of the value
        "curl localhost:3000/events?type=A",    // `?` matches files, and none is an error
        "aws sts get-caller-identity   # the account",
    ] {
        let commands = ["AWS_REGION=eu-central-1".to_owned(), command.to_owned()];
        assert!(errors("misread", &commands).len() >= expected, "{command}");
    }
    assert_eq!(errors("misread", &["curl ${AWS_REGION}:x 'a?b' \"$HOME\"/x".to_owned()]), Vec::<String>::new());
}

#[test]
fn failing_command_is_an_error_in_each_shell() {
    for command in ["no-such-command", "cat < no-such-file", "false"] {
        assert!(errors("failing", &[command.to_owned()]).len() >= shells().len(), "{command}");
    }
}
