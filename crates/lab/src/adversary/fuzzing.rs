//! Entry point of the fuzz target: arbitrary bytes are a case or an error, and a written case is read back.

use super::Case;

/// The bytes are the file of a case.
pub fn case(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(case) = Case::parse(text) {
        let again = Case::parse(&case.to_toml()).expect("what was written is a case");
        assert_eq!((again.task, again.event), (case.task, case.event));
        assert_eq!((again.scheduler, again.way), (case.scheduler, case.way));
    }
}
