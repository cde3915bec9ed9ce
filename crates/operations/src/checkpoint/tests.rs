use serde_json::json;

use super::*;

fn owner(value: Value) -> CheckpointOwner {
    serde_json::from_value(value).unwrap()
}

#[test]
fn checkpoint_is_returned_to_the_same_run_and_rejected_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run");
    let mine = || owner(json!({"command": "verify", "table": "t", "types": ["todo"]}));
    let (mut checkpoint, progress) = Checkpoint::open::<u64>(Some(&file), mine()).unwrap();
    assert_eq!(progress, None);
    checkpoint.write_now(&7).unwrap();
    // Not a second later.
    checkpoint.write(&8).unwrap();
    assert_eq!(Checkpoint::open::<u64>(Some(&file), mine()).unwrap().1, Some(7));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    for (other, difference) in [
        (json!({"command": "verify", "table": "u", "types": ["todo"]}), r#"table was "t"; in this one it is "u""#),
        (json!({"command": "verify", "table": "t"}), r#"types was ["todo"]; in this one it is not set"#),
    ] {
        let error = Checkpoint::open::<u64>(Some(&file), owner(other)).unwrap_err();
        assert!(error.to_string().contains(difference), "{error}");
        assert!(matches!(error, OperatorError::Usage(_)));
    }
    checkpoint.finish().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn checkpoint_that_cannot_be_read_or_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run");
    fs::write(&file, "notes").unwrap();
    let error = Checkpoint::open::<u64>(Some(&file), CheckpointOwner::new()).unwrap_err();
    assert!(error.to_string().contains("it is not a checkpoint"), "{error}");
    assert!(matches!(error, OperatorError::Usage(_)) && fs::read_to_string(&file).unwrap() == "notes");

    let file = folder.path().join("no/folder");
    let (mut checkpoint, _) = Checkpoint::open::<u64>(Some(&file), CheckpointOwner::new()).unwrap();
    assert!(matches!(checkpoint.write_now(&1).unwrap_err(), OperatorError::File { .. }));
}
