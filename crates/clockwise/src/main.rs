//! A QoS-aware volume manager and media server.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    clockwise::cmd::main()
}
