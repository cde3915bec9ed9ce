//! What the `daybook` command gets from the project that it runs.

use daybook_decider::{RegistrationError, Registry};
use daybook_projection::{ProjectionRegistrationError, Projections};

/// The registrations of a project: which aggregates and which projections its functions serve.
#[derive(Clone, Copy, Debug)]
pub struct Project {
    /// Registers the aggregates.
    pub aggregates: fn() -> Result<Registry, RegistrationError>,
    /// Registers the projections.
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
}
