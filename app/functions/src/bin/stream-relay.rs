//! The function that publishes the messages of new events to the bus.

use std::process::ExitCode;

fn main() -> ExitCode {
    daybook::stream_relay::run()
}
