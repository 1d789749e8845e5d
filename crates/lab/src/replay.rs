//! Replay of a measured trace against a plant, as a closed loop.
//!
//! A trace is text, packed or not, with a line for each request: `R` or `W`, what the measurement took the
//! request for (a word, not used), the first sector, the number of sectors, the measured response time and the
//! think time after it, both in microseconds. A request is issued the think time after the completion of the
//! one before, so the plant's times decide when the next one comes, as the drive's did.

use std::io::Read;

use drives::plant::Plant;
use sched::request::Op;
use sched::units::{Nanos, Sector, SectorCount, Time};

use crate::trace::LineInput;

/// A request of a measured trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Read or write.
    pub op: Op,
    /// Its first sector.
    pub start: Sector,
    /// Number of its sectors.
    pub count: SectorCount,
    /// The measured time from issue to completion.
    pub response: Nanos,
    /// The time from its completion to the issue of the next request.
    pub think: Nanos,
}

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read or unpacked.
    #[error("line {line}: cannot be read: {source}")]
    Read {
        /// Where reading failed.
        line: u64,
        /// Why.
        source: std::io::Error,
    },
    /// Not a request.
    #[error("line {line}: {problem}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// The fault.
        problem: String,
    },
    /// There is no request.
    #[error("there is no request in it")]
    Empty,
}

/// The most requests of a trace, which is kept in memory.
const REQUESTS_MAX: usize = 20_000_000;
/// The longest response or think time: a day.
const MICROS_MAX: f64 = 86_400e6;

/// Reads a measured trace.
///
/// # Errors
/// When it cannot be read, or a line is not a request.
pub fn read(source: impl Read) -> Result<Vec<Measured>, ReplayError> {
    let failed = |line| move |source| ReplayError::Read { line, source };
    let mut input = LineInput::new(source).map_err(failed(1))?;
    let mut requests = Vec::new();
    for line in 1_u64.. {
        let wrong = |problem| ReplayError::Line { line, problem };
        let Some(text) = input.next_line().map_err(failed(line))? else {
            break;
        };
        let text = text.map_err(wrong)?;
        if text.trim().is_empty() {
            continue;
        }
        if requests.len() >= REQUESTS_MAX {
            return Err(wrong(format!(
                "there are more than {REQUESTS_MAX} requests"
            )));
        }
        requests.push(request(text).map_err(wrong)?);
    }
    if requests.is_empty() {
        return Err(ReplayError::Empty);
    }
    Ok(requests)
}

fn request(line: &str) -> Result<Measured, String> {
    let parts: Vec<&str> = line.split_whitespace().collect();
    let [op, _, start, count, response, think] = parts[..] else {
        return Err(format!(
            "it has {} columns, and a request has 6: R or W, a word, sector, sectors, response and think time in us",
            parts.len()
        ));
    };
    let op = match op {
        "R" | "r" => Op::Read,
        "W" | "w" => Op::Write,
        other => return Err(format!("`{other}` is neither R nor W")),
    };
    let whole = |text: &str, what: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|number| *number < 1 << 48)
            .ok_or_else(|| format!("{what} `{text}` is not a whole number below 2^48"))
    };
    let time = |text: &str, what: &str| {
        let micros = text.parse::<f64>().ok();
        let micros = micros.filter(|micros| (0.0..=MICROS_MAX).contains(micros));
        let micros =
            micros.ok_or_else(|| format!("{what} `{text}` is not a time in microseconds"))?;
        Ok::<_, String>(Nanos((micros * 1e3).round() as u64))
    };
    let count = whole(count, "the number of sectors")?;
    if count == 0 {
        return Err("a request has at least one sector".into());
    }
    Ok(Measured {
        op,
        start: Sector(whole(start, "the sector")?),
        count: SectorCount(count),
        response: time(response, "the response time")?,
        think: time(think, "the think time")?,
    })
}

/// Replays `requests` from the instant `begin` on, and returns the simulated response time of each. The instant
/// decides at which angle the platters are at first.
///
/// # Errors
/// The number of a request, from 0, whose sectors the plant does not have.
pub fn replay(plant: &mut Plant, begin: Time, requests: &[Measured]) -> Result<Vec<Nanos>, usize> {
    let mut now = begin;
    let mut times = Vec::with_capacity(requests.len());
    for (number, request) in requests.iter().enumerate() {
        if !plant.contains(request.start, request.count) {
            return Err(number);
        }
        let service = plant.service(now, request.op, request.start, request.count);
        times.push(service.completed - now);
        now = service.completed + request.think;
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_or_a_fault_with_its_place() {
        let text = "R Hit 564347 2 14095.370 13876.270\n\nW Doub 1 15 17221.0 0\n";
        let read_back = read(text.as_bytes()).unwrap();
        assert_eq!(read_back.len(), 2);
        assert_eq!(read_back[0].response, Nanos(14_095_370));
        assert_eq!(read_back[1].op, Op::Write);
        for (line, word) in [
            ("R Hit 1 2 3.0", "5 columns"),
            ("X Hit 1 2 3.0 4.0", "neither R nor W"),
            ("R Hit -1 2 3.0 4.0", "the sector"),
            ("R Hit 1 0 3.0 4.0", "at least one sector"),
            ("R Hit 1 2 inf 4.0", "the response time"),
            ("R Hit 1 2 3.0 -4", "the think time"),
            ("R Hit 99999999999999999999 2 3.0 4", "the sector"),
        ] {
            let text = format!("R Hit 1 1 1 1\n{line}\n");
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2: ") && error.contains(word),
                "{error}"
            );
        }
        assert!(matches!(read(&b""[..]), Err(ReplayError::Empty)));
    }
}
