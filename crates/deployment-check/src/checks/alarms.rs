//! The alarms of the stack.

use daybook_operations::alarms::ALARMS;
use daybook_operations::signed_calls::CLOUDWATCH;
use serde_json::json;

use crate::aws_calls::CallError;
use crate::check::Check;
use crate::deployment::Deployment;
use crate::result::CheckResult;

pub(super) fn checks() -> Vec<Check> {
    vec![Check {
        name: "alarms",
        relies_on: "all alarms of the stack exist and are in state OK: without data they are OK, not INSUFFICIENT_DATA",
        documented: "CloudWatch User Guide, alarms: missing data; docs/runbook.md",
        permissions: &["cloudwatch:DescribeAlarms"],
        run: |deployment| Box::pin(alarms(deployment)),
    }]
}

async fn alarms(deployment: &mut Deployment) -> Result<CheckResult, CallError> {
    let Some(stack) = deployment.stack.clone() else {
        let reason = "the name of the stack is not known; use --stack or set STACK".to_owned();
        return Ok(match deployment.is_local {
            true => CheckResult::NotModelled { reason: "the local stack has no alarms".to_owned() },
            false => CheckResult::NotChecked { reason },
        });
    };
    let request = json!({"AlarmNamePrefix": format!("{stack}-"), "AlarmTypes": ["MetricAlarm"], "MaxRecords": 100});
    let response = deployment.calls.call(CLOUDWATCH, "DescribeAlarms", request).await?;
    let found = response["MetricAlarms"].as_array().cloned().unwrap_or_default();
    let state = |name: &str| {
        let full_name = format!("{stack}-{name}");
        let alarm = found.iter().find(|alarm| alarm["AlarmName"] == full_name.as_str());
        alarm.map_or("missing".to_owned(), |alarm| alarm["StateValue"].as_str().unwrap_or_default().to_owned())
    };
    let states = ALARMS.iter().map(|name| (name, state(name)));
    let others: Vec<_> =
        states.filter(|(_, state)| state != "OK").map(|(name, state)| format!("{name} {state}")).collect();
    let expected = format!("{} alarms are OK", ALARMS.len());
    Ok(match others.is_empty() {
        true => CheckResult::AsExpected { seen: expected },
        false => CheckResult::differs(expected, others.join(", ")),
    })
}
