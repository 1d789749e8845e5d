//! Writes families of metrics.

use std::collections::BTreeMap;
use std::fmt;

use engine::status::{BUCKET_LIMITS, BucketCounts};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The format of Prometheus itself, version 0.0.4, in which the name of a counter's family ends with `_total`.
    Plain,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The labels of a series.
pub(super) type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Labels from names and values.
pub(super) fn labels<'a, const N: usize>(named: [(&'static str, &'a str); N]) -> Labels<'a> {
    Vec::from(named)
}

/// The kind of a metric, which also says how several things with the same labels become one series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// It only grows; values are added up.
    Counter,
    /// Values are added up.
    Gauge,
    /// A gauge that shows the largest value.
    Largest,
}

/// A metric of things of type `T`.
pub(super) struct Metric<T> {
    kind: Kind,
    /// Its name without prefix and, of a counter, without `_total`.
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
}

/// A metric that only grows.
pub(super) const fn counter<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
) -> Metric<T> {
    Metric {
        kind: Kind::Counter,
        name,
        help,
        value,
    }
}

/// A metric that grows and shrinks.
pub(super) const fn gauge<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
) -> Metric<T> {
    Metric {
        kind: Kind::Gauge,
        name,
        help,
        value,
    }
}

/// A metric that shows a largest value.
pub(super) const fn largest<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> f64,
) -> Metric<T> {
    Metric {
        kind: Kind::Largest,
        name,
        help,
        value,
    }
}

/// Nanoseconds as seconds; the engine's "unbounded" is infinite.
pub(super) fn seconds(ns: u64) -> f64 {
    match i64::try_from(ns) {
        Ok(i64::MAX) | Err(_) => f64::INFINITY,
        Ok(_) => ns as f64 / 1e9,
    }
}

/// 1 if it is so, and 0 otherwise.
pub(super) fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

/// Writes families of metrics in a format.
pub(super) struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
    format: Format,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>, format: Format) -> Self {
        Self { encoder, format }
    }

    /// Writes all of `metrics` of these things.
    pub(super) fn table<'t, T: 't>(
        &mut self,
        metrics: &[Metric<T>],
        things: impl Iterator<Item = (Labels<'t>, &'t T)>,
    ) -> fmt::Result {
        let things: Vec<_> = things.collect();
        for metric in metrics {
            let values = things
                .iter()
                .map(|(labels, of)| (labels, (metric.value)(of)));
            self.values(metric.kind, metric.name, metric.help, values)?;
        }
        Ok(())
    }

    /// Writes one metric of these values.
    pub(super) fn one<'t>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'t>, f64)>,
    ) -> fmt::Result {
        let values: Vec<_> = values.into_iter().collect();
        let values = values.iter().map(|(labels, value)| (labels, *value));
        self.values(kind, name, help, values)
    }

    /// Writes one metric without labels.
    pub(super) fn plain(&mut self, kind: Kind, name: &str, help: &str, value: f64) -> fmt::Result {
        self.one(kind, name, help, [(Labels::new(), value)])
    }

    fn values<'l, 't: 'l>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (&'l Labels<'t>, f64)>,
    ) -> fmt::Result {
        let mut series = BTreeMap::new();
        for (labels, value) in values {
            let merge = |known: &mut f64| match kind {
                Kind::Largest => *known = known.max(value),
                Kind::Counter | Kind::Gauge => *known += value,
            };
            series.entry(labels).and_modify(merge).or_insert(value);
        }
        let is_counter = kind == Kind::Counter;
        let with_total = format!("{name}_total");
        let is_plain_counter = is_counter && self.format == Format::Plain;
        let name = if is_plain_counter { &with_total } else { name };
        let metric_type = if is_counter {
            MetricType::Counter
        } else {
            MetricType::Gauge
        };
        let mut encoder = self
            .encoder
            .encode_descriptor(name, help, None, metric_type)?;
        for (labels, value) in series {
            let has_suffix = is_counter && self.format == Format::OpenMetrics;
            if labels.is_empty() {
                write_value(&mut encoder, has_suffix, value)?;
            } else {
                write_value(&mut encoder.encode_family(labels)?, has_suffix, value)?;
            }
        }
        Ok(())
    }

    /// Writes distributions, whose labels differ, as a histogram in seconds.
    pub(super) fn histogram<'t>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'t>, BucketCounts)>,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        let mut encoder = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, of) in values {
            let limits = BUCKET_LIMITS.iter().map(|limit| seconds(limit.get()));
            let limits = limits.chain([f64::INFINITY]);
            let buckets: Vec<_> = limits.zip(of.counts).collect();
            let mut encoder = encoder.encode_family(&labels)?;
            let sum = of.sum_ns as f64 / 1e9;
            encoder.encode_histogram::<NoLabelSet>(sum, of.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// The largest value that is written without a fraction; all whole numbers below it are exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Writes a value, whole numbers without a fraction. `has_suffix`: the encoder adds the suffix of a counter.
fn write_value(encoder: &mut MetricEncoder<'_>, has_suffix: bool, value: f64) -> fmt::Result {
    let is_whole = value.fract() == 0.0 && (0.0..WHOLE_MAX).contains(&value);
    match (has_suffix, is_whole) {
        (true, true) => encoder.encode_counter::<NoLabelSet, u64, f64>(&(value as u64), None),
        (true, false) => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        (false, true) => encoder.encode_gauge(&(value as i64)),
        (false, false) => encoder.encode_gauge(&value),
    }
}
