//! The options that select the stack of a command.

use clap::{Arg, Args, Command};
use daybook_operations::OperatorError;
use daybook_settings::{Environment, SettingError};

/// The end of each operator command's `--help`.
pub const STACK_HELP: &str = "\
To select the stack:
  A deployed stack: its output OperatorEnvironment contains all settings. Load them into a separate shell that has access
  keys as credentials (docs/runbook.md, \"Before you begin\"):
    export STACK=daybook-prod
    export STACK $(aws cloudformation describe-stacks --stack-name $STACK --output text \\
      --query \"Stacks[0].Outputs[?OutputKey=='OperatorEnvironment'].OutputValue\")
  The local stack of `daybook dev`, in another shell than the one that runs it:
    export AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000 TABLE_NAME=daybook-dev
    export AWS_ENDPOINT_URL_EVENTBRIDGE=http://127.0.0.1:8001 EVENT_BUS_NAME=daybook EVENT_SOURCE=com.example.daybook
    export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:8001 DLQ_URL=http://127.0.0.1:8001/000000000000/daybook-dlq
    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:8001 DISCARDED_RECORDS_BUCKET=daybook-discarded
    export VIEWS_TABLE_NAME=daybook-dev-views CHANGES_QUEUE_URL=http://127.0.0.1:8001/000000000000/daybook-changes
  For the local stack, other settings have the defaults of the functions, except FEED_DELAY_MS, which is 0.

Exit status: 0 success, and nothing is wrong; 1 something is wrong or left over, and was printed; 2 a wrong option or
setting, or no region or credentials; 3 AWS did not allow or complete the operation or part of it, or the output could not
be written; 130 Ctrl-C or SIGTERM ended the command; 141 the reader of the output has closed it.";

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which stack (a command requires only what it uses)")]
pub struct StackArgs {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub table: Option<String>,
    /// The number of index partitions that hold the events of a type; the same value as for the functions.
    #[arg(long, env = "EVENT_TYPE_SHARDS", value_name = "N", hide_env_values = true)]
    pub event_type_shards: Option<String>,
    /// The name or ARN of the bus.
    #[arg(long, env = "EVENT_BUS_NAME", value_name = "NAME", hide_env_values = true)]
    pub event_bus: Option<String>,
    /// The source of every message; the same value as for the relay.
    #[arg(long, env = "EVENT_SOURCE", value_name = "SOURCE", hide_env_values = true)]
    pub event_source: Option<String>,
    /// The URL of the dead-letter queue.
    #[arg(long, env = "DLQ_URL", value_name = "URL", hide_env_values = true)]
    pub dlq_url: Option<String>,
    /// The table of the views.
    #[arg(long, env = "VIEWS_TABLE_NAME", value_name = "NAME", hide_env_values = true)]
    pub views_table: Option<String>,
    /// The URL of the projector's queue.
    #[arg(long, env = "CHANGES_QUEUE_URL", value_name = "URL", hide_env_values = true)]
    pub changes_queue_url: Option<String>,
    /// The bucket of discarded records.
    #[arg(long, env = "DISCARDED_RECORDS_BUCKET", value_name = "NAME", hide_env_values = true)]
    pub discarded_bucket: Option<String>,
    /// The name of the relay's function.
    #[arg(long, env = "STREAM_RELAY_NAME", value_name = "NAME", hide_env_values = true)]
    pub relay_function: Option<String>,
    /// The log group of the relay.
    #[arg(long, env = "STREAM_RELAY_LOGS", value_name = "NAME", hide_env_values = true)]
    pub relay_logs: Option<String>,
    /// The name of the stack, for its alarms.
    #[arg(long, env = "STACK", value_name = "NAME", hide_env_values = true)]
    pub stack: Option<String>,
}

impl StackArgs {
    /// The value of each option with the variable for the same setting.
    fn values(&self) -> [(&'static str, &Option<String>); 11] {
        [
            ("TABLE_NAME", &self.table),
            ("EVENT_TYPE_SHARDS", &self.event_type_shards),
            ("EVENT_BUS_NAME", &self.event_bus),
            ("EVENT_SOURCE", &self.event_source),
            ("DLQ_URL", &self.dlq_url),
            ("VIEWS_TABLE_NAME", &self.views_table),
            ("CHANGES_QUEUE_URL", &self.changes_queue_url),
            ("DISCARDED_RECORDS_BUCKET", &self.discarded_bucket),
            ("STREAM_RELAY_NAME", &self.relay_function),
            ("STREAM_RELAY_LOGS", &self.relay_logs),
            ("STACK", &self.stack),
        ]
    }

    /// The environment, with the options in place of their variables.
    pub(crate) fn over(&self, environment: &Environment) -> Environment {
        let given = self.values().into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        given.fold(environment.clone(), |environment, (name, value)| environment.with(name, value))
    }

    /// The error with the name of the option in which the setting was given, or can be given.
    pub(crate) fn explain(&self, error: OperatorError, environment: &Environment) -> OperatorError {
        let OperatorError::Setting { error, .. } = error else { return error };
        let (SettingError::Missing { name } | SettingError::Bad { name, .. }) = &error;
        let flag = flag(name);
        if let (SettingError::Bad { value, expected, .. }, Some(flag)) = (&error, &flag)
            && self.over(environment).optional(name) != environment.optional(name)
        {
            return OperatorError::Usage(format!("{flag} is {value:?}, expected {expected}"));
        }
        OperatorError::Setting { or_give: flag.map(|flag| format!(", or use {flag}")).unwrap_or_default(), error }
    }
}

/// The option for the setting of a variable, as on the command line.
fn flag(variable: &str) -> Option<String> {
    let command = StackArgs::augment_args(Command::new("stack"));
    let option = command.get_arguments().find(|arg| arg.get_env().is_some_and(|name| name == variable));
    option.and_then(Arg::get_long).map(|long| format!("--{long}"))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn each_option_replaces_its_variable() {
        let command = StackArgs::augment_args(Command::new("stack"));
        let longs: Vec<_> = command.get_arguments().map(|arg| arg.get_long().unwrap().to_owned()).collect();
        let words = longs.iter().flat_map(|long| [format!("--{long}"), format!("value of --{long}")]);
        let matches = command.get_matches_from(std::iter::once("stack".to_owned()).chain(words));
        let args = StackArgs::from_arg_matches(&matches).unwrap();
        let environment = args.over(&[("TABLE_NAME", "other"), ("EPOCH", "3")].into_iter().collect());
        assert_eq!(args.values().len(), longs.len());
        for (name, _) in args.values() {
            assert_eq!(environment.optional(name), flag(name).map(|flag| format!("value of {flag}")), "{name}");
        }
        assert_eq!(environment.optional("EPOCH").as_deref(), Some("3"));
    }
}
