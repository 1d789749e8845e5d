//! Questions to the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, host_failure};
use crate::print::Output;
use crate::text::printable;

/// True if a person can be asked.
pub(super) fn has_person(output: &Output) -> bool {
    !output.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// A line that a person types after a question on standard error.
pub(super) fn asked(question: &str) -> Result<String, Failure> {
    let mut err = io::stderr().lock();
    let mut line = String::new();
    let answer = write!(err, "{}", printable(question))
        .and_then(|()| err.flush())
        .and_then(|()| io::stdin().lock().read_line(&mut line));
    answer.map_err(|error| host_failure("read an answer", &error))?;
    Ok(line.trim().to_owned())
}
