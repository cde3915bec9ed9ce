//! The network of the AWS clients, without sockets.

pub(crate) use daybook_test_support::network::{AwsCall, ConnectionLost, Reply, Service, config};
