#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| clockwise::media::fuzzing::credentials(data));
