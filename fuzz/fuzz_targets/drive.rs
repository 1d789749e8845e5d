#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drives::disksim::fuzzing::drive(data));
