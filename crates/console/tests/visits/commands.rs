//! The form of a command, and the copy as a test.

use std::path::Path;

use serde_json::json;

use crate::stack::Visit;

/// A test that the console made. It is compiled and run as a test of the aggregates.
const COPIED: &str = "../../app/aggregates/tests/copied_from_console.rs";

#[tokio::test(flavor = "multi_thread")]
async fn form_has_the_fields_of_the_schema() {
    let visit = Visit::start().await;
    let form = visit.page("/command/order").await;
    form.has("name=\"data.customerId\" value=\"alice\"").has("<textarea id=\"data.items\"").has("name=\"If-Match\"");
    form.has("&quot;quantity&quot;: ");
    form.has("name=\"data.total\" value=\"4500\"").has("aria-current=\"page\">PlaceOrder");
    visit.page("/command/order?id=1").await.has("aria-current=\"page\">ProcessPayment").has("value=\"1\" required");
    assert_eq!(visit.get("/command/order?command=None").await.status(), 404);
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_is_sent_and_its_response_shown_as_it_is() {
    let visit = Visit::start().await;
    let items = "[{\"productId\": \"tea's\", \"quantity\": 1}]";
    let place =
        [("command", "PlaceOrder"), ("id", "1"), ("data.customerId", "a"), ("data.items", items), ("data.total", "45")];
    let placed = visit.submit("/command/order", &place).await;
    placed.has("201 Created").has("OrderPlaced").has("href=\"/_console/aggregates/order/1\"");
    placed.has("curl -i --json").has("tea'\\''s").has("/order/1/commands'");

    let pay = |amount| [("command", "ProcessPayment"), ("id", "1"), ("data.amount", amount), ("If-Match", "1")];
    visit.submit("/command/order", &pay("44")).await.has("422 Unprocessable Entity").has(".then_rejected(");
    let paid = visit.submit("/command/order", &pay("45")).await;
    paid.has("200 OK").has("-H 'If-Match: &quot;1&quot;'");
    visit.submit("/command/order", &pay("45")).await.has("409 Conflict").has("version-conflict");
    visit.submit("/command/order", &pay("many")).await.has("invalid-command").has("value=\"many\"");
    let no_json = [("command", "PlaceOrder"), ("id", "2"), ("data.items", "[")];
    visit.submit("/command/order", &no_json).await.has("items is not JSON").has(">[</textarea>");
    assert_eq!(visit.page("/aggregates/order/1").await.body.matches("<li data-row").count(), 2);

    let key = [("command", "CreateTodo"), ("data.title", "t"), ("data.message", ""), ("Idempotency-Key", "k")];
    let created = visit.submit("/command/todo", &key).await;
    created.has("201 Created");
    let id = created.between("href=\"/_console/aggregates/todo/", "\"").to_owned();
    created.has("name=\"Idempotency-Key\" value=\"01").lacks("earlier request");
    let repeated = visit.submit("/command/todo", &key).await;
    assert_eq!(repeated.between("href=\"/_console/aggregates/todo/", "\""), id);
    repeated.has("the response to an earlier request with this key");

    let register =
        [("command", "RegisterCustomer"), ("id", "1"), ("data.email", "Ann@example.com"), ("data.name", "Ann")];
    visit.submit("/command/customer", &register).await.has("201 Created");
    let claims = "<h3>Claims</h3><ul><li><code>personal-email:ann@example.com</code></li></ul>";
    visit.page("/aggregates/customer/1").await.has(claims).has("Ann@example.com");
    // Another one, whose key the console does not have in memory.
    visit.post("/customer", &[], &json!({"id": "2", "email": "b@example.com", "name": "Bob"})).await;
    visit.post("/customer/2/commands", &[], &json!({"command": "ForgetCustomer", "data": {}})).await;
    for page in ["/aggregates/customer/2", "/aggregates/customer/2?version=1", "/events?type=customer"] {
        visit.page(page).await.has("null").lacks("b@example.com").lacks("Bob");
    }
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_test_is_the_one_that_runs_with_the_aggregates() {
    let visit = Visit::start().await;
    visit.post("/account", &[], &json!({"id": "123"})).await;
    visit.post("/account/123", &[], &json!({"ownerFirst": "John", "ownerLast": "Brown"})).await;
    let record = |desc, amount| json!({"command": "RecordTransaction", "data": {"desc": desc, "amount": amount}});
    visit.post("/account/123/commands", &[], &json!([record("A", 200), record("B", -300)])).await;
    let command =
        [("command", "RecordTransaction"), ("id", "123"), ("data.desc", "\"#quoted\"##"), ("data.amount", "-5000")];
    let rejected = visit.submit("/command/account", &command).await;
    let accepted = [("command", "RecordTransaction"), ("id", "123"), ("data.desc", "C"), ("data.amount", "600")];
    let accepted = visit.submit("/command/account", &accepted).await;
    let state = visit.page("/aggregates/account/123/test?version=4").await;
    assert_eq!(visit.get("/aggregates/account/123/test?version=99").await.status(), 404);
    visit.post("/customer", &[], &json!({"id": "9", "email": "ann@example.com", "name": "Ann"})).await;
    let personal = visit.page("/aggregates/customer/9/test?version=1").await;
    personal.has("Replace its personal values");
    visit.post("/customer/9/commands", &[], &json!({"command": "ForgetCustomer"})).await;
    let forgotten = visit.page("/aggregates/customer/9/test?version=2").await;
    let parts = [&rejected, &accepted, &state, &personal, &forgotten].map(|page| {
        let source = page.between("aria-label=\"Rust source\">", "</pre>");
        source
            .replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&")
            .replace("&#39;", "'")
    });
    let mut copied = "//! Tests that the console made. `crates/console/tests/visits/commands.rs` compares them with what it makes now.\n\n\
         #![expect(clippy::unwrap_used, reason = \"a test fails by panicking\")]\n\n"
        .to_owned();
    for (name, source) in ["rejected", "accepted", "state", "personal", "forgotten"].into_iter().zip(parts) {
        copied.push_str(&format!("#[rustfmt::skip]\nmod {name} {{\n{}}}\n\n", with_fixed_time(&source)));
    }
    let copied = format!("{}\n", copied.trim_end());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COPIED);
    if std::env::var_os("REWRITE_COPIED_TESTS").is_some() {
        std::fs::write(&path, &copied).unwrap();
    }
    assert_eq!(copied, std::fs::read_to_string(path).unwrap(), "REWRITE_COPIED_TESTS=1 writes the file again");
    visit.stop().await;
}

/// The source with a time that is the same in each run.
fn with_fixed_time(source: &str) -> String {
    let Some((before, rest)) = source.split_once(".at(\"") else { return source.to_owned() };
    let (_, after) = rest.split_once("\")").unwrap();
    format!("{before}.at(\"2026-11-22T12:00:00.000Z\"){after}")
}

#[tokio::test(flavor = "multi_thread")]
async fn header_with_other_characters_is_rejected_before_it_is_sent() {
    let visit = Visit::start().await;
    let command = [("command", "OpenAccount"), ("id", "1"), ("X-Correlation-Id", "é")];
    visit.submit("/command/account", &command).await.has("X-Correlation-Id may only have ASCII characters");
    let caller = json!({"principal": "ann"}).to_string();
    let command = [("command", "OpenAccount"), ("id", "1"), ("X-Daybook-Caller", caller.as_str())];
    visit.submit("/command/account", &command).await.has("201 Created");
    visit.page("/aggregates/account/1").await.has("by ann");
    visit.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_of_a_joint_append_links_to_the_others() {
    let visit = Visit::start().await;
    visit.submit("/command/course", &[("command", "CreateCourse"), ("id", "rust"), ("data.seats", "20")]).await;
    visit.submit("/command/student", &[("command", "Enrol"), ("id", "ann")]).await;
    let subscribe = [("command", "Subscribe"), ("id", "1"), ("data.course", "rust"), ("data.student", "ann")];
    visit.submit("/command/subscription", &subscribe).await.has("201 Created");
    let course = visit.page("/aggregates/course/rust").await;
    assert_eq!(course.between("<p class=\"hint\">together with ", "</p>").matches("<a href").count(), 2);
    course.has("href=\"/_console/aggregates/subscription/1?version=1\">subscription/1 1</a>");
    course.has("href=\"/_console/aggregates/student/ann?version=2\">student/ann 2</a>");
    visit.page("/aggregates/course/rust?version=1").await.lacks("<dt>Together with</dt>");
    visit.stop().await;
}
