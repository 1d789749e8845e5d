#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sim::experiment::fuzzing::experiment(data));
