//! `daybook schemas`: the documents, and what breaks a consumer since an earlier release.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Exit status, standard output and standard error.
fn schemas(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_daybook")).arg("schemas").args(arguments).env_clear().output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn copy(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file)).unwrap()
}

#[test]
fn schemas_prints_the_documents() {
    assert_eq!(schemas(&[]), (0, copy("messages.schema.json"), String::new()));
    assert_eq!(schemas(&["--asyncapi"]), (0, copy("asyncapi.json"), String::new()));
}

#[test]
fn schemas_since_an_earlier_release_prints_what_breaks_consumers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("earlier.json");
    let since = |earlier: &str| {
        std::fs::write(&file, earlier).unwrap();
        schemas(&["--since", file.to_str().unwrap()])
    };
    let copy = copy("messages.schema.json");
    assert_eq!(since(&copy), (0, "No change breaks a consumer.\n".to_owned(), String::new()));

    let mut earlier: Value = serde_json::from_str(&copy).unwrap();
    let data = &mut earlier["$defs"]["todo.TodoUpdated"]["properties"]["detail"]["properties"]["data"];
    data["properties"]["color"] = serde_json::json!({"type": "string"});
    let expected = "todo.TodoUpdated: detail.data.color is not sent any more\n";
    assert_eq!(since(&earlier.to_string()), (1, expected.to_owned(), String::new()));

    let (code, output, error) = since("{}");
    assert_eq!((code, output.as_str()), (2, ""));
    assert!(error.contains("it is not what `daybook schemas` prints"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let (code, _, error) = schemas(&["--since", file.to_str().unwrap()]);
    assert_eq!(code, 3);
    assert!(error.starts_with("daybook: cannot read the schemas of the earlier release in "), "{error}");
}
