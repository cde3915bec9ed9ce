//! EventBridge and SQS, in this process, behind a simulated network that loses calls and responses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use daybook_function_runtime::SdkConfig;
use daybook_local_aws::messaging::{Bus, CallFault, Faults, TextFault};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::dice::Dice;
use crate::faults::{ServiceFault, ServiceFaults, error_reply, latency};
use crate::ledger::Ledger;
use crate::log::Log;
use crate::network::{self, AwsCall, ConnectionLost, Reply, Service};
use crate::process::Process;
use crate::stream::{CampaignMessage, MessageKind};

/// The result of a message or of an unreadable record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// The bus accepted the message with this index.
    Delivered(usize),
    /// The bus accepted the message with this index from an operator.
    Resent(usize),
    /// The queue accepted the message with this index.
    DeadLettered(usize),
    /// The queue accepted an unreadable record.
    DeadLetteredRaw(Value),
    /// The mapping discarded the message, and its destination received it.
    Discarded(usize),
    /// The mapping discarded an unreadable record, and its destination received it.
    DiscardedRaw(Value),
}

/// The messages that the bus does not accept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejections {
    /// Those that it permanently rejects, each with the code.
    pub(crate) permanent: BTreeMap<usize, &'static str>,
    /// Those that fail with a transient error, until a time.
    pub(crate) transient: BTreeSet<usize>,
    pub(crate) until: Option<Instant>,
}

/// The bus, the queue and their simulated network.
#[derive(Clone, Debug)]
pub(crate) struct Services(Arc<Inner>);

struct Inner {
    bus: Bus,
    router: Router,
    log: Arc<Log>,
    messages: Arc<Vec<CampaignMessage>>,
    by_detail: HashMap<String, usize>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services")
    }
}

#[derive(Debug)]
struct State {
    dice: Dice,
    faults: ServiceFaults,
    rejections: Rejections,
    effects: Vec<Effect>,
}

impl Services {
    /// Services with a bus that does not accept some of these messages.
    pub(crate) fn new(
        seed: u64,
        log: Arc<Log>,
        messages: Arc<Vec<CampaignMessage>>,
        faults: ServiceFaults,
        rejections: Rejections,
    ) -> Self {
        let bus = Bus::with("main", "dlq");
        let rows = messages.iter().enumerate();
        let rows = rows.flat_map(|(index, message)| [(index, &message.image), (index, &message.committed)]);
        let by_detail = rows.filter_map(|(index, row)| Some((row["detail"]["S"].as_str()?.to_owned(), index)));
        Self(Arc::new(Inner {
            router: bus.router(),
            bus,
            log,
            by_detail: by_detail.collect(),
            messages,
            state: Mutex::new(State { dice: Dice::new(seed, "services"), faults, rejections, effects: Vec::new() }),
        }))
    }

    /// The configuration of a function instance's clients.
    pub(crate) fn config(&self, process: Arc<Process>, ledger: Arc<Mutex<Option<Ledger>>>) -> SdkConfig {
        network::config(Connection { services: self.clone(), process, caller: Caller::Relay(ledger) })
    }

    /// The configuration of an operator's clients.
    pub(crate) fn operator_config(&self, process: Arc<Process>) -> SdkConfig {
        network::config(Connection { services: self.clone(), process, caller: Caller::Operator })
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.0.log
    }

    pub(crate) fn messages(&self) -> &Arc<Vec<CampaignMessage>> {
        &self.0.messages
    }

    /// Whether the bus permanently rejects a message.
    pub(crate) fn rejects(&self, index: usize) -> bool {
        self.0.state.lock().unwrap().rejections.permanent.contains_key(&index)
    }

    /// From now on, the bus accepts every message.
    pub(crate) fn accept_all(&self) {
        self.0.state.lock().unwrap().rejections = Rejections::default();
    }

    /// The message in each dead-letter message of the queue; `None` for one that contains no outbox row.
    pub(crate) fn queued(&self) -> Vec<Option<usize>> {
        let queued = self.0.bus.queued().into_iter();
        queued.map(|message| self.0.index_of(&serde_json::from_str(&message.body).unwrap())).collect()
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.0.bus
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.0.state.lock().unwrap().effects.clone()
    }

    /// Adds a result that the mapping caused.
    pub(crate) fn add_effect(&self, effect: Effect) {
        self.0.state.lock().unwrap().effects.push(effect);
    }
}

/// The connection of a function instance or an operator.
#[derive(Debug)]
struct Connection {
    services: Services,
    process: Arc<Process>,
    caller: Caller,
}

/// The sender of a call.
#[derive(Clone, Debug)]
enum Caller {
    /// The relay, with the ledger of its invocation.
    Relay(Arc<Mutex<Option<Ledger>>>),
    Operator,
}

/// A call that was sent.
struct Sent {
    services: Arc<Inner>,
    process: Arc<Process>,
    caller: Caller,
    crashes_after: bool,
    fault: Option<ServiceFault>,
}

impl Service for Connection {
    fn serve(&self, call: AwsCall) -> BoxFuture<'static, Result<Reply, ConnectionLost>> {
        let services = Arc::clone(&self.services.0);
        let (process, caller) = (Arc::clone(&self.process), self.caller.clone());
        async move {
            let (crashes_before, crashes_after) = process.call();
            if crashes_before {
                process.crash().await;
            }
            let fault = services.draw(&call.operation);
            let sent = Sent { services, process, caller, crashes_after, fault };
            match (call.operation.as_str(), &sent.caller) {
                ("PutEvents", _) => sent.put_events(call).await,
                ("SendMessage", Caller::Relay(_)) => sent.send_message(call).await,
                (_, Caller::Operator) => sent.call_queue(call).await,
                (other, Caller::Relay(_)) => panic!("the relay calls {other}"),
            }
        }
        .boxed()
    }
}

impl Sent {
    async fn put_events(self, call: AwsCall) -> Result<Reply, ConnectionLost> {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        let entries = request["Entries"].as_array().unwrap();
        let known = |entry: &Value| self.services.by_detail.get(entry["Detail"].as_str()?).copied();
        let indices: Vec<_> = entries.iter().map(known).collect();
        let Some(indices) = indices.into_iter().collect::<Option<Vec<usize>>>() else {
            self.services.log.violation("a message is sent that was never committed");
            return Err(ConnectionLost);
        };
        self.with_ledger(|ledger| ledger.check_request(&indices));
        self.services.log.line(|| {
            let names: Vec<_> = indices.iter().map(|&index| self.services.name(index)).collect();
            let operator = if matches!(self.caller, Caller::Operator) { "operator: " } else { "" };
            format!("{operator}PutEvents [{}] {:?}", names.join(", "), self.fault)
        });

        let failing =
            self.fault.map_or(vec![], |fault| self.services.with_dice(|dice| fault.of_entries(indices.len(), dice)));
        let script = CallFault { fail_entries: failing, ..CallFault::default() };
        let services = Arc::clone(&self.services);
        let delivered = indices.clone();
        let effect_of = if matches!(self.caller, Caller::Operator) { Effect::Resent } else { Effect::Delivered };
        let effect = async move {
            let reply = services.arrive("AWSEvents.PutEvents", call.body, Some(script))?;
            let response: Value = serde_json::from_str(&reply.body).unwrap();
            let mut state = services.state.lock().unwrap();
            for (at, index) in delivered.into_iter().enumerate() {
                if response["Entries"][at]["EventId"].is_string() {
                    state.effects.push(effect_of(index));
                }
            }
            drop(state);
            if reply.status == 400 {
                services.log.violation(format!("the bus rejects a request: {}", reply.body));
            }
            Ok(reply)
        };
        let reply = self.transmit(effect).await?;
        let reply = match self.fault {
            Some(fault) => Reply { body: fault.damage_response(reply.body), ..reply },
            None => reply,
        };
        self.record_results(&indices, &reply);
        Ok(reply)
    }

    async fn send_message(self, call: AwsCall) -> Result<Reply, ConnectionLost> {
        let request: Value = serde_json::from_str(&call.body).unwrap();
        let dead_letter: Value = serde_json::from_str(request["MessageBody"].as_str().unwrap()).unwrap();
        let pending = self.with_ledger(|ledger| ledger.check_dead_letter(&dead_letter)).flatten();
        self.services.log.line(|| format!("SendMessage {} {:?}", dead_letter["error"]["code"], self.fault));

        let services = Arc::clone(&self.services);
        let effect = async move {
            let reply = services.arrive("AmazonSQS.SendMessage", call.body, None)?;
            let of_row = services.index_of(&dead_letter);
            let dead_lettered =
                of_row.map_or_else(|| Effect::DeadLetteredRaw(dead_letter["record"].clone()), Effect::DeadLettered);
            services.log.line(|| format!("the queue responds {}: {dead_lettered:?}", reply.status));
            if reply.status == 200 {
                services.state.lock().unwrap().effects.push(dead_lettered);
            } else {
                services.log.violation(format!("the queue rejects a dead-letter message: {}", reply.body));
            }
            Ok(reply)
        };
        let reply = self.transmit(effect).await?;
        if self.fault == Some(ServiceFault::Garbage) {
            return Ok(Reply { body: "{\"MessageId\"".to_owned(), ..reply });
        }
        if reply.status == 200
            && let Some(at) = pending
        {
            self.with_ledger(|ledger| ledger.settle(at));
        }
        Ok(reply)
    }

    /// A call of an operator to the queue.
    async fn call_queue(self, call: AwsCall) -> Result<Reply, ConnectionLost> {
        let services = Arc::clone(&self.services);
        services.log.line(|| format!("operator: {} {:?}", call.operation, self.fault));
        let effect = async move {
            if call.operation == "DeleteMessageBatch" {
                services.check_deletion(&call.body);
            }
            services.respond(&format!("AmazonSQS.{}", call.operation), call.body, None).await
        };
        let reply = self.transmit(effect).await?;
        match self.fault {
            Some(fault) => Ok(Reply { body: fault.damage_response(reply.body), ..reply }),
            None => Ok(reply),
        }
    }

    fn with_ledger<T>(&self, act: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        match &self.caller {
            Caller::Relay(ledger) => ledger.lock().unwrap().as_mut().map(act),
            Caller::Operator => None,
        }
    }

    /// Sends a call and waits for its response. A call that was sent arrives even if its sender crashes.
    async fn transmit(
        &self,
        effect: impl Future<Output = Result<Reply, ConnectionLost>> + Send + 'static,
    ) -> Result<Reply, ConnectionLost> {
        let (request_time, response_time) = self.services.with_dice(|dice| latency(self.fault, dice));
        match self.fault {
            Some(ServiceFault::LostBefore) => {
                sleep(request_time).await;
                return Err(ConnectionLost);
            }
            Some(ServiceFault::HangsBefore) => return std::future::pending().await,
            _ => {}
        }
        let error_of = |fault: ServiceFault| self.services.with_dice(|dice| fault.error(dice));
        if let Some(error) = self.fault.and_then(error_of) {
            sleep(request_time + response_time).await;
            return Ok(error);
        }
        let effect = tokio::spawn(async move {
            sleep(request_time).await;
            effect.await
        });
        if self.fault == Some(ServiceFault::Late) {
            return std::future::pending().await;
        }
        let reply = effect.await.map_err(|_| ConnectionLost)??;
        if self.crashes_after {
            self.process.crash().await;
        }
        sleep(response_time).await;
        match self.fault {
            Some(ServiceFault::FailedAfter) => {
                Ok(error_reply(self.services.with_dice(|dice| dice.one_of(&[500, 502])), "InternalFailure"))
            }
            Some(ServiceFault::LostAfter) => Err(ConnectionLost),
            Some(ServiceFault::HangsAfter) => std::future::pending().await,
            _ => Ok(reply),
        }
    }

    /// Adds the result of each entry to the ledger.
    fn record_results(&self, indices: &[usize], reply: &Reply) {
        let code_of = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let response: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        if reply.status != 200 {
            let code = code_of(&response["__type"]);
            let alone = indices.len() == 1;
            self.with_ledger(|ledger| indices.iter().for_each(|&index| ledger.entry_failed(index, &code, alone)));
            return;
        }
        let Some(results) = response["Entries"].as_array().filter(|results| results.len() == indices.len()) else {
            return;
        };
        let not_accepted = results.iter().filter(|result| !result["EventId"].is_string()).count();
        if response["FailedEntryCount"] != not_accepted {
            return;
        }
        self.with_ledger(|ledger| {
            for (&index, result) in indices.iter().zip(results) {
                if result["EventId"].is_string() {
                    ledger.entry_accepted(index);
                } else if result["ErrorCode"].is_string() {
                    ledger.entry_failed(index, &code_of(&result["ErrorCode"]), true);
                }
            }
        });
    }
}

impl Inner {
    fn with_dice<T>(&self, act: impl FnOnce(&mut Dice) -> T) -> T {
        act(&mut self.state.lock().unwrap().dice)
    }

    fn draw(&self, operation: &str) -> Option<ServiceFault> {
        let mut state = self.state.lock().unwrap();
        let State { dice, faults, .. } = &mut *state;
        let fault = faults.next_fault(operation, dice)?;
        let service = if operation == "PutEvents" { "bus" } else { "queue" };
        self.log.count(&format!("{service} {fault:?}"));
        Some(fault)
    }

    /// A request reaches its service, which responds at once.
    fn arrive(&self, target: &str, body: String, script: Option<CallFault>) -> Result<Reply, ConnectionLost> {
        self.respond(target, body, script).now_or_never().expect("nothing here waits")
    }

    async fn respond(&self, target: &str, body: String, script: Option<CallFault>) -> Result<Reply, ConnectionLost> {
        let entries = self.text_faults();
        self.bus.set_faults(Faults { put_events: script.into_iter().collect(), entries, ..Faults::default() });
        let request = Request::post("/").header("x-amz-target", target).body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), usize::MAX).await.map_err(|_| ConnectionLost)?;
        Ok(Reply { status, body: String::from_utf8(body.to_vec()).unwrap() })
    }

    /// The messages that the bus does not accept now.
    fn text_faults(&self) -> Vec<TextFault> {
        let Rejections { permanent, transient, until } = &self.state.lock().unwrap().rejections;
        let fault = |index: usize, code: &str| TextFault {
            containing: self.messages[index].id.clone(),
            code: code.to_owned(),
            times: None,
        };
        let transient = transient.iter().filter(|_| until.is_some_and(|until| Instant::now() < until));
        let transient = transient.map(|&index| fault(index, "InternalFailure"));
        permanent.iter().map(|(&index, code)| fault(index, code)).chain(transient).collect()
    }

    /// The message in a dead-letter message.
    fn index_of(&self, dead_letter: &Value) -> Option<usize> {
        let is_of = |message: &CampaignMessage| {
            message.kind != MessageKind::Unreadable && dead_letter["message"]["messageId"] == message.id.as_str()
        };
        self.messages.iter().position(is_of)
    }

    /// Checks that an operator deletes only messages that the bus accepted from an operator.
    fn check_deletion(&self, body: &str) {
        let request: Value = serde_json::from_str(body).unwrap();
        let queued = self.bus.queued();
        for entry in request["Entries"].as_array().unwrap() {
            let handle = entry["ReceiptHandle"].as_str().unwrap();
            let Some(message) = queued.iter().find(|message| handle.starts_with(&message.message_id)) else { continue };
            let index = self.index_of(&serde_json::from_str(&message.body).unwrap());
            let effects = &self.state.lock().unwrap().effects;
            let is_sent = index.is_some_and(|index| effects.contains(&Effect::Resent(index)));
            self.log.expect(is_sent, || format!("message {index:?} is deleted from the queue before it was sent"));
        }
    }

    fn name(&self, index: usize) -> String {
        let message = &self.messages[index];
        format!("{}:{}", message.pk.trim_start_matches("AGGREGATE#"), message.seq)
    }
}
