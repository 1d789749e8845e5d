#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| clockwise::session::fuzzing::data_greeting(data));
