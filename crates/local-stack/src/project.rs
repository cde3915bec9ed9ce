//! What the local stack and the `daybook` command get from the project that they run.

use daybook_decider::{RegistrationError, Registry};
use daybook_projection::{ProjectionRegistrationError, Projections};

/// The registrations of a project: which aggregates and which projections its functions serve.
#[derive(Clone, Copy, Debug)]
pub struct Project {
    pub aggregates: fn() -> Result<Registry, RegistrationError>,
    pub projections: fn() -> Result<Projections, ProjectionRegistrationError>,
}

impl Project {
    /// A project with these registrations.
    pub const fn new(
        aggregates: fn() -> Result<Registry, RegistrationError>,
        projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    ) -> Self {
        Self { aggregates, projections }
    }
}
