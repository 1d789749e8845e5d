//! Entry point of the fuzz target: arbitrary bytes are a trace or an error.

use sched::units::Time;

use super::{Format, Reader, TraceError, TraceRequest};

/// The first byte chooses the format, if any; the others are the trace.
pub fn trace(data: &[u8]) {
    let Some((first, trace)) = data.split_first() else {
        return;
    };
    let format = Format::ALL.get(usize::from(*first)).copied();
    let read = |is_lenient| -> Option<(Vec<TraceRequest>, Option<TraceError>, u64)> {
        let reader = Reader::new(trace, format).ok()?;
        let mut reader = if is_lenient { reader.lenient() } else { reader };
        let mut requests = Vec::new();
        let mut failure = None;
        for request in reader.by_ref() {
            match request {
                Ok(request) => requests.push(request),
                Err(error) => failure = Some(error),
            }
        }
        Some((requests, failure, reader.skipped()))
    };
    let (Some((strict, failure, none)), Some((lenient, unreadable, skipped))) =
        (read(false), read(true))
    else {
        return;
    };
    assert_eq!(none, 0, "only a lenient reader leaves anything out");
    // Up to the first wrong record they are the same.
    assert!(lenient.starts_with(&strict), "{failure:?}");
    assert!(skipped > 0 || failure.is_some() == unreadable.is_some());
    assert!(unreadable.is_none_or(|error| matches!(error, TraceError::Read { .. })));
    let mut last = Time::ZERO;
    for request in lenient {
        assert!(request.at >= last && request.length.get() > 0);
        assert!(request.start.checked_add(request.length).is_some());
        last = request.at;
    }
}
