//! Errors of the attributes are reported at the line of the user that causes them: rustc compiles a file with mistakes.

use std::env::consts::DLL_EXTENSION;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A mistake for each file of the crate, with the beginning of its error at its line.
const MISTAKES: &str = r#"
#[daybook_macros::commands(
    create = Strat, // there is no command Strat
)]
enum Command { Start {} }

#[daybook_macros::events]
enum Event {
    #[event("Started")]
    Started {},
    Stopped {}, // name the stored event after its aggregate
}

#[daybook_macros::aggregate("counter")]
impl Aggregate for Counter {
    fn evolve() {}
    const TYPE: &'static str = "counter"; // the attribute writes this: remove it
}
"#;

#[test]
fn error_is_reported_at_the_line_that_causes_it() {
    // The library of this crate is beside this test. Others of earlier builds may be there too.
    let test = std::env::current_exe().unwrap();
    let libraries = fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
        path.extension() == Some(DLL_EXTENSION.as_ref())
            && path.file_stem().unwrap().to_string_lossy().contains("daybook_macros-")
    });
    let library = libraries.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes.rs");
    fs::write(&file, MISTAKES).unwrap();
    let rustc = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--error-format=short", "-o", "/dev/null"])
        .arg(format!("--extern=daybook_macros={}", library.display()))
        .arg(&file)
        .output()
        .unwrap();
    let errors = String::from_utf8(rustc.stderr).unwrap();
    for (line, number) in MISTAKES.lines().zip(1..) {
        if let Some((_, error)) = line.split_once(" // ") {
            let is_here = |found: &str| found.contains(&format!("mistakes.rs:{number}:")) && found.contains(error);
            assert!(errors.lines().any(is_here), "line {number}: {error} is not in {errors}");
        }
    }
}
