//! A stack, as CloudFormation describes and updates it.

use std::collections::BTreeMap;

use daybook_settings::Environment;

use crate::error::OperatorError;
use crate::signed_calls::SignedCalls;

const NAMES: [&str; 6] =
    ["StackStatus", "LastUpdatedTime", "ParameterKey", "ParameterValue", "OutputKey", "OutputValue"];

/// Allows one update to replace the table.
const POLICY: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}]}"#;

#[derive(Clone, Debug, Default)]
pub struct StackDescription {
    pub status: String,
    /// When its last update began; empty before the first one.
    pub updated: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
}

impl StackDescription {
    /// The stack of this name; `None` if it does not exist.
    pub async fn read(cloudformation: &SignedCalls, name: &str) -> Result<Option<Self>, OperatorError> {
        let found = match cloudformation.query("DescribeStacks", &[("StackName", name)], &NAMES).await {
            Err(OperatorError::Call { cause, .. }) if cause.contains("does not exist") => return Ok(None),
            found => found?,
        };
        let (mut stack, mut output, mut parameter) = (Self::default(), (None, None), String::new());
        for (name, text) in found {
            match name {
                "StackStatus" => stack.status = text,
                "LastUpdatedTime" => stack.updated = text,
                "ParameterKey" => parameter = text,
                "ParameterValue" => drop(stack.parameters.insert(parameter.clone(), text)),
                "OutputKey" => output.0 = Some(text),
                _ => output.1 = Some(text),
            }
            if let (Some(key), Some(value)) = &output {
                stack.outputs.insert(key.clone(), value.clone());
                output = (None, None);
            }
        }
        Ok(Some(stack))
    }

    pub fn output(&self, name: &str) -> &str {
        self.outputs.get(name).map(String::as_str).unwrap_or_default()
    }

    pub fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The environment, with the settings of the stack's functions.
    pub fn settings_over(&self, environment: &Environment) -> Environment {
        let settings = self.output("OperatorEnvironment").split_whitespace();
        let settings = settings.filter_map(|setting| setting.split_once('='));
        settings.fold(environment.clone(), |environment, (name, value)| environment.with(name, value.to_owned()))
    }

    pub fn is_in_progress(&self) -> bool {
        self.status.ends_with("_IN_PROGRESS") && self.status != "REVIEW_IN_PROGRESS"
    }

    /// Begins an update with the template that is deployed, and with some other parameters. It may replace protected resources.
    pub(crate) async fn update(
        &self,
        cloudformation: &SignedCalls,
        name: &str,
        parameters: &[(&str, String)],
    ) -> Result<(), OperatorError> {
        let mut all: Vec<_> = [
            ("StackName", name),
            ("UsePreviousTemplate", "true"),
            ("Capabilities.member.1", "CAPABILITY_IAM"),
            ("Capabilities.member.2", "CAPABILITY_AUTO_EXPAND"),
            ("StackPolicyDuringUpdateBody", POLICY),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (number, key) in (1..).zip(self.parameters.keys()) {
            let changed =
                parameters.iter().find(|(name, _)| name == key).map(|(_, value)| ("ParameterValue", &**value));
            for (name, value) in [("ParameterKey", &**key), changed.unwrap_or(("UsePreviousValue", "true"))] {
                all.push((format!("Parameters.member.{number}.{name}"), value));
            }
        }
        cloudformation.query("UpdateStack", &all, &[]).await.map(drop)
    }
}
