//! A SAM template's functions and the DynamoDB streams that they are mapped to.
//!
//! Only `AWS::Serverless::Function` resources are read, with the defaults of `Globals.Function`, and of their `Events`
//! only those of `Type: DynamoDB`. Intrinsic functions are not evaluated, except `!Ref` to a parameter with a
//! `Default`, and `!If` with a condition on such parameters. A function with such a condition that does not hold is left
//! out.
//!
//! - `function`: the template and its functions; `stream_event`: their mappings.
//! - `node`: values with their paths, and errors. `conditions`: the template as JSON, with the branches of `!If`.

mod conditions;
mod function;
mod node;
mod stream_event;

pub use function::{Function, Template};
pub use node::{Setting, TemplateError};
pub use stream_event::StreamEvent;
