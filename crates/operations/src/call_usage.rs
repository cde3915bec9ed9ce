//! The calls of a command to DynamoDB and SQS, and the units that they use.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};

use daybook_function_runtime::SdkConfig;
use daybook_local_stack::metered_client::{MeteredClient, is_read};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallUsage {
    /// Calls, by operation.
    pub calls: BTreeMap<String, u64>,
    pub read_units: f64,
    pub write_units: f64,
}

/// Counts calls. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct CallMeter(Arc<Mutex<CallUsage>>);

impl CallUsage {
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }
}

impl AddAssign for CallUsage {
    fn add_assign(&mut self, other: Self) {
        for (operation, calls) in other.calls {
            *self.calls.entry(operation).or_default() += calls;
        }
        self.read_units += other.read_units;
        self.write_units += other.write_units;
    }
}

impl CallMeter {
    /// The configuration of a client whose calls are counted.
    pub fn metered(&self, config: SdkConfig) -> SdkConfig {
        let Some(client) = config.http_client() else { return config };
        let counts = Arc::clone(&self.0);
        let metered = MeteredClient::new(client, move |operation, units| {
            let mut usage = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *usage.calls.entry(operation.to_owned()).or_default() += 1;
            *if is_read(operation) { &mut usage.read_units } else { &mut usage.write_units } += units;
        });
        config.to_builder().http_client(metered).build()
    }

    /// What was used since this was last called.
    pub fn take(&self) -> CallUsage {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
