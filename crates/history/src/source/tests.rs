use super::*;

fn index(text: &str) -> Result<HistoryFile, HistoryError> {
    let index = Index::read(&mut text.as_bytes(), &mut io::sink(), || false)?;
    index.finish(PathBuf::new(), None)
}

#[track_caller]
fn errors(text: &str) -> Vec<String> {
    let Err(HistoryError::Lines(errors)) = index(text) else { panic!("{text}") };
    errors.iter().map(ToString::to_string).collect()
}

fn line(id: &str) -> String {
    format!("{{\"aggregateType\":\"todo\",\"aggregateId\":\"{id}\",\"eventType\":\"E\",\"data\":{{}}}}\n")
}

fn file(lines: &[String]) -> String {
    let before = format!("{{\"daybookHistory\":1}}\n{}", lines.concat());
    let sha256 = hex(&Sha256::digest(before.as_bytes()));
    let events = lines.len();
    let summary = format!(r#"{{"aggregates":1,"events":{events},"incomplete":0,"sha256":"{sha256}"}}"#);
    format!("{before}{{\"summary\":{summary}}}\n")
}

#[test]
fn truncated_or_changed_file_is_noticed() {
    let whole = file(&[line("1"), line("1"), line("2")]);
    assert_eq!(index(&whole).unwrap().aggregates.iter().map(|aggregate| aggregate.events).sum::<u64>(), 3);
    for end in 1..whole.len() - 1 {
        let text = &whole[..end];
        // Without a complete header, the file could be one of another system.
        if text.lines().count() > 1 {
            assert!(index(text).is_err(), "{text}");
        }
    }
    let errors_of_cut = errors(&whole[..whole.find("{\"summary").unwrap()]);
    assert_eq!(errors_of_cut, ["line 4: the file ends here without a summary, so it is truncated: export it again"]);
    let lines: Vec<_> = whole.lines().map(|line| format!("{line}\n")).collect();
    let without_third = [&lines[..2], &lines[3..]].concat().concat();
    assert!(errors(&without_third)[0].starts_with("line 4: the summary counts 3 events"), "{without_third}");
    assert!(errors(&whole.replacen("\"1\"", "\"3\"", 1))[0].contains("changed after its export"));
    assert!(errors(&(whole.clone() + &line("1")))[0].starts_with("line 6: it follows the summary"));
    assert!(errors(&(whole.clone() + &whole))[0].starts_with("line 6: it follows the summary"));
}

#[test]
fn wrong_lines_are_reported_with_their_numbers() {
    let text = format!("{}\n\n{}nonsense\n", line("1").trim(), line("2"));
    assert_eq!(errors(&text), ["line 4: expected ident at column 2"]);
    assert_eq!(errors(&"{\n".repeat(1_000)).len(), MAX_ERRORS);
}

#[test]
fn lines_of_an_aggregate_may_stand_apart() {
    let mut copy = NamedTempFile::new().unwrap();
    let text = [line("1"), line("2"), line("2"), line("1"), "\n".to_owned(), line("1")].concat();
    copy.write_all(text.as_bytes()).unwrap();
    let file = HistoryFile::open(copy.path().to_str().unwrap(), || false).unwrap();
    let numbers = |aggregate| file.lines(aggregate).unwrap().map(|line| line.unwrap().0).collect::<Vec<_>>();
    assert_eq!(file.aggregates.iter().map(|aggregate| aggregate.events).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(file.aggregates.iter().map(numbers).collect::<Vec<_>>(), [vec![1, 4, 6], vec![2, 3]]);
}
