//! A SAM template's functions and the DynamoDB streams that they are mapped to.
//!
//! Only `AWS::Serverless::Function` resources are read, with `Globals.Function` under them, and of their `Events` those of
//! `Type: DynamoDB`. Intrinsic functions are not evaluated, except `!Ref` to a parameter with a `Default`.
//!
//! - `function`: the template and its functions; `stream_event`: their mappings.
//! - `node`: values with the path that an error names; `long_form`: the template as JSON.
//! - `error`: what is wrong with a template.

mod error;
mod function;
mod long_form;
mod node;
mod stream_event;

pub use error::TemplateError;
pub use function::{Function, Template};
pub use node::Setting;
pub use stream_event::StreamEvent;
