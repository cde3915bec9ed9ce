//! The pure kernel of read models: a projection folds the events of many aggregates into the rows of a view.
//!
//! Invariant: nothing here performs I/O, waits or reads a clock. The same events and rows always lead to the same
//! result, so the stored number of the last event suffices to recognize an event that is delivered again.
//!
//! In reading order:
//! - [`projection`]: the [`Projection`] and [`Follows`] traits, which are all that a new projection implements, and
//!   [`Parts`], for rows that many aggregates change.
//! - [`model`]: a projection with its Rust types erased, so that [`Projections`] can hold several; reads the events of a followed
//!   aggregate type and computes their changes.
//! - [`registry`]: the registration of projections by hand, and its checks.
//! - [`given`]: tests of a projection, in the file of the projection.

#![warn(missing_docs)]

pub mod given;
pub mod model;
pub mod projection;
pub mod registry;

pub use daybook_decider::FollowedEvent;
pub use model::{Advanced, ApplyError, ErasedChange, EventStep, ProjectionModel, RowError};
pub use projection::{Follows, MAX_KEY, MAX_KEY_BYTES, Parts, Projection, Source, Stopped, ViewAccess};
pub use registry::{ProjectionRegistrationError, Projections};
