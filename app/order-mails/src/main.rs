//! The consumer as a Lambda function behind its queue.

use std::process::ExitCode;

use daybook_order_mails::OrderMails;

fn main() -> ExitCode {
    daybook::consumer::run(OrderMails)
}
