//! A stack, as CloudFormation describes and updates it.

use std::collections::BTreeMap;

use daybook_settings::Environment;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::OperatorError;
use crate::query_xml::texts;
use crate::signed_calls::SignedCalls;

const NAMES: [&str; 6] =
    ["StackStatus", "LastUpdatedTime", "ParameterKey", "ParameterValue", "OutputKey", "OutputValue"];

/// Allows one update to replace the table.
const POLICY: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}]}"#;

#[derive(Clone, Debug, Default)]
pub struct StackDescription {
    pub(crate) status: String,
    /// When its last update began; empty before the first one.
    pub(crate) updated: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub outputs: BTreeMap<String, String>,
}

impl StackDescription {
    /// The stack of this name; `None` if it does not exist.
    pub(crate) async fn read(cloudformation: &SignedCalls, name: &str) -> Result<Option<Self>, OperatorError> {
        let path = format!("/?Action=DescribeStacks&Version=2010-05-15&StackName={name}");
        let xml = match cloudformation.text("GET", &path).await {
            Err(OperatorError::Call { cause, .. }) if cause.contains("does not exist") => return Ok(None),
            xml => xml?,
        };
        let found = texts(&xml, &NAMES).map_err(|error| cloudformation.failed(error.to_string()))?;
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

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The environment, with the settings of the stack's functions.
    pub fn settings_over(&self, environment: &Environment) -> Environment {
        let settings = self.output("OperatorEnvironment").split_whitespace();
        let settings = settings.filter_map(|setting| setting.split_once('='));
        settings.fold(environment.clone(), |environment, (name, value)| environment.with(name, value.to_owned()))
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.status.ends_with("_IN_PROGRESS") && self.status != "REVIEW_IN_PROGRESS"
    }

    /// Begins an update with the template that is deployed, and with some other parameters. It may replace protected resources.
    pub(crate) async fn update(
        &self,
        cloudformation: &SignedCalls,
        name: &str,
        parameters: &[(&str, String)],
    ) -> Result<(), OperatorError> {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut path = format!(
            "/?Action=UpdateStack&Version=2010-05-15&StackName={name}&UsePreviousTemplate=true&Capabilities.member.1=\
             CAPABILITY_IAM&Capabilities.member.2=CAPABILITY_AUTO_EXPAND&StackPolicyDuringUpdateBody={}",
            encoded(POLICY)
        );
        for (number, key) in (1..).zip(self.parameters.keys()) {
            let value = match parameters.iter().find(|(name, _)| name == key) {
                Some((_, value)) => format!("ParameterValue={}", encoded(value)),
                None => "UsePreviousValue=true".to_owned(),
            };
            path += &format!("&Parameters.member.{number}.ParameterKey={key}&Parameters.member.{number}.{value}");
        }
        cloudformation.text("GET", &path).await.map(drop)
    }
}
