//! A SAM template's functions and the DynamoDB streams that they are mapped to.
//!
//! Only `AWS::Serverless::Function` resources are read, with the defaults of `Globals.Function`, and of their `Events`
//! only those of `Type: DynamoDB`. Intrinsic functions are not evaluated, except `!Ref` to a parameter with a
//! `Default`, and `!If` with a condition on such parameters. A function with such a condition that does not hold is left
//! out.
//!
//! - `function`: the template and its functions; `stream_event`: their mappings.
//! - `node`: values with their paths, for errors; `long_form`: the template as JSON.
//! - `conditions`: the branches of `!If`.
//! - `error`: errors in a template.

mod conditions;
mod error;
mod function;
mod long_form;
mod node;
mod stream_event;

pub use error::TemplateError;
pub use function::{Function, Template};
pub use node::Setting;
pub use stream_event::StreamEvent;
