//! The options of the local stack, and the project that it serves.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;
use daybook_decider::{RegistrationError, Registry};
use daybook_projection::{ProjectionRegistrationError, Projections};

use crate::rule_option::RuleOption;

/// Where the stack listens, what it stores, and which template it reads.
#[derive(Clone, Debug, Args)]
pub struct DevArgs {
    /// Port of the API.
    #[arg(long, default_value_t = 3000)]
    pub port: u16,
    /// Port of DynamoDB.
    #[arg(long, default_value_t = 8000)]
    pub dynamodb_port: u16,
    /// Port of EventBridge, SQS and KMS.
    #[arg(long, default_value_t = 8001)]
    pub bus_port: u16,
    /// Address to listen on; with 0.0.0.0, containers can connect.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// File that stores the table. Default: the table is in memory.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// The SAM template that the functions and their mappings are read from.
    #[arg(long, value_name = "FILE", default_value = "template.yaml")]
    pub template: PathBuf,
    /// Send events of the bus to a queue or a function; can be repeated. PATTERN is an event pattern (JSON), aggregate
    /// types (TYPE/*) or message types that commas separate, or * for all. TARGET is queue:NAME, function:PATH (a program
    /// that speaks the Lambda Runtime API), function:URL, or queue:NAME -> function:PATH (a function that gets batches of a
    /// queue). The program finds the name of a table of its own in TABLE_NAME.
    #[arg(long = "rule", value_name = "PATTERN -> TARGET")]
    pub rules: Vec<RuleOption>,
    /// Seconds that an invocation of a function of --rule may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=900))]
    pub function_timeout: u16,
    /// OpenTelemetry collector that gets the traces of requests and messages, such as http://localhost:4318.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp: Option<String>,
}

/// The registrations of a project: which aggregates and which projections its functions serve.
#[derive(Clone, Copy, Debug)]
pub struct Project {
    pub aggregates: fn() -> Result<Registry, RegistrationError>,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
}

impl Project {
    pub const fn new(
        aggregates: fn() -> Result<Registry, RegistrationError>,
        projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    ) -> Self {
        Self { aggregates, projections }
    }
}
