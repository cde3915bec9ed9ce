//! The options and variables that select the stack of a command.

use clap::Args;
use daybook_local_stack::http::DYNAMODB_ENDPOINT;
use daybook_settings::Environment;

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

/// The variables that name a stack, or a part of it.
const NAMES: [&str; 13] = [
    "STACK",
    "TABLE_NAME",
    "EVENT_TYPE_SHARDS",
    "EVENT_BUS_NAME",
    "EVENT_SOURCE",
    "DLQ_URL",
    "VIEWS_TABLE_NAME",
    "CHANGES_QUEUE_URL",
    "REACTIONS_QUEUE_URL",
    "DISCARDED_RECORDS_BUCKET",
    "STREAM_RELAY_NAME",
    "STREAM_RELAY_LOGS",
    DYNAMODB_ENDPOINT,
];

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Default, Args)]
pub struct StackArgs {
    /// The table.
    #[arg(long, env = "TABLE_NAME", value_name = "NAME", hide_env_values = true, help_heading = "Which stack")]
    table: Option<String>,
    /// The name of the stack, for its alarms, and for `restore`.
    #[arg(long, env = "STACK", value_name = "NAME", hide_env_values = true, help_heading = "Which stack")]
    stack: Option<String>,
}

impl StackArgs {
    /// The environment, with the options in place of their variables.
    pub(crate) fn over(&self, environment: &Environment) -> Environment {
        environment.clone().with("TABLE_NAME", self.table.clone()).with("STACK", self.stack.clone())
    }

    /// Whether an option or a variable says which stack is meant, or a part of it.
    pub(crate) fn name_a_stack(&self, environment: &Environment) -> bool {
        let given = self.over(environment);
        NAMES.iter().any(|name| given.optional(name).is_some())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        stack: StackArgs,
    }

    #[test]
    fn each_option_replaces_its_variable() {
        let args = Line::parse_from(["daybook", "--table", "t", "--stack", "s"]).stack;
        let environment = args.over(&[("TABLE_NAME", "other"), ("EPOCH", "3")].into_iter().collect());
        for (name, expected) in [("TABLE_NAME", "t"), ("STACK", "s"), ("EPOCH", "3")] {
            assert_eq!(environment.optional(name).as_deref(), Some(expected));
        }
    }
}
