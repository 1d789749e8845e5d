//! The findings as one page of HTML: no scripts, and nothing that is loaded from elsewhere.
//!
//! The pictures compare with those of the thesis: seeks with figure 4.5, rates by position with 4.6, 4.7 and 4.10.
//! Figures 4.8 and 4.9 show signals of a bus, which a block interface does not have.

use std::fmt::Write as _;

use lab::chart::{self, Axis, Chart, Curve};
use measure::findings::{Compared, Findings};
use sched::request::Op;
use sched::units::{Nanos, SECTOR_BYTES};

use super::evidence::Evidence;
use super::summary;
use crate::quantity::Span;

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;font-size:.9em}\
td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}\
.verdict{border:2px solid #0072b2;padding:.8em 1em;margin-top:2em}";

/// The page.
#[must_use]
pub fn page(evidence: &Evidence) -> String {
    let findings = &evidence.findings;
    let title = format!("Drive measurement: {}", evidence.drive.model);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{0}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escaped(&title)
    );
    let mut lines = summary::lines(evidence);
    let verdict = lines.pop().unwrap_or_default();
    html += "<h2>Findings</h2>\n<ul>\n";
    for line in &lines {
        let _ = writeln!(html, "<li>{}</li>", escaped(line));
    }
    html += "</ul>\n";
    html += &drive(evidence);
    html += &pictures(findings);
    html += &requests("Slowest requests", &findings.validation.slowest);
    html += &requests(
        "Requests closest to their prediction",
        &findings.validation.closest,
    );
    html += &failures(findings);
    let _ = write!(
        html,
        "<p class=\"verdict\">{}</p>\n</body>\n</html>\n",
        escaped(&verdict)
    );
    html
}

/// Text in which nothing is markup. Control characters are left out.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            char if char.is_control() && char != '\n' => {}
            char => safe.push(char),
        }
    }
    safe
}

fn drive(evidence: &Evidence) -> String {
    let drive = &evidence.drive;
    let serial = drive.serial.clone().unwrap_or_else(|| "none".to_owned());
    let fixed = [
        ("path", drive.path.clone()),
        ("model", drive.model.clone()),
        ("serial number or identity", serial),
        ("firmware", drive.firmware.clone()),
        ("date", evidence.date.clone()),
        ("method", evidence.method.clone()),
        ("requests", evidence.findings.served.to_string()),
    ];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
    let mut html = String::from("<h2>Drive</h2>\n<table>\n");
    for (name, value) in fixed.iter().chain(&drive.properties) {
        if !value.is_empty() {
            let _ = writeln!(
                html,
                "<tr><th>{}</th><td>{}</td></tr>",
                escaped(name),
                escaped(value)
            );
        }
    }
    html + "</table>\n"
}

fn pictures(findings: &Findings) -> String {
    let all = [
        ("Seeks", seeks(findings)),
        ("Rate by position", rates(findings)),
        ("Skews between tracks", skews(findings)),
        ("Queue depth", depths(findings)),
        ("Prediction minus time", margins(findings)),
    ];
    let mut html = String::new();
    for (title, chart) in all {
        let Some(chart) = chart else { continue };
        // A chart with points can be drawn.
        if let Ok(svg) = chart::page("", &[chart], 1) {
            let _ = write!(html, "<h2>{title}</h2>\n{svg}\n");
        }
    }
    html
}

fn curve(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Curve {
    Curve {
        name: name.to_owned(),
        points,
        colour,
        is_aid: false,
    }
}

fn chart(title: &str, x: Axis, y: Axis, curves: Vec<Curve>) -> Option<Chart> {
    let has_points = curves.iter().any(|curve| !curve.points.is_empty());
    has_points.then(|| Chart {
        title: title.to_owned(),
        x,
        y,
        curves,
    })
}

fn millis(nanos: Nanos) -> f64 {
    nanos.get() as f64 / 1e6
}

fn seeks(findings: &Findings) -> Option<Chart> {
    let mut seeks: Vec<_> = findings.seeks.iter().collect();
    seeks.sort_by_key(|seek| seek.cylinders);
    let of = |inwards: Option<bool>, value: fn(&measure::findings::SeekFound) -> Nanos| {
        let wanted = seeks
            .iter()
            .filter(|seek| inwards.is_none_or(|inwards| seek.inwards == inwards));
        wanted
            .map(|seek| (seek.cylinders as f64, millis(value(seek))))
            .collect()
    };
    chart(
        "From the issue until the head is ready, overhead included",
        Axis::linear("distance, cylinders of the profile"),
        Axis::linear("time, ms"),
        vec![
            curve("fastest, inwards", 2, of(Some(true), |seek| seek.fastest)),
            curve("fastest, outwards", 4, of(Some(false), |seek| seek.fastest)),
            curve("slowest, inwards", 1, of(Some(true), |seek| seek.slowest)),
            curve("slowest, outwards", 3, of(Some(false), |seek| seek.slowest)),
            Curve {
                is_aid: true,
                ..curve("bound of the profile", 0, of(None, |seek| seek.bound))
            },
        ],
    )
}

fn rates(findings: &Findings) -> Option<Chart> {
    findings.rotation?;
    let rate = |bytes: f64| bytes / 1e6;
    let position = |sector: u64| (sector * SECTOR_BYTES) as f64 / 1e9;
    let mut points = Vec::new();
    for (index, zone) in findings.zones.iter().enumerate() {
        points.push((position(zone.first_sector), rate(zone.bytes_per_second)));
        if let Some(next) = findings.zones.get(index + 1) {
            points.push((position(next.first_sector), rate(zone.bytes_per_second)));
        }
    }
    chart(
        "Sustained rate of a long read",
        Axis::linear("position, GB"),
        Axis::linear("rate, MB/s"),
        vec![curve("read", 1, points)],
    )
}

fn skews(findings: &Findings) -> Option<Chart> {
    let tracks = findings.tracks.as_ref()?;
    let names = ["outside", "middle", "inside"];
    let curves = tracks.skews.iter().enumerate().map(|(index, skews)| {
        let points = skews.iter().enumerate();
        let points = points.map(|(track, nanos)| (track as f64, nanos / 1e6));
        let name = names.get(index).copied().unwrap_or("further");
        curve(name, index, points.collect())
    });
    chart(
        "Skew of consecutive tracks",
        Axis::linear("track boundary"),
        Axis::linear("skew, ms"),
        curves.collect(),
    )
}

fn depths(findings: &Findings) -> Option<Chart> {
    let points = findings
        .depths
        .iter()
        .map(|depth| (f64::from(depth.depth), depth.reads_per_second));
    chart(
        "Reads of 4 KiB at random places",
        Axis::linear("requests at a time"),
        Axis::linear("reads in a second"),
        vec![curve("reads", 1, points.collect())],
    )
}

fn margins(findings: &Findings) -> Option<Chart> {
    let margins = &findings.validation.margin_ms;
    let total: u64 = margins.iter().sum();
    let end = margins.iter().rposition(|count| *count > 0)?;
    let share = |count: u64| count as f64 * 100.0 / total.max(1) as f64;
    let mut sum = 0;
    let mut below = vec![(0.0, 0.0)];
    let mut each = Vec::new();
    for (millis, count) in margins[..=end].iter().enumerate() {
        sum += count;
        below.push((millis as f64 + 1.0, share(sum)));
        each.push((millis as f64 + 0.5, share(*count)));
    }
    chart(
        "Requests of the validation by what was left of their prediction",
        Axis::linear("prediction minus time, ms"),
        Axis::linear("share of the requests, %"),
        vec![
            curve("in this millisecond", 0, each),
            curve("up to here", 1, below),
        ],
    )
}

fn requests(title: &str, list: &[Compared]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "<h2>{title}</h2>\n<table>\n<tr><th></th><th class=\"n\">sector</th><th class=\"n\">sectors</th>\
         <th class=\"n\">head at</th><th class=\"n\">predicted</th><th class=\"n\">took</th><th></th></tr>\n"
    );
    for request in list {
        let op = match request.op {
            Op::Read => "read",
            Op::Write => "write",
        };
        let head = request
            .head
            .map_or("unknown".to_owned(), |head| head.get().to_string());
        let _ = writeln!(
            html,
            "<tr><td>{op}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{head}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            request.start.get(),
            request.count.get(),
            Span(request.predicted),
            Span(request.actual),
            if request.widened_since {
                "before the profile was widened"
            } else {
                ""
            }
        );
    }
    html + "</table>\n"
}

fn failures(findings: &Findings) -> String {
    if findings.failures.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Failed requests</h2>\n<table>\n<tr><th class=\"n\">sector</th><th class=\"n\">sectors</th><th>error</th></tr>\n",
    );
    for failed in &findings.failures {
        let error = std::io::Error::from_raw_os_error(failed.errno).to_string();
        let _ = writeln!(
            html,
            "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            failed.start.get(),
            failed.count.get(),
            escaped(&error)
        );
    }
    html + "</table>\n"
}

#[cfg(test)]
mod tests;
