#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| clockwise::export::nbd::fuzzing::nbd_option(data));
