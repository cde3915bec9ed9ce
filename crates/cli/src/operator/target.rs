//! The options that select the stack of a command.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use daybook_local_stack::http::DYNAMODB_ENDPOINT;
use daybook_operations::OperatorError;
use daybook_settings::{Environment, SettingError};

pub const STACK_HELP: &str = "\
To select the stack:
  A deployed stack: its output OperatorEnvironment contains all settings. Load them into a separate shell that has access
  keys as credentials (docs/runbook.md, \"Before you begin\"):
    export STACK=daybook-prod
    export STACK $(aws cloudformation describe-stacks --stack-name $STACK --output text \\
      --query \"Stacks[0].Outputs[?OutputKey=='OperatorEnvironment'].OutputValue\")
  The local stack of `daybook dev`, in another shell than the one that runs it: most commands find it in the folder of its
  project and below, if no option and no variable names a stack. This selects it for all of them, and one of several:
    eval \"$(curl -s localhost:3000/_dev/environment)\"

Exit status: 0 success, and nothing is wrong; 1 something is wrong or left over, and was printed; 2 a wrong option or
setting, or no region or credentials; 3 AWS did not allow or complete the operation or part of it, or the output could not
be written; 130 Ctrl-C or SIGTERM ended the command; 141 the reader of the output has closed it.";

/// The options: name, variable with the same setting, name of the value, and description.
const OPTIONS: [(&str, &str, &str, &str); 12] = [
    ("table", "TABLE_NAME", "NAME", "The table"),
    ("event-type-shards", "EVENT_TYPE_SHARDS", "N", "The index partitions of a type; as many as for the functions"),
    ("event-bus", "EVENT_BUS_NAME", "NAME", "The name or ARN of the bus"),
    ("event-source", "EVENT_SOURCE", "SOURCE", "The source of every message; the same value as for the relay"),
    ("dlq-url", "DLQ_URL", "URL", "The URL of the dead-letter queue"),
    ("views-table", "VIEWS_TABLE_NAME", "NAME", "The table of the views"),
    ("changes-queue-url", "CHANGES_QUEUE_URL", "URL", "The URL of the projector's queue"),
    ("reactions-queue-url", "REACTIONS_QUEUE_URL", "URL", "The URL of the reactor's queue"),
    ("discarded-bucket", "DISCARDED_RECORDS_BUCKET", "NAME", "The bucket of discarded records"),
    ("relay-function", "STREAM_RELAY_NAME", "NAME", "The name of the relay's function"),
    ("relay-logs", "STREAM_RELAY_LOGS", "NAME", "The log group of the relay"),
    ("stack", "STACK", "NAME", "The name of the stack, for its alarms, and for `restore`"),
];

/// The given options, by variable.
#[derive(Clone, Debug, Default)]
pub struct StackArgs(BTreeMap<&'static str, String>);

impl Args for StackArgs {
    fn augment_args(command: Command) -> Command {
        let option = |(long, variable, value, help)| {
            let option = Arg::new(variable).long(long).env(variable).value_name(value).help(help).hide_env_values(true);
            option.help_heading("Which stack (a command requires only what it uses)")
        };
        command.args(OPTIONS.map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for StackArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |(_, variable, ..): (_, &'static str, &str, &str)| {
            Some((variable, matches.get_one::<String>(variable)?.clone()))
        };
        Ok(Self(OPTIONS.into_iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl StackArgs {
    /// The environment, with the options in place of their variables.
    pub(crate) fn over(&self, environment: &Environment) -> Environment {
        self.0.iter().fold(environment.clone(), |environment, (name, value)| environment.with(name, value.clone()))
    }

    /// Whether an option or a variable says which stack is meant, or a part of it.
    pub(crate) fn name_a_stack(&self, environment: &Environment) -> bool {
        let given = self.over(environment);
        OPTIONS.iter().map(|(_, name, ..)| *name).chain([DYNAMODB_ENDPOINT]).any(|name| given.optional(name).is_some())
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
    let option = OPTIONS.iter().find(|(_, name, ..)| *name == variable);
    option.map(|(long, ..)| format!("--{long}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_replaces_its_variable() {
        let words = OPTIONS.iter().flat_map(|(long, ..)| [format!("--{long}"), format!("value of --{long}")]);
        let command = StackArgs::augment_args(Command::new("stack"));
        let matches = command.get_matches_from(std::iter::once("stack".to_owned()).chain(words));
        let args = StackArgs::from_arg_matches(&matches).unwrap();
        let environment = args.over(&[("TABLE_NAME", "other"), ("EPOCH", "3")].into_iter().collect());
        for (_, name, ..) in OPTIONS {
            assert_eq!(environment.optional(name), flag(name).map(|flag| format!("value of {flag}")), "{name}");
        }
        assert_eq!(environment.optional("EPOCH").as_deref(), Some("3"));
    }
}
