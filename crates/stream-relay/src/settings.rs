//! The configuration of the relay.

use std::time::Duration;

use daybook_queue::Waits;
use daybook_settings::{Environment, SettingError};

#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// `EVENT_BUS_NAME`: the name or ARN of the bus.
    pub event_bus_name: String,
    /// `EVENT_SOURCE`: the `Source` of every message.
    pub event_source: String,
    /// `DLQ_URL`: the queue for messages that cannot be sent.
    pub dlq_url: String,
    /// The retry policy, which is not read from the environment.
    pub retry: RetryPolicy,
}

#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    pub waits: Waits,
    /// The time that an invocation leaves for its response. Sending and waiting end this long before the deadline.
    pub margin: Duration,
    /// The time for which a message is retried that fails alone: the bus accepts others after its first failure.
    pub alone: Duration,
    /// The same time without that evidence: the bus only accepted others shortly before. Short outages are shorter.
    pub unclear: Duration,
}

/// `CHANGES_QUEUE_URL`: the queue of the projector; `None` when there are no read models.
pub fn changes_queue(environment: &Environment) -> Option<String> {
    environment.optional("CHANGES_QUEUE_URL")
}

/// `REACTIONS_QUEUE_URL`: the queue of the reactor; `None` when there is no reactor.
pub fn reactions_queue(environment: &Environment) -> Option<String> {
    environment.optional("REACTIONS_QUEUE_URL")
}

/// The same queue if it also gets changes, because `REACTOR` is `processes`.
pub fn processes_queue(environment: &Environment) -> Option<String> {
    reactions_queue(environment).filter(|_| environment.optional("REACTOR").as_deref() == Some("processes"))
}

impl RelaySettings {
    pub fn read(environment: &Environment) -> Result<Self, SettingError> {
        let dlq_url = environment.required("DLQ_URL")?;
        Ok(Self { dlq_url, ..Self::read_bus(environment)? })
    }

    /// Reads the settings of the bus only; `dlq_url` stays empty.
    pub fn read_bus(environment: &Environment) -> Result<Self, SettingError> {
        let event_source = environment.required("EVENT_SOURCE")?;
        // Otherwise the bus would reject every message, one by one.
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if event_source.starts_with("aws.") || event_source.len() > 256 || !event_source.bytes().all(allowed) {
            return Err(SettingError::Bad {
                name: "EVENT_SOURCE",
                value: event_source,
                expected: "1 to 256 of A-Z a-z 0-9 . _ -, and not beginning with \"aws.\"".to_owned(),
            });
        }
        let event_bus_name = environment.required("EVENT_BUS_NAME")?;
        let name = match event_bus_name.split_once(":event-bus/") {
            Some((service, name)) if service.starts_with("arn:") => name,
            _ => &event_bus_name,
        };
        if !name.bytes().all(|byte| allowed(byte) || byte == b'/') {
            return Err(SettingError::Bad {
                name: "EVENT_BUS_NAME",
                value: event_bus_name,
                expected: "the name of a bus, of A-Z a-z 0-9 . _ - /, or its ARN".to_owned(),
            });
        }
        Ok(Self { event_bus_name, event_source, dlq_url: String::new(), retry: RetryPolicy::default() })
    }
}

impl Default for RetryPolicy {
    /// A message that fails alone is given up 20 s after the first evidence. That may come in its second invocation, 30 s after
    /// its first failure, so with the last wait and call it holds others for under a minute.
    fn default() -> Self {
        Self {
            waits: Waits::default(),
            margin: Duration::from_secs(1),
            alone: Duration::from_secs(20),
            unclear: Duration::from_secs(15 * 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str); 3] =
        [("EVENT_BUS_NAME", "main"), ("EVENT_SOURCE", "daybook"), ("DLQ_URL", "https://sqs.local/1/dlq")];

    #[test]
    fn every_variable_is_required() {
        let settings = RelaySettings::read(&ALL.into_iter().collect()).unwrap();
        assert_eq!((settings.event_bus_name.as_str(), settings.event_source.as_str()), ("main", "daybook"));
        for (missing, _) in ALL {
            let environment = ALL.into_iter().filter(|(name, _)| *name != missing).collect();
            let error = RelaySettings::read(&environment).unwrap_err();
            assert_eq!(error.to_string(), format!("environment variable {missing} is missing"));
        }
    }

    #[test]
    fn event_source_reserved_for_aws_is_an_error() {
        let environment = [ALL[0], ("EVENT_SOURCE", "aws.s3"), ALL[2]].into_iter().collect();
        assert!(RelaySettings::read(&environment).unwrap_err().to_string().contains("EVENT_SOURCE"));
    }

    #[test]
    fn event_bus_name_is_a_name_or_an_arn() {
        let read = |bus| RelaySettings::read(&[("EVENT_BUS_NAME", bus), ALL[1], ALL[2]].into_iter().collect());
        for bus in ["default", "aws.partner/example.com/a", "arn:aws:events:eu-west-1:123456789012:event-bus/main"] {
            assert_eq!(read(bus).unwrap().event_bus_name, bus);
        }
        for bus in ["my bus", "main:1", "main,other", "arn:aws:events:eu-west-1:123456789012:event-bus/a b"] {
            assert!(read(bus).unwrap_err().to_string().contains("EVENT_BUS_NAME"), "{bus}");
        }
    }
}
