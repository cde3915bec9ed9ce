//! Transactions that take time: while one is in progress, its items become visible one after the other to reads that are
//! not transactions, and it conflicts with other transactions of its items. The engine alone executes everything at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use daybook_table::{AggregateKey, keys};
use daybook_test_support::engine::{Engine, EngineResponse};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::dice::Dice;
use crate::log::Log;
use crate::network::AwsCall;

/// A table, a partition and a sort key.
type ItemKey = (String, String, String);

/// Receives the request of each transaction that has taken effect.
type Committed = Box<dyn Fn(&Value) + Send + Sync>;

/// The transactions in progress.
pub(crate) struct TornTables {
    log: Arc<Log>,
    committed: Committed,
    /// Is notified of a transaction that is visible.
    pub(crate) visible: Notify,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    /// The share of transactions that take time.
    rate: f64,
    /// The share of reads of several keys of which some are left for another call.
    unprocessed: f64,
    /// The size of the pages of an index, if they are smaller than requested: DynamoDB limits their bytes.
    index_page: Option<usize>,
    /// The items of transactions in progress, each with the transaction's token.
    held: BTreeMap<ItemKey, String>,
    /// The items whose change is not visible yet, as reads see them.
    hidden: BTreeMap<ItemKey, Option<Value>>,
    /// The tokens of transactions that have taken effect.
    tokens: BTreeSet<String>,
}

impl fmt::Debug for TornTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TornTables")
    }
}

impl TornTables {
    pub(crate) fn new(seed: u64, log: Arc<Log>, committed: Committed) -> Self {
        let mut dice = Dice::new(seed, "torn tables");
        let (rate, unprocessed) = (dice.one_of(&[0.0, 0.3, 0.8]), dice.one_of(&[0.0, 0.0, 0.2]));
        let index_page = dice.one_of(&[None, None, Some(1), Some(2)]);
        let (held, hidden, tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let state = Mutex::new(State { dice, rate, unprocessed, index_page, held, hidden, tokens });
        Self { log, committed, visible: Notify::new(), state }
    }

    /// Whether a change of this table is not visible yet.
    pub(crate) fn hides_items_of(&self, table: &str) -> bool {
        self.state.lock().unwrap().hidden.keys().any(|key| key.0 == table)
    }

    /// The number of an aggregate's first event that is not visible yet.
    pub(crate) fn first_hidden_event(&self, table: &str, key: &AggregateKey) -> Option<u64> {
        let state = self.state.lock().unwrap();
        let of_aggregate = state.hidden.keys().filter(|hidden| hidden.0 == table && hidden.1 == keys::pk(key));
        of_aggregate.filter_map(|hidden| hidden.2.strip_prefix("EVENT#")?.parse().ok()).min()
    }

    /// Executes a call that has arrived.
    pub(crate) async fn execute(&self, engine: &Engine, call: &AwsCall) -> EngineResponse {
        let Ok(request) = serde_json::from_str::<Value>(&call.body) else { return engine.call(&call.operation, "") };
        match call.operation.as_str() {
            "TransactWriteItems" => self.transact(engine, call, &request).await,
            "TransactGetItems" => {
                let keys: Vec<_> = items(&request).iter().map(|item| key_of(&item["Get"])).collect();
                match self.conflict(&keys) {
                    Some(cancelled) => {
                        self.log.count("read beside a transaction conflicts");
                        cancelled
                    }
                    None => engine.call(&call.operation, &call.body),
                }
            }
            "PutItem" | "UpdateItem" if self.conflict(&[key_of(&request)]).is_some() => {
                error("TransactionConflictException", &Value::Null)
            }
            "BatchGetItem" => self.batch_get(engine, request),
            "GetItem" | "Query" | "Scan" => self.read(engine, call, request),
            _ => engine.call(&call.operation, &call.body),
        }
    }

    async fn transact(&self, engine: &Engine, call: &AwsCall, request: &Value) -> EngineResponse {
        let token = request["ClientRequestToken"].as_str().unwrap_or_default().to_owned();
        let targets: Vec<_> = items(request).iter().map(target).collect();
        let keys: Vec<_> = targets.iter().map(|(key, _)| key.clone()).collect();
        if self.state.lock().unwrap().tokens.contains(&token) {
            // It has already taken effect.
            let in_progress = self.state.lock().unwrap().held.values().any(|held| *held == token);
            let code = "TransactionInProgressException";
            return if in_progress { error(code, &Value::Null) } else { engine.call(&call.operation, &call.body) };
        }
        if let Some(cancelled) = self.conflict(&keys) {
            self.log.count("transaction overlaps another");
            return cancelled;
        }
        let takes_time = {
            let State { dice, rate, .. } = &mut *self.state.lock().unwrap();
            dice.chance(*rate)
        };
        let before = if takes_time { stored(engine, &keys) } else { BTreeMap::new() };
        let response = engine.call(&call.operation, &call.body);
        if response.status != 200 {
            return response;
        }
        self.state.lock().unwrap().tokens.insert(token.clone());
        (self.committed)(request);
        if takes_time {
            let changed = targets.into_iter().filter(|(_, changes)| *changes).map(|(key, _)| key).collect();
            self.reveal(token, keys, changed, before).await;
        }
        self.visible.notify_one();
        response
    }

    /// Makes the changes visible one after the other, in any order.
    async fn reveal(
        &self,
        token: String,
        keys: Vec<ItemKey>,
        mut changed: Vec<ItemKey>,
        mut before: BTreeMap<ItemKey, Value>,
    ) {
        let longest = {
            let State { dice, held, hidden, .. } = &mut *self.state.lock().unwrap();
            held.extend(keys.iter().map(|key| (key.clone(), token.clone())));
            hidden.extend(changed.iter().map(|key| (key.clone(), before.remove(key))));
            dice.shuffle(&mut changed);
            dice.one_of(&[2, 10, 60])
        };
        self.log.count("items visible one after the other");
        for key in &changed {
            let pause = self.state.lock().unwrap().dice.milliseconds(0..=longest);
            sleep(pause).await;
            self.state.lock().unwrap().hidden.remove(key);
        }
        let pause = self.state.lock().unwrap().dice.milliseconds(0..=2);
        sleep(pause).await;
        self.state.lock().unwrap().held.retain(|_, held| *held != token);
    }

    /// The response to a transaction of these items, if another one is changing one of them.
    fn conflict(&self, keys: &[ItemKey]) -> Option<EngineResponse> {
        let state = self.state.lock().unwrap();
        let code = |key| if state.held.contains_key(key) { "TransactionConflict" } else { "None" };
        let reasons: Vec<_> = keys.iter().map(|key| json!({ "Code": code(key) })).collect();
        let conflicts = keys.iter().any(|key| state.held.contains_key(key));
        conflicts.then(|| error("TransactionCanceledException", &reasons.into()))
    }

    fn batch_get(&self, engine: &Engine, mut request: Value) -> EngineResponse {
        let mut unprocessed = json!({});
        let mut requested = BTreeSet::new();
        for (table, of_table) in request["RequestItems"].as_object_mut().unwrap() {
            self.expect_consistent(of_table);
            let keys = of_table["Keys"].as_array_mut().unwrap();
            let mut state = self.state.lock().unwrap();
            let State { dice, unprocessed: rate, .. } = &mut *state;
            if keys.len() > 1 && dice.chance(*rate) {
                self.log.count("keys unprocessed");
                let left = keys.split_off(dice.size(1..=keys.len() - 1));
                unprocessed[table] = json!({"Keys": left, "ConsistentRead": true});
            }
            requested.extend(keys.iter().map(|key| item_key(table, key)));
        }
        let mut response = engine.call("BatchGetItem", &request.to_string());
        if response.status != 200 {
            return response;
        }
        let mut body: Value = serde_json::from_str(&response.body).unwrap();
        for (table, found) in body["Responses"].as_object_mut().unwrap() {
            self.show(table, found.as_array_mut().unwrap(), |key| requested.contains(key));
        }
        body["UnprocessedKeys"] = unprocessed;
        response.body = body.to_string();
        response
    }

    fn read(&self, engine: &Engine, call: &AwsCall, mut request: Value) -> EngineResponse {
        if request["IndexName"].is_null() {
            self.expect_consistent(&request);
        } else if let Some(page) = self.state.lock().unwrap().index_page {
            request["Limit"] = page.into();
        }
        let mut response = engine.call(&call.operation, &request.to_string());
        if response.status != 200 || self.state.lock().unwrap().hidden.is_empty() {
            return response;
        }
        let table = request["TableName"].as_str().unwrap();
        let mut body: Value = serde_json::from_str(&response.body).unwrap();
        if call.operation == "GetItem" {
            let key = item_key(table, &request["Key"]);
            let mut found: Vec<_> = body.as_object_mut().unwrap().remove("Item").into_iter().collect();
            self.show(table, &mut found, |of| *of == key);
            if let Some(item) = found.pop() {
                body["Item"] = item;
            }
        } else {
            // A deleted item that is still visible is found again if its partition is read.
            let values =
                request["ExpressionAttributeValues"].as_object().into_iter().flat_map(|values| values.values());
            let texts: Vec<_> = values.filter_map(|value| value["S"].as_str()).collect();
            let is_read = |(_, pk, sk): &ItemKey| {
                let mut of_sk = texts.iter().filter(|text| *text != pk);
                let (first, last) = (of_sk.next(), of_sk.next());
                let is_in = match (first, last) {
                    (Some(first), Some(last)) => (*first..=*last).contains(&&**sk),
                    (Some(prefix), None) => sk.starts_with(prefix),
                    (None, _) => true,
                };
                call.operation == "Scan" || texts.contains(&&**pk) && is_in
            };
            let found = body["Items"].as_array_mut().unwrap();
            self.show(table, found, |key| is_read(key) && !key.2.starts_with('#'));
            if request["IndexName"].is_null() {
                found.sort_by_key(|item| item["sk"]["S"].as_str().unwrap_or_default().to_owned());
            }
            body["Count"] = found.len().into();
        }
        response.body = body.to_string();
        response
    }

    /// Replaces the items that were found by those that are visible. `is_read`: whether an item is among those that the
    /// read is about.
    fn show(&self, table: &str, found: &mut Vec<Value>, is_read: impl Fn(&ItemKey) -> bool) {
        let state = self.state.lock().unwrap();
        let before = found.len();
        found.retain(|item| !state.hidden.contains_key(&item_key(table, item)));
        let visible = state.hidden.iter().filter(|(key, _)| key.0 == table && is_read(key));
        found.extend(visible.filter_map(|(_, item)| item.clone()));
        if found.len() < before {
            self.log.count("read beside a transaction");
        }
    }

    fn expect_consistent(&self, request: &Value) {
        self.log.expect(request["ConsistentRead"] == true, || format!("a read is not consistent: {request}"));
    }
}

fn items(request: &Value) -> &[Value] {
    request["TransactItems"].as_array().map_or(&[], Vec::as_slice)
}

/// The item of a part of a transaction, and whether the part changes it.
fn target(item: &Value) -> (ItemKey, bool) {
    let (action, of) = item.as_object().unwrap().iter().next().unwrap();
    (key_of(of), action != "ConditionCheck")
}

fn key_of(of: &Value) -> ItemKey {
    let key = if of["Key"].is_object() { &of["Key"] } else { &of["Item"] };
    item_key(of["TableName"].as_str().unwrap(), key)
}

fn item_key(table: &str, item: &Value) -> ItemKey {
    let text = |name: &str| item[name]["S"].as_str().unwrap_or_default().to_owned();
    (table.to_owned(), text("pk"), text("sk"))
}

/// The items of a table with these keys.
fn stored(engine: &Engine, keys: &[ItemKey]) -> BTreeMap<ItemKey, Value> {
    let Some((table, ..)) = keys.first() else { return BTreeMap::new() };
    let requested: Vec<_> = keys.iter().map(|(_, pk, sk)| json!({"pk": {"S": pk}, "sk": {"S": sk}})).collect();
    let request = json!({"RequestItems": {table: {"Keys": requested, "ConsistentRead": true}}});
    let response = engine.call("BatchGetItem", &request.to_string());
    let body: Value = serde_json::from_str(&response.body).unwrap();
    let found = body["Responses"][table].as_array().unwrap_or_else(|| panic!("{}", response.body));
    found.iter().map(|item| (item_key(table, item), item.clone())).collect()
}

fn error(code: &str, reasons: &Value) -> EngineResponse {
    let mut body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "beside another"});
    if reasons.is_array() {
        body["CancellationReasons"] = reasons.clone();
    }
    EngineResponse { status: 400, body: body.to_string() }
}
