//! Views over HTTP: rows, lists, the wait for an event, and who may read them. The real projector makes the rows.

mod projections;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::http::Method;
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_projection::Projections;
use daybook_projector::{EventRange, Projecting};
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use suite_tests::ApiResponse;

use self::projections::{ByDescription, TodosByTitle};
use crate::callers::events::{ApiEvent, jwt};
use crate::instance::{Instance, answer, request, send, settings, whole};

fn tested() -> Projections {
    ::projections::projections().unwrap().with::<ByDescription>().unwrap().with::<TodosByTitle>().unwrap()
}

/// An instance with the shipped projections and those of the tests.
pub(crate) async fn instance_with(settings: ApiSettings) -> Instance {
    let mut instance = Instance::start().await;
    let api = Api::new(aggregates::registry().unwrap(), instance.table.store(), settings);
    instance.router = router(api.with_views(tested(), instance.table.views().await));
    instance
}

pub(crate) async fn instance() -> Instance {
    instance_with(settings()).await
}

/// Folds all events of an aggregate into all views.
pub(crate) async fn project(instance: &Instance, aggregate: &str) {
    let (aggregate_type, id) = aggregate.split_once('/').unwrap();
    let aggregates = BTreeMap::from([(AggregateKey::new(aggregate_type, id), EventRange::default())]);
    let (events, views) = (instance.table.direct_store(), instance.table.direct_views());
    for model in tested().following(aggregate_type) {
        let projecting = Projecting { model, events: &events, views: &views };
        let cutoff = tokio::time::Instant::now() + Duration::from_secs(60);
        let projected = projecting.project(aggregates.clone(), cutoff).await.unwrap();
        assert_eq!(projected.unfinished, BTreeSet::new());
    }
}

pub(crate) async fn place(instance: &Instance, id: &str, total: i64) {
    let items = json!([{"productId": "coffee", "quantity": 2}]);
    let order = json!({"id": id, "customerId": "alice", "items": items, "total": total});
    instance.post("/order", order).await.expect(201);
    project(instance, &format!("order/{id}")).await;
}

pub(crate) async fn order_command(instance: &Instance, id: &str, command: &str, data: Value) {
    let command = json!({"command": command, "data": data});
    instance.post(&format!("/order/{id}/commands"), command).await.expect(200);
}

/// Opens an account and executes transactions with these descriptions, each of 1.
pub(crate) async fn transact(instance: &Instance, id: &str, descriptions: &[&str]) {
    instance.post("/account", json!({ "id": id })).await.expect(201);
    for description in descriptions {
        let data = json!({"desc": description, "amount": 1});
        let command = json!({"command": "RecordTransaction", "data": data});
        instance.post(&format!("/account/{id}/commands"), command).await.expect(200);
    }
    project(instance, &format!("account/{id}")).await;
}

pub(crate) async fn get_if_none_match(instance: &Instance, path: &str, etag: &str) -> ApiResponse {
    send(&instance.router, Method::GET, path, &[("if-none-match", etag)], None).await
}

/// The rows of a page and of all pages after it.
async fn all_rows(instance: &Instance, path: &str) -> Vec<Value> {
    let (mut next, mut rows) = (Some(path.to_owned()), Vec::new());
    while let Some(path) = next {
        let page = instance.get(&path).await.expect(200);
        rows.extend(page.body["rows"].as_array().unwrap().iter().cloned());
        next = page.next().map(str::to_owned);
    }
    rows
}

fn encoded(key: &str) -> String {
    utf8_percent_encode(key, NON_ALPHANUMERIC).to_string()
}

// Rows.

#[tokio::test(flavor = "multi_thread")]
async fn row_is_returned_as_the_projector_has_made_it() {
    let instance = instance().await;
    instance.get("/views/orders-by-status/placed").await.expect_problem(404, "no-such-row");
    place(&instance, "1", 4500).await;
    let first = instance.get("/views/orders-by-status/placed").await.expect(200);
    assert_eq!(first.text, r#"{"key":"placed","row":{"orders":1,"total":4500}}"#);
    place(&instance, "2", 250).await;
    let second = instance.get("/views/orders-by-status/placed").await.expect(200);
    assert_eq!(second.body, json!({"key": "placed", "row": {"orders": 2, "total": 4750}}));
    assert_ne!(first.header("etag"), second.header("etag"));

    order_command(&instance, "1", "ProcessPayment", json!({"amount": 4500})).await;
    let behind = instance.get("/views/orders-by-status/placed").await.expect(200);
    assert_eq!((behind.header("etag"), &behind.body), (second.header("etag"), &second.body));
    project(&instance, "order/1").await;
    let paid = instance.get("/views/orders-by-status/paid").await.expect(200);
    assert_eq!(paid.body, json!({"key": "paid", "row": {"orders": 1, "total": 4500}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn unchanged_row_gets_a_304_and_head_gets_the_headers_of_get() {
    let instance = instance().await;
    place(&instance, "1", 4500).await;
    let path = "/views/orders-by-status/placed";
    let row = instance.get(path).await.expect(200);
    let etag = row.header("etag").to_owned();
    for tags in [etag.clone(), format!("W/{etag}"), format!("\"0\", {etag}"), "*".to_owned()] {
        let unchanged = get_if_none_match(&instance, path, &tags).await.expect(304);
        assert_eq!((unchanged.header("etag"), unchanged.text.as_str()), (etag.as_str(), ""));
    }
    get_if_none_match(&instance, path, "\"0\"").await.expect(200);
    for path in [path, "/views/orders-by-status/none", "/views/orders-by-status?limit=1", "/views/none"] {
        let head = send(&instance.router, Method::HEAD, path, &[], None).await;
        let got = instance.get(path).await;
        let comparable = |headers: &HeaderMap| {
            let mut headers = headers.clone();
            headers.remove("x-correlation-id");
            headers
        };
        assert_eq!((head.status, head.text.as_str()), (got.status, ""), "{path}");
        assert_eq!(comparable(&head.headers), comparable(&got.headers), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_row_are_merged_and_each_of_them_changes_the_etag() {
    let instance = instance().await;
    let mut etags = BTreeSet::new();
    for (accounts, id) in (1..).zip(["a", "b", "c", "d", "e", "f", "g", "h"]) {
        transact(&instance, id, &["x", "y"]).await;
        let total = instance.get("/views/account-balances/total").await.expect(200);
        assert_eq!(total.body["row"], json!({"accounts": accounts, "balance": 2 * accounts}));
        assert!(etags.insert(total.header("etag").to_owned()));
    }
    assert!(etags.iter().any(|etag| etag.contains('-')), "the accounts are in one part: {etags:?}");
    let one = instance.get("/views/account-balances/account:c").await.expect(200);
    assert_eq!(one.body, json!({"key": "account:c", "row": {"accounts": 1, "balance": 2}}));
    let all = instance.get("/views/account-balances").await.expect(200);
    let keys: Vec<_> = all.body["rows"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys.len(), 9);
    assert!(keys.is_sorted());
    assert_eq!(all.body["rows"][8], json!({"key": "total", "row": {"accounts": 8, "balance": 16}}));
    for limit in 1..4 {
        let rows = all_rows(&instance, &format!("/views/account-balances?limit={limit}")).await;
        assert_eq!(rows, *all.body["rows"].as_array().unwrap(), "{limit}");
    }
}

/// Keys with characters that have a meaning in paths, in queries, in keys of the table or in headers.
const ODD_KEYS: [&str; 12] = [
    "two words",
    "a/b",
    "/a//b/",
    "100%",
    "50%2F",
    "a?b=c&d#e",
    "<a>; rel=\"x\"",
    "日本語 🦀 é\u{301}",
    "\u{0}\u{7f}\n",
    "+",
    "events",
    "VIEW#x@1#0",
];

#[tokio::test(flavor = "multi_thread")]
async fn key_may_contain_any_character() {
    let instance = instance().await;
    transact(&instance, "1", &ODD_KEYS).await;
    for key in ODD_KEYS {
        let row = instance.get(&format!("/views/by-description/{}", encoded(key))).await.expect(200);
        assert_eq!(row.body, json!({"key": key, "row": {"transactions": 1}}));
        let page = instance.get(&format!("/views/by-description?prefix={}", encoded(key))).await.expect(200);
        assert_eq!(page.body["rows"], json!([row.body]));
        // API Gateway passes on the decoded path.
        let event = ApiEvent::get(&format!("/views/by-description/{key}"));
        assert_eq!(event.send(&instance).await.expect(200).body, row.body);
    }
    let rows = all_rows(&instance, "/views/by-description?limit=1").await;
    let keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
    let expected: BTreeSet<_> = ODD_KEYS.map(str::to_owned).into();
    assert_eq!(keys, expected.into_iter().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_no_row_can_have_is_not_found() {
    let instance = instance().await;
    let long = "x".repeat(512);
    transact(&instance, "1", &[&long, &"é".repeat(510)]).await;
    instance.get(&format!("/views/by-description/{long}")).await.expect(200);
    instance.get(&format!("/views/by-description?prefix={long}")).await.expect(200);
    instance.table.proxy.take_calls();
    for key in ["%FF".to_owned(), "x".repeat(513), "x".repeat(3_000), encoded(&"日".repeat(512))] {
        let path = format!("/views/by-description/{key}");
        instance.get(&path).await.expect_problem(404, "no-such-row");
        instance.get(&format!("{path}?seen=account/1@1")).await.expect_problem(404, "no-such-row");
    }
    let path = format!("/views/by-description?prefix={}", encoded(&"日".repeat(512)));
    assert_eq!(instance.get(&path).await.expect(200).body, json!({"rows": [], "cursor": ""}));
    let after = "é".repeat(512);
    for prefix in ["", "prefix=%C3%A9&"] {
        let path = format!("/views/by-description?{prefix}after={}", encoded(&after));
        assert_eq!(instance.get(&path).await.expect(200).body, json!({"rows": [], "cursor": after}));
    }
}

// Lists.

#[tokio::test(flavor = "multi_thread")]
async fn list_is_in_the_order_of_keys_with_cursors_and_links() {
    let instance = instance().await;
    let path = "/views/by-description";
    assert_eq!(instance.get(path).await.expect(200).body, json!({"rows": [], "cursor": ""}));
    transact(&instance, "1", &["b", "a", "ab", "b", "c", "aa"]).await;
    let row = |key: &str, transactions: u64| json!({"key": key, "row": {"transactions": transactions}});

    let all = instance.get(&format!("{path}?after=")).await.expect(200);
    let rows = [row("a", 1), row("aa", 1), row("ab", 1), row("b", 2), row("c", 1)];
    assert_eq!((&all.body, all.next()), (&json!({"rows": rows, "cursor": "c"}), None));
    let page = instance.get(&format!("{path}?limit=2")).await.expect(200);
    assert_eq!(page.body, json!({"rows": [row("a", 1), row("aa", 1)], "cursor": "aa"}));
    assert_eq!(page.next(), Some("/views/by-description?after=aa&limit=2"));
    let page = instance.get(page.next().unwrap()).await.expect(200);
    assert_eq!(page.body["rows"], json!([row("ab", 1), row("b", 2)]));
    let page = instance.get(page.next().unwrap()).await.expect(200);
    assert_eq!((&page.body, page.next()), (&json!({"rows": [row("c", 1)], "cursor": "c"}), None));
    let page = instance.get(&format!("{path}?after=c")).await.expect(200);
    assert_eq!((&page.body, page.next()), (&json!({"rows": [], "cursor": "c"}), None));

    let page = instance.get(&format!("{path}?prefix=a&limit=2")).await.expect(200);
    assert_eq!(page.body["rows"], json!([row("a", 1), row("aa", 1)]));
    assert_eq!(page.next(), Some("/views/by-description?prefix=a&after=aa&limit=2"));
    let page = instance.get(page.next().unwrap()).await.expect(200);
    assert_eq!((&page.body, page.next()), (&json!({"rows": [row("ab", 1)], "cursor": "ab"}), None));
    let page = instance.get(&format!("{path}?prefix=d")).await.expect(200);
    assert_eq!(page.body, json!({"rows": [], "cursor": ""}));
}

#[tokio::test(flavor = "multi_thread")]
async fn descending_list_has_the_same_rows_in_the_opposite_order() {
    let instance = instance().await;
    let large: Vec<_> = (0..12).map(|index| format!("large-{index:02}")).collect();
    let keys: Vec<_> = ["b", "a", "ab", "c", "aa", "é"].into_iter().chain(large.iter().map(String::as_str)).collect();
    transact(&instance, "1", &keys).await;
    let path = "/views/by-description";
    for prefix in ["", "a", "large-1", "é", "d"] {
        for limit in [1, 2, 3, 1_000] {
            let query = format!("prefix={}&limit={limit}", encoded(prefix));
            let mut rows = all_rows(&instance, &format!("{path}?{query}")).await;
            rows.reverse();
            let descending = all_rows(&instance, &format!("{path}?{query}&descending=true")).await;
            assert!(descending == rows, "{query}");
        }
    }
    let page = instance.get(&format!("{path}?prefix=a&limit=2&descending=true")).await.expect(200);
    assert_eq!(page.next(), Some("/views/by-description?prefix=a&after=aa&limit=2&descending=true"));
    // The cursor need not be the key of a row.
    let page = instance.get(&format!("{path}?prefix=a&after=aaa&descending=true")).await.expect(200);
    assert_eq!(page.body["rows"].as_array().unwrap().len(), 2);
    let page = instance.get(&format!("{path}?prefix=b&after=a&descending=true")).await.expect(200);
    assert_eq!(page.body, json!({"rows": [], "cursor": "a"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn range_has_the_rows_from_one_key_to_another() {
    let instance = instance().await;
    let keys = ["ann-11-19", "ann-11-20", "ann-11-20-7", "ann-11-21", "ann-12-01", "bob-11-20"];
    transact(&instance, "1", &keys).await;
    for (query, found) in [
        ("from=ann-11-20", &keys[1..]),
        ("from=ann-11-20&to=ann-11-21", &keys[1..4]),
        ("from=ann-11-20&to=ann-11-20", &keys[1..2]),
        ("to=ann-12", &keys[..4]),
        ("to=", &[]),
        ("from=ann-11-201&to=ann-11-209", &[]),
        ("prefix=ann-&from=ann-11-20-", &keys[2..5]),
        ("prefix=ann-11&to=ann-11-20-8&from=ann-11", &keys[..3]),
    ] {
        for limit in [1, 2, 1_000] {
            for order in ["", "&descending=true"] {
                instance.table.operations();
                let rows = all_rows(&instance, &format!("/views/by-description?{query}&limit={limit}{order}")).await;
                let mut rows: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
                if !order.is_empty() {
                    rows.reverse();
                }
                assert_eq!(rows, found, "{query} {limit} {order}");
                // A query for each page and each of the 2 parts; none for an empty last page.
                let queries = instance.table.operations().iter().filter(|name| **name == "Query").count();
                assert!(queries <= found.len().div_ceil(limit).max(1) * 2, "{query} {limit} {order}: {queries}");
            }
        }
    }
    let path = "/views/by-description?prefix=ann&from=ann-11-20&to=ann-11-21";
    let page = instance.get(&format!("{path}&limit=1")).await.expect(200);
    assert_eq!(page.next(), Some(format!("{path}&after=ann-11-20&limit=1").as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_large_rows_has_fewer_of_them() {
    let instance = instance().await;
    let large: Vec<_> = (0..12).map(|index| format!("large-{index:02}")).collect();
    transact(&instance, "1", &large.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let first = instance.get("/views/by-description?limit=1000").await.expect(200);
    assert!(first.next().is_some(), "12 rows of 300 KB are on one page");
    let rows = all_rows(&instance, "/views/by-description?limit=1000").await;
    assert_eq!(rows.iter().map(|row| row["key"].as_str().unwrap()).collect::<Vec<_>>(), large);
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_is_cut_in_one_part_ends_before_rows_that_have_a_part_there() {
    let instance = instance().await;
    let keys = ["large-1", "large-2", "large-3", "large-4", "large-5", "sum"];
    transact(&instance, "1", &keys).await;
    for id in ["2", "3", "4", "5"] {
        transact(&instance, id, &["sum"]).await;
    }
    let rows = all_rows(&instance, "/views/by-description?limit=1000").await;
    assert_eq!(rows.iter().map(|row| row["key"].as_str().unwrap()).collect::<Vec<_>>(), keys);
    assert_eq!(rows[5]["row"], json!({"transactions": 5}));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_a_transaction_is_changing_is_read_again() {
    let instance = instance().await;
    place(&instance, "1", 4500).await;
    let conflict = InjectedFault::Cancel { codes: vec!["TransactionConflict"] };
    instance.table.operations();
    for _ in 0..3 {
        instance.table.proxy.fail_next("TransactGetItems", conflict.clone());
    }
    instance.get("/views/orders-by-status/placed?seen=order/1@1").await.expect(200);
    assert_eq!(instance.table.operations(), [&["BatchGetItem"][..], &["TransactGetItems"; 4]].concat());
    // More than it has time for.
    for _ in 0..1_000 {
        instance.table.proxy.fail_next("TransactGetItems", conflict.clone());
    }
    let contended = instance.get("/views/orders-by-status/placed?seen=order/1@1").await;
    contended.expect_problem(503, "unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_query_of_a_view_is_reported_with_its_parameter() {
    let instance = instance().await;
    let of_seen = |seen: &str| format!("seen is {seen:?}, expected TYPE/ID@NUMBER, such as account/123@7");
    let of_type = |name: &str| format!("seen names the type {name:?}, which this view does not show; it shows order");
    for (query, detail) in [
        ("seen=order", of_seen("order")),
        ("seen=", of_seen("")),
        ("seen=order/1", of_seen("order/1")),
        ("seen=order/1@0", of_seen("order/1@0")),
        ("seen=order/1@x", of_seen("order/1@x")),
        ("seen=order/a%20b@1", of_seen("order/a b@1")),
        ("seen=account/1@1", of_type("account")),
        ("seen=nothing/1@1", of_type("nothing")),
        ("sen=order/1@1", String::new()),
    ] {
        for path in ["/views/orders-by-status/placed", "/views/orders-by-status"] {
            let invalid = instance.get(&format!("{path}?{query}")).await.expect_problem(400, "bad-query");
            if !detail.is_empty() {
                assert_eq!(invalid.body["detail"], detail);
            }
        }
    }
    for (query, detail) in [
        ("limit=0".to_owned(), "limit must be from 1 to 1000"),
        ("limit=1001".to_owned(), "limit must be from 1 to 1000"),
        (format!("prefix={}", "x".repeat(513)), "prefix must have up to 512 characters"),
        (format!("after={}", "x".repeat(513)), "after must have up to 512 characters"),
        (format!("to={}", "x".repeat(513)), "to must have up to 512 characters"),
        ("from=b&to=a".to_owned(), r#"from is "b", which is greater than to, "a""#),
        ("prefix=ann&from=2026-11-20".to_owned(), r#"from must begin with prefix, which is "ann""#),
        ("prefix=ann&from=ann-1&to=bob".to_owned(), r#"to must begin with prefix, which is "ann""#),
    ] {
        let invalid = instance.get(&format!("/views/orders-by-status?{query}")).await.expect_problem(400, "bad-query");
        assert_eq!(invalid.body["detail"], detail);
    }
    assert_eq!(instance.table.operations(), [""; 0]);
}

// Callers.

#[tokio::test(flavor = "multi_thread")]
async fn projection_decides_which_rows_a_caller_may_read_and_list() {
    let instance = instance().await;
    transact(&instance, "1", &["secret", "secret-2", "x"]).await;
    let (ann, auditor) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "eve", "cognito:groups": "[auditors]"})));
    let get = async |path: &str, who: &Value| ApiEvent::get(path).of(who).send(&instance).await;
    for path in ["/views/by-description/secret", "/views/by-description/secret-none", "/views/by-description"] {
        let forbidden = get(path, &ann).await.expect_problem(403, "forbidden");
        assert_eq!(forbidden.header("etag"), "");
    }
    get("/views/by-description/x", &ann).await.expect(200);
    get("/views/by-description/none", &ann).await.expect_problem(404, "no-such-row");
    get("/views/by-description/secret", &auditor).await.expect(200);
    get("/views/by-description/secret-none", &auditor).await.expect_problem(404, "no-such-row");
    get("/views/by-description", &auditor).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn seen_of_an_aggregate_that_the_caller_may_not_read_is_forbidden() {
    let instance = instance().await;
    let (ann, bob) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "bob"})));
    let todo = json!({"id": "1", "title": "x", "message": ""});
    ApiEvent::post("/todo", &todo).of(&ann).send(&instance).await.expect(201);
    project(&instance, "todo/1").await;
    for path in ["/views/todos-by-title/x", "/views/todos-by-title"] {
        let seen = async |seen: &str, who: &Value| {
            ApiEvent::get(path).query(&format!("seen={seen}")).of(who).send(&instance).await
        };
        seen("todo/1@1", &ann).await.expect(200);
        seen("todo/1@2", &ann).await.expect_problem(404, "no-such-version");
        for number in 1..3 {
            seen(&format!("todo/1@{number}"), &bob).await.expect_problem(403, "forbidden");
        }
        seen("todo/2@1", &bob).await.expect_problem(404, "not-found");
    }
}

// Which views there are.

#[tokio::test(flavor = "multi_thread")]
async fn unknown_view_is_not_found_whatever_the_method() {
    let instance = Instance::start().await;
    for method in [Method::GET, Method::PUT, Method::POST, Method::DELETE] {
        for path in ["/views/nothing", "/views/nothing/x", "/views/nothing/x/y"] {
            let unknown = instance.ask(request(method.clone(), path, &[], None)).await;
            let unknown = unknown.expect_problem(404, "unknown-route");
            let known = "account-balances, orders-by-day, orders-by-status";
            assert_eq!(unknown.body["detail"], format!("there is no view \"nothing\"; known: {known}"));
            assert_eq!(unknown.header("allow"), "");
        }
    }
    for path in ["/views/orders-by-day", "/views/orders-by-day/x"] {
        let refused = instance.ask(request(Method::PUT, path, &[], None)).await;
        assert_eq!(refused.expect_problem(405, "method-not-allowed").header("allow"), "GET,HEAD");
    }
    let without_key = answer(&instance.router, request(Method::GET, "/views/orders-by-day/", &[], None)).await;
    whole(without_key).await.expect_problem(404, "unknown-route");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_without_read_models_has_no_views() {
    let instance = Instance::start().await;
    let without = router(Api::new(aggregates::registry().unwrap(), instance.table.store(), settings()));
    for path in ["/views", "/views/orders-by-status", "/views/orders-by-status/events"] {
        let unknown = whole(answer(&without, request(Method::GET, path, &[], None)).await).await;
        unknown.expect_problem(404, "unknown-type");
    }
    let document = send(&without, Method::GET, "/openapi.json", &[], None).await.expect(200).body;
    let expected = daybook_command_handler::openapi::document(&aggregates::registry().unwrap(), &Projections::new());
    assert_eq!(document, expected);
    assert!(!document.to_string().contains("/views"));
    assert_eq!(instance.table.operations(), [""; 0]);
}
