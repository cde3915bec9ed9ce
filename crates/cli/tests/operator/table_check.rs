//! The check of `EVENT_TYPE_SHARDS` against the table.

use daybook_cli::operator::Exit;

use crate::support::Setup;

const COMMANDS: [&str; 4] = [
    "verify --type todo",
    "verify --scan",
    "snapshot rebuild --type todo",
    "republish --type todo --from 2020-01-01T00:00:00Z --to 2100-01-01T00:00:00Z",
];

#[tokio::test]
async fn commands_with_too_few_event_type_shards_end_with_status_2() {
    let setup = Setup::with(&[("EVENT_TYPE_SHARDS", "8")]).await;
    for id in 0..40 {
        setup.todo(&id.to_string(), 1).await;
    }
    for command in COMMANDS {
        for shards in [1, 2, 7] {
            let printed = setup.daybook(&format!("EVENT_TYPE_SHARDS={shards} {command}")).await;
            let error = printed.ended.expect_err(command);
            assert_eq!((error.exit_code(), printed.lines), (2, vec![]), "{command}");
            let text = error.to_string();
            let begins = format!(
                "EVENT_TYPE_SHARDS is {shards}, but the table's index has events in the partition TodoCreated#7, so the \
                 functions write with 8 or more: set EVENT_TYPE_SHARDS to"
            );
            assert!(text.starts_with(&begins), "{text}");
        }
        // A higher value only costs more queries.
        for shards in [8, 64] {
            setup.daybook(&format!("EVENT_TYPE_SHARDS={shards} {command}")).await.expect(Exit::Clean);
        }
    }
}

/// The partition without a number, and those from the given number of shards up to the maximum.
#[tokio::test]
async fn check_costs_one_query_for_each_other_partition_once_per_command() {
    let setup = Setup::new().await;
    setup.todo("1", 1).await;
    for (shards, expected) in [(1, 64), (60, 4)] {
        setup.table.proxy.take_calls();
        setup.daybook(&format!("EVENT_TYPE_SHARDS={shards} verify --type todo")).await.expect(Exit::Clean);
        let calls = setup.table.proxy.take_calls();
        let is_check = |limit: &serde_json::Value| *limit == 1;
        assert_eq!(calls.iter().filter(|call| is_check(&call.request["Limit"])).count(), expected);
    }
}
