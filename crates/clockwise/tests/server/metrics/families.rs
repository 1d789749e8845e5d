//! Reads what a scrape says.

use std::collections::BTreeSet;

/// The values of the series whose lines begin so.
pub(super) fn values(text: &str, begin: &str) -> Vec<f64> {
    let lines = text.lines().filter(|line| line.starts_with(begin));
    let last = lines.map(|line| line.rsplit(' ').next().expect("a value"));
    last.map(|value| value.parse().expect("a number")).collect()
}

/// A family of metrics in a scrape.
#[derive(Default, Debug)]
pub(super) struct Family {
    pub(super) kind: String,
    pub(super) help: String,
    pub(super) labels: BTreeSet<String>,
    pub(super) has_series: bool,
}

/// The names of the labels of a series.
fn label_names(series: &str) -> BTreeSet<String> {
    let (_, labels) = series.split_once('{').unwrap_or_default();
    // No value here has a comma or an equality sign.
    let names = labels.trim_end_matches('}').split(',');
    let names = names.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
    names.filter(|name| name != "le").collect()
}

/// The families of a scrape in the plain format, in order.
pub(super) fn families(text: &str) -> Vec<(String, Family)> {
    let mut all: Vec<(String, Family)> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                let help = help.to_owned();
                all.push((
                    name.to_owned(),
                    Family {
                        help,
                        ..Family::default()
                    },
                ));
            }
            ["#", "TYPE", name, kind] => {
                let (last, family) = all.last_mut().expect("its help is before");
                assert_eq!(last, name);
                kind.clone_into(&mut family.kind);
            }
            _ => {
                let (name, family) = all.last_mut().expect("its help is before");
                let (series, _) = line.rsplit_once(' ').expect("a value");
                assert!(series.starts_with(name.as_str()), "{line} under {name}");
                family.labels.extend(label_names(series));
                family.has_series = true;
            }
        }
    }
    all
}

/// The names of metrics in a text, without the suffixes of histograms.
pub(super) fn named_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_part(c));
    let names = words.filter(|word| word.starts_with("clockwise_"));
    names
        .map(|name| name.trim_end_matches("_bucket").to_owned())
        .collect()
}
