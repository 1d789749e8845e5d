#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| clockwise::exports::nbd::fuzzing::nbd_request(data));
