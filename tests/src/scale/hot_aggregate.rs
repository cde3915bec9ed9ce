//! Processes that write to the same aggregate. In each, the commands that wait while an append is in progress are appended
//! together. Between processes, it is a race: a transaction that overlaps another one is cancelled, and so is one that was
//! decided on an outdated state.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::command::{Command, PARTITION_UNITS, WriteUnits};
use super::pacing::Pacing;

/// The time of a call from a process to the table, or back: half of this to one and a half, in seconds.
const ONE_WAY: f64 = 0.002;
/// The time for which a transaction holds its aggregate, in seconds.
const HELD: f64 = 0.001;

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub struct HotAggregate {
    /// The number of processes.
    pub processes: u32,
    /// The number of requests that each process serves at once.
    pub requests: u32,
    /// The number of commands that each client sends, one after the other.
    pub commands: u32,
    /// The kind of command.
    pub command: Command,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Simulated {
    /// The commands' times in order, in seconds.
    pub times: Vec<f64>,
    /// The number of transactions, with those that were cancelled.
    pub transactions: u32,
    /// The write units of the table, with those of cancelled transactions.
    pub table_units: u32,
    /// The write units of the index.
    pub index_units: u32,
    /// The time of all commands, in seconds.
    pub total: f64,
}

impl Simulated {
    fn commands(&self) -> f64 {
        self.times.len() as f64
    }

    /// Transactions for each command.
    pub fn transactions_per_command(&self) -> f64 {
        f64::from(self.transactions) / self.commands()
    }

    /// Write units of the table and of the index for each command.
    pub fn units_per_command(&self) -> f64 {
        f64::from(self.table_units + self.index_units) / self.commands()
    }

    /// Commands a second, without the limit of the partition.
    pub fn throughput(&self) -> f64 {
        self.commands() / self.total
    }

    /// The commands a second for which one partition has the units.
    pub fn partition_limit(&self) -> f64 {
        PARTITION_UNITS * self.commands() / f64::from(self.table_units)
    }

    /// The time below which this percentage of the commands is, in seconds.
    pub fn percentile(&self, percent: usize) -> f64 {
        self.times[(self.times.len() - 1) * percent / 100]
    }
}

impl HotAggregate {
    /// Simulates until all commands are stored.
    pub fn simulate(self) -> Simulated {
        let process = |_| Process::default();
        let mut simulation = Simulation {
            parameters: self,
            processes: (0..self.processes).map(process).collect(),
            version: 1,
            is_held: false,
            upcoming: BinaryHeap::new(),
            scheduled: 0,
            now: 0.0,
            random: Random(1),
            result: Simulated::default(),
        };
        for number in 0..simulation.processes.len() {
            (0..self.requests).for_each(|_| simulation.arrive(number, self.commands));
        }
        while let Some(Reverse((time, _, process, step))) = simulation.upcoming.pop() {
            simulation.now = f64::from_bits(time);
            simulation.take(process, step);
        }
        simulation.result.total = simulation.now;
        simulation.result.times.sort_by(f64::total_cmp);
        simulation.result
    }
}

/// A client with a command that waits or is sent.
#[derive(Clone, Copy)]
struct Client {
    began: f64,
    left: u32,
}

#[derive(Default)]
struct Process {
    /// The clients that wait, by arrival.
    waiting: VecDeque<Client>,
    /// The clients whose commands are in the transaction that is sent.
    group: Vec<Client>,
    /// The version of the cached state.
    cached: Option<u32>,
    is_busy: bool,
    pacing: Pacing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    PauseEnds,
    ReadArrives,
    ReadReturns { version: u32 },
    TransactionArrives,
    TransactionEnds,
    TransactionReturns { is_stored: bool },
}

struct Simulation {
    parameters: HotAggregate,
    processes: Vec<Process>,
    /// The version of the aggregate in the table.
    version: u32,
    /// Whether a transaction is in progress.
    is_held: bool,
    /// The steps to come, by time and then by the order in which they were scheduled. The bits of positive numbers have the
    /// order of the numbers.
    upcoming: BinaryHeap<Reverse<(u64, u32, usize, Step)>>,
    scheduled: u32,
    now: f64,
    random: Random,
    result: Simulated,
}

impl Simulation {
    fn after(&mut self, delay: f64, process: usize, step: Step) {
        self.scheduled += 1;
        self.upcoming.push(Reverse(((self.now + delay).to_bits(), self.scheduled, process, step)));
    }

    fn after_one_way(&mut self, process: usize, step: Step) {
        let delay = ONE_WAY * (0.5 + self.random.next());
        self.after(delay, process, step);
    }

    /// A client sends its next command. The first one does not wait for others.
    fn arrive(&mut self, number: usize, left: u32) {
        self.processes[number].waiting.push_back(Client { began: self.now, left });
        self.begin(number);
    }

    /// Begins an attempt, if a command waits and no other attempt is in progress.
    fn begin(&mut self, number: usize) {
        let process = &mut self.processes[number];
        if process.is_busy || process.waiting.is_empty() {
            return;
        }
        process.is_busy = true;
        match process.pacing.pause(self.now, self.random.next()) {
            Some(pause) => self.after(pause, number, Step::PauseEnds),
            None if process.cached.is_none() => self.after_one_way(number, Step::ReadArrives),
            None => self.send(number),
        }
    }

    /// Sends the commands that wait as one transaction.
    fn send(&mut self, number: usize) {
        let process = &mut self.processes[number];
        let group = process.waiting.len().min(self.parameters.command.largest_group() as usize);
        process.group = process.waiting.drain(..group).collect();
        self.after_one_way(number, Step::TransactionArrives);
    }

    fn take(&mut self, number: usize, step: Step) {
        match step {
            Step::PauseEnds => self.after_one_way(number, Step::ReadArrives),
            Step::ReadArrives => self.after_one_way(number, Step::ReadReturns { version: self.version }),
            Step::ReadReturns { version } => {
                let process = &mut self.processes[number];
                if let Some(cached) = process.cached.replace(version) {
                    process.pacing.found(self.now, version - cached);
                }
                self.send(number);
            }
            Step::TransactionArrives => {
                self.result.transactions += 1;
                self.result.table_units += self.units(number).table;
                if std::mem::replace(&mut self.is_held, true) {
                    self.after_one_way(number, Step::TransactionReturns { is_stored: false });
                } else {
                    self.after(HELD, number, Step::TransactionEnds);
                }
            }
            Step::TransactionEnds => {
                self.is_held = false;
                let is_stored = self.processes[number].cached == Some(self.version);
                if is_stored {
                    self.version += self.processes[number].group.len() as u32;
                    self.result.index_units += self.units(number).index;
                }
                self.after_one_way(number, Step::TransactionReturns { is_stored });
            }
            Step::TransactionReturns { is_stored } => self.end(number, is_stored),
        }
    }

    /// Ends an attempt. The commands that wait come before the next ones of the clients that get their responses.
    fn end(&mut self, number: usize, is_stored: bool) {
        let process = &mut self.processes[number];
        let group = std::mem::take(&mut process.group);
        process.is_busy = false;
        if is_stored {
            process.cached = process.cached.map(|cached| cached + group.len() as u32);
            self.result.times.extend(group.iter().map(|client| self.now - client.began));
        } else {
            process.pacing.lost(self.now);
            group.iter().rev().for_each(|client| process.waiting.push_front(*client));
        }
        self.begin(number);
        let next = group.iter().filter(|client| is_stored && client.left > 1);
        next.for_each(|client| self.arrive(number, client.left - 1));
    }

    /// The units of the transaction of a process.
    fn units(&self, number: usize) -> WriteUnits {
        self.parameters.command.append(self.processes[number].group.len() as u32)
    }
}

/// Random numbers from 0 to 1 (SplitMix64), which are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
