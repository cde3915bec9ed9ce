//! The state of an alarm, minute by minute, as CloudWatch documents it: M of the last N periods, with the treatment of missing
//! data. Metrics arrive without delay here; CloudWatch needs another minute or two.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::expression;
use super::names::QUOTA;

/// The value of each metric in each minute. The names are namespace, metric and dimensions, as in the templates.
pub(super) struct Series(BTreeMap<String, Box<dyn Fn(i64) -> Option<f64>>>);

impl Series {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn set(&mut self, metric: &str, value: impl Fn(i64) -> Option<f64> + 'static) {
        self.0.insert(metric.to_owned(), Box::new(value));
    }

    /// Replaces the values of a metric from one minute to another.
    pub(super) fn replace(
        &mut self,
        metric: &str,
        minutes: std::ops::Range<i64>,
        value: impl Fn(i64) -> Option<f64> + 'static,
    ) {
        let before = self.0.remove(metric).unwrap_or_else(|| panic!("no alarm evaluates {metric}"));
        self.set(metric, move |minute| if minutes.contains(&minute) { value(minute) } else { before(minute) });
    }

    /// The value of a metric in a minute.
    pub(super) fn value(&self, metric: &str, minute: i64) -> Option<f64> {
        self.0.get(metric).unwrap_or_else(|| panic!("{metric} is missing in `healthy`"))(minute)
    }
}

/// A metric with its statistic.
struct Metric {
    name: String,
    statistic: String,
}

impl Metric {
    fn read(metric: &Value, statistic: &Value) -> Self {
        let dimensions = metric["Dimensions"].as_array().into_iter().flatten();
        let values = dimensions.map(|dimension| dimension["Value"].as_str().unwrap());
        let namespace = metric["Namespace"].as_str().unwrap();
        let words: Vec<_> = [namespace, metric["MetricName"].as_str().unwrap()].into_iter().chain(values).collect();
        Self { name: words.join(" "), statistic: statistic.as_str().unwrap().to_owned() }
    }

    /// The statistic of the minutes of a period that have a value.
    fn statistic(&self, series: &Series, minutes: std::ops::Range<i64>) -> Option<f64> {
        let values = minutes.filter_map(|minute| series.value(&self.name, minute));
        // The share of the values up to a bound, in percent.
        if let Some(bound) = self.statistic.strip_prefix("PR(:").and_then(|rest| rest.strip_suffix(')')) {
            let (values, bound): (Vec<_>, f64) = (values.collect(), bound.parse().unwrap());
            #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
            let [all, within] =
                [values.len(), values.iter().filter(|value| **value <= bound).count()].map(|count| count as f64);
            return (all > 0.0).then(|| 100.0 * within / all);
        }
        match self.statistic.as_str() {
            "Sum" | "SampleCount" => values.reduce(|one, other| one + other),
            "Maximum" => values.reduce(f64::max),
            // A percentile of few values is not evaluated: p99 needs 1,000 of them in each period.
            // https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/percentiles-with-low-samples.html
            other => panic!("{other} is not known here"),
        }
    }
}

enum MissingData {
    Breaching,
    NotBreaching,
    /// The alarm keeps its state.
    Ignored,
}

pub(super) struct Alarm {
    pub(super) section: String,
    expression: Option<String>,
    metrics: BTreeMap<String, Metric>,
    period: i64,
    periods: i64,
    to_alarm: usize,
    is_breaching: Box<dyn Fn(f64) -> bool>,
    missing: MissingData,
}

impl Alarm {
    pub(super) fn read(properties: &Value) -> Self {
        let (mut expression, mut metrics, mut seconds) = (None, BTreeMap::new(), properties["Period"].as_i64());
        for part in properties["Metrics"].as_array().into_iter().flatten() {
            if let Some(text) = part["Expression"].as_str() {
                expression = Some(text.to_owned());
            } else {
                let of_metric = &part["MetricStat"];
                assert_eq!(part["ReturnData"], false);
                metrics.insert(
                    part["Id"].as_str().unwrap().into(),
                    Metric::read(&of_metric["Metric"], &of_metric["Stat"]),
                );
                let period = of_metric["Period"].as_i64();
                assert!(seconds.is_none() || seconds == period, "the metrics of an alarm need one period");
                seconds = period;
            }
        }
        if expression.is_none() {
            let statistic = properties.get("Statistic").unwrap_or(&properties["ExtendedStatistic"]);
            metrics.insert("metric".into(), Metric::read(properties, statistic));
        }
        let threshold = properties["Threshold"].as_f64().unwrap();
        let is_breaching: Box<dyn Fn(f64) -> bool> = match properties["ComparisonOperator"].as_str().unwrap() {
            "GreaterThanThreshold" => Box::new(move |value| value > threshold),
            "LessThanThreshold" => Box::new(move |value| value < threshold),
            other => panic!("{other} is not known here"),
        };
        let of_dynamodb = metrics.values().any(|metric| metric.name.starts_with("AWS/DynamoDB "));
        let missing = match properties["TreatMissingData"].as_str().unwrap() {
            // https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html
            _ if of_dynamodb => MissingData::Ignored,
            "breaching" => MissingData::Breaching,
            "notBreaching" => MissingData::NotBreaching,
            other => panic!("{other} is not known here"),
        };
        let periods = properties["EvaluationPeriods"].as_i64().unwrap();
        let to_alarm = properties["DatapointsToAlarm"].as_i64().unwrap_or(periods);
        let description = properties["AlarmDescription"].as_str().unwrap();
        Self {
            section: description.trim().rsplit('#').next().unwrap().to_owned(),
            expression,
            metrics,
            period: seconds.unwrap() / 60,
            periods,
            to_alarm: usize::try_from(to_alarm).unwrap(),
            is_breaching,
            missing,
        }
    }

    /// The metrics and expressions of the alarm.
    pub(super) fn metrics(&self) -> usize {
        self.metrics.len() + usize::from(self.expression.is_some())
    }

    /// The metrics of the alarm that are billed.
    pub(super) fn billed(&self) -> usize {
        self.metrics.len()
    }

    /// The time that the alarm evaluates.
    pub(super) fn seconds(&self) -> i64 {
        self.period * self.periods * 60
    }

    fn value(&self, series: &Series, minutes: &std::ops::Range<i64>) -> Option<f64> {
        let metric = |id: &str| {
            if id == QUOTA {
                return series.value(id, minutes.start);
            }
            let metric = self.metrics.get(id).unwrap_or_else(|| panic!("{} has no metric {id}", self.section));
            metric.statistic(series, minutes.clone())
        };
        match &self.expression {
            Some(expression) => expression::value(expression, &metric),
            None => metric("metric"),
        }
    }

    /// Whether the alarm is in ALARM state after each minute, from 0 to the last one.
    pub(super) fn states(&self, series: &Series, last: i64) -> Vec<(i64, bool)> {
        let mut in_alarm = false;
        let mut states = Vec::new();
        for minute in 0..last {
            // The windows slide: each minute ends a period.
            let periods =
                (0..self.periods).map(|ago| minute + 1 - self.period * (ago + 1)..minute + 1 - self.period * ago);
            let values: Vec<_> = periods.map(|minutes| self.value(series, &minutes)).collect();
            let breaching = values.iter().flatten().filter(|value| (self.is_breaching)(**value)).count();
            let missing = values.iter().filter(|value| value.is_none()).count();
            in_alarm = match self.missing {
                MissingData::Breaching => breaching + missing >= self.to_alarm,
                MissingData::NotBreaching => breaching >= self.to_alarm,
                // Only data that is enough, whatever the missing data would be, changes the state.
                MissingData::Ignored if breaching >= self.to_alarm => true,
                MissingData::Ignored => in_alarm && breaching + missing >= self.to_alarm,
            };
            states.push((minute + 1, in_alarm));
        }
        states
    }
}
