//! Operator commands find the local stack of the project in whose folder they are started.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::daybook::Daybook;

/// Runs `daybook verify` in a folder. Returns its exit status, its output and its errors.
fn verify(folder: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_daybook"));
    command.args(["verify", "--json"]).current_dir(folder).env_clear().env("AWS_EC2_METADATA_DISABLED", "true");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let [printed, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), printed, errors)
}

#[tokio::test(flavor = "multi_thread")]
async fn command_without_a_named_stack_is_on_the_running_local_stack_of_its_project() {
    let folder = tempfile::tempdir().unwrap();
    let [project, other] = ["project", "other"].map(|name| folder.path().join(name));
    for project in [&project, &other] {
        fs::create_dir_all(project.join("app/aggregates")).unwrap();
        fs::write(project.join("app/aggregates/Cargo.toml"), "").unwrap();
    }
    let below = project.join("app/aggregates");
    let none = |project: &Path| {
        format!(
            "no stack is named, and no local stack of the project {} is running",
            fs::canonicalize(project).unwrap().display()
        )
    };
    let (status, _, errors) = verify(&below, &[]);
    assert!(status == Some(2) && errors.contains(&none(&project)), "{errors}");

    let first = Daybook::in_folder(&project);
    first.create_todo("1", "m").await;
    for variables in [[].as_slice(), &[("AWS_REGION", "eu-central-1"), ("AWS_PROFILE", "not-there")], &[("EPOCH", "1")]]
    {
        let (status, printed, errors) = verify(&below, variables);
        assert_eq!((status, errors), (Some(0), format!("daybook: on the local stack at {}\n", first.api)), "{printed}");
        assert!(printed.contains("\"aggregates\":1"), "{printed}");
    }
    // A setting that is given replaces that of the stack.
    let (status, _, errors) = verify(&below, &[("EPOCH", "none")]);
    assert!(status == Some(2) && errors.contains("EPOCH is \"none\""), "{errors}");
    // A stack that is named is not replaced, even if its settings or credentials are missing.
    for named in
        [("TABLE_NAME", "daybook-dev"), ("STACK", "daybook-prod"), ("AWS_ENDPOINT_URL_DYNAMODB", &first.dynamodb)]
    {
        let (status, _, errors) = verify(&below, &[named]);
        assert!(status == Some(2) && !errors.contains("local stack"), "{named:?}: {errors}");
    }
    let (status, _, errors) = verify(&other, &[]);
    assert!(status == Some(2) && errors.contains(&none(&other)), "{errors}");
    let (_, _, errors) = verify(folder.path(), &[]);
    assert!(errors.starts_with("daybook: environment variable TABLE_NAME is missing"), "{errors}");

    let second = Daybook::in_folder(&project);
    let (status, _, errors) = verify(&project, &[]);
    let both = [&first.api, &second.api].iter().all(|url| errors.contains(url.as_str()));
    assert!(status == Some(2) && errors.contains("2 local stacks of the project") && both, "{errors}");
    // It leaves its file.
    first.kill();
    let (status, _, errors) = verify(&project, &[]);
    assert_eq!((status, errors), (Some(0), format!("daybook: on the local stack at {}\n", second.api)));
    second.end("TERM");
    let (status, _, errors) = verify(&project, &[]);
    assert!(status == Some(2) && errors.contains(&none(&project)), "{errors}");
    assert_eq!(fs::read_dir(project.join("target/daybook-stacks")).unwrap().count(), 1);
}
