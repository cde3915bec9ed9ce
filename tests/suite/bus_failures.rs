//! Failures of the bus in the local stack, behind the event source mapping that splits failing batches.

use std::time::Duration;

use daybook_local_aws::messaging::Faults;
use serde_json::{Value, json};
use suite_tests::{PATIENCE, Suite};
use tokio::time::{Instant, sleep};

const COUNT: usize = 30;

fn fail(suite: &Suite, faults: Value) {
    suite.stack.bus().set_faults(serde_json::from_value::<Faults>(faults).unwrap());
}

#[tokio::test]
async fn bus_that_rejects_every_message_does_not_drain_the_stream() {
    for code in ["InvalidArgument", "SomethingNew"] {
        let suite = Suite::start().await;
        let bus = suite.stack.bus();
        fail(&suite, json!({"entries": [{"containing": "", "code": code}]}));
        for n in 0..COUNT {
            let todo = json!({"id": n.to_string(), "title": "TODO", "message": ""});
            suite.post("/todo", &todo).await.expect(201);
        }
        // Time enough for the mapping to split a batch down to single records.
        sleep(Duration::from_secs(5)).await;
        // Fewer than three rejections with one code count as failures of single messages, which the relay sends to the
        // dead-letter queue.
        assert!(bus.dead_letters().len() <= 2, "{code}: {}", bus.dead_letters().len());
        assert!(bus.delivered().is_empty());

        fail(&suite, json!({}));
        let give_up = Instant::now() + PATIENCE;
        while bus.delivered().len() + bus.dead_letters().len() < COUNT {
            assert!(Instant::now() < give_up, "{code}: {} arrived", bus.delivered().len());
            sleep(Duration::from_millis(20)).await;
        }
        assert!(bus.dead_letters().len() <= 2, "{code}: {}", bus.dead_letters().len());
    }
}
