//! Claims: values that belong to one aggregate alone, such as the e-mail address of a customer.

use std::borrow::Cow;
use std::fmt;

use crate::record::{MAX_NAME, check_kebab_name};

/// A value that belongs to one aggregate alone while [`Aggregate::claims`](crate::Aggregate::claims) returns it. Values are
/// compared byte by byte among all aggregates that use the name, also those of other types.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    name: Cow<'static, str>,
    value: String,
}

impl Claim {
    /// Maximum claims of an aggregate.
    pub const MAX: usize = 20;

    /// Maximum characters of a name.
    pub const MAX_NAME: usize = MAX_NAME;

    /// Maximum bytes of a value, so that the row of a claim has less than 1 KB.
    pub const MAX_VALUE: usize = 512;

    /// What begins the names of claims of personal values. Their rows contain a keyed hash of the value.
    pub const PERSONAL: &str = "personal-";

    /// What ends the name of such a claim as it is stored. The names of others do not have it.
    const HASHED: char = '*';

    /// The claim of a value under a name such as `room-number`: 1 to 128 lower-case letters, digits and hyphens. Both are a
    /// stored format. A name that begins with `personal-` is that of a personal value.
    pub fn new(name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }

    /// Reads `name:value`; `None` if it is not the text of a claim.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(':')?;
        Some(Self::new(name.to_owned(), value)).filter(|claim| claim.check().is_ok())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether its value is personal, and is not stored.
    #[doc(hidden)]
    pub fn is_plain(&self) -> bool {
        self.name.starts_with(Self::PERSONAL) && !self.name.ends_with(Self::HASHED)
    }

    /// The claim as it is stored: with a hash of its text.
    #[doc(hidden)]
    #[must_use]
    pub fn hashed(&self, hash: impl FnOnce(&str) -> String) -> Self {
        Self { name: format!("{}{}", self.name, Self::HASHED).into(), value: hash(&self.to_string()) }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        check_kebab_name(&self.name)?;
        if !(1..=Self::MAX_VALUE).contains(&self.value.len()) {
            let (name, most) = (&self.name, Self::MAX_VALUE);
            return Err(format!("a value of {name} must have 1 to {most} bytes: reject others in decide"));
        }
        Ok(())
    }
}

impl fmt::Display for Claim {
    /// `name:value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.value)
    }
}

/// The difference between the claims of an aggregate before and after new events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimChanges {
    /// The claims that it has only afterwards.
    pub taken: Vec<Claim>,
    /// The claims that it has only before.
    pub released: Vec<Claim>,
}

impl ClaimChanges {
    /// These changes, followed by others.
    pub(crate) fn then(mut self, mut next: Self) -> Self {
        let (taken, released) = (next.taken.clone(), next.released.clone());
        next.taken.retain(|claim| !self.released.contains(claim));
        next.released.retain(|claim| !self.taken.contains(claim));
        self.taken.retain(|claim| !released.contains(claim));
        self.released.retain(|claim| !taken.contains(claim));
        self.taken.extend(next.taken);
        self.released.extend(next.released);
        self
    }

    /// The difference. Fails if a new claim cannot be stored. What was claimed before stops no command.
    pub(crate) fn between(before: &[Claim], after: &[Claim]) -> Result<Self, String> {
        let without = |some: &[Claim], others: &[Claim]| -> Vec<_> {
            some.iter().filter(|claim| !others.contains(claim)).cloned().collect()
        };
        let (taken, mut released) = (without(after, before), without(before, after));
        taken.iter().try_for_each(Claim::check)?;
        if !taken.is_empty() && after.len() > Claim::MAX {
            return Err(format!("it would have {} claims, the maximum is {}", after.len(), Claim::MAX));
        }
        released.retain(|claim| claim.check().is_ok());
        Ok(Self { taken, released })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_is_read_from_its_text() {
        let claim = Claim::new("customer-email", "a:b#c@example.com");
        assert_eq!(Claim::parse(&claim.to_string()), Some(claim));
        let long = format!("email:{}", "x".repeat(Claim::MAX_VALUE + 1));
        for wrong in ["", "email", "email:", ":a", "e#mail:a", "Email:a", "personal-email*:a", &long] {
            assert_eq!(Claim::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_new_claims_have_to_be_valid() {
        let (long, short) = (Claim::new("email", "x".repeat(Claim::MAX_VALUE + 1)), Claim::new("email", "a"));
        let unchanged = ClaimChanges::between(std::slice::from_ref(&long), &[long.clone(), short.clone()]).unwrap();
        assert_eq!(unchanged, ClaimChanges { taken: vec![short.clone()], released: vec![] });
        assert_eq!(ClaimChanges::between(std::slice::from_ref(&long), &[]), Ok(ClaimChanges::default()));
        ClaimChanges::between(&[short], &[long]).unwrap_err();
        let many: Vec<_> = (0..=Claim::MAX).map(|value| Claim::new("email", value.to_string())).collect();
        assert_eq!(ClaimChanges::between(&[], &many[1..]).unwrap().taken.len(), Claim::MAX);
        ClaimChanges::between(&[], &many).unwrap_err();
        assert_eq!(ClaimChanges::between(&many, &many), Ok(ClaimChanges::default()));
    }
}
