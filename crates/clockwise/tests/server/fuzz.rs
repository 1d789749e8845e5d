//! Replays the corpus of the fuzz targets of what clients send, of blocks of recordings, of drive profiles, files of
//! simulated drives, traces, cases and experiments, and runs each on random and mutated input: what
//! `make fuzz` does for longer on a nightly toolchain.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::path::Path;
use testkit::{Random, fuzz_targets, seed};

/// A target, what it calls and the path of that, and how many inputs are made up for it.
struct Target {
    name: &'static str,
    call: fn(&[u8]),
    path: &'static str,
    inputs: usize,
}

macro_rules! targets {
    ($($name:literal, $call:path, $inputs:literal;)*) => {
        &[$(Target { name: $name, call: $call, path: stringify!($call), inputs: $inputs }),*]
    };
}

// Text takes longer to read.
const TARGETS: &[Target] = targets! {
    "nbd_option", clockwise::exports::nbd::fuzzing::nbd_option, 200_000;
    "nbd_request", clockwise::exports::nbd::fuzzing::nbd_request, 200_000;
    "data_greeting", clockwise::session::fuzzing::data_greeting, 200_000;
    "profile", clockwise::config::fuzzing::profile, 20_000;
    "drive", drives::disksim::fuzzing::drive, 8_000;
    "trace", lab::trace::fuzzing::trace, 50_000;
    "case", lab::adversary::fuzzing::case, 20_000;
    "rtsp_input", media::fuzzing::input, 50_000;
    "sdp", media::fuzzing::description, 50_000;
    "webrtc_offer", media::fuzzing::offer, 2_000;
    "rtsp_login", media::fuzzing::login, 50_000;
    "rtsp_credentials", media::fuzzing::credentials, 100_000;
    "rtp_packet", media::fuzzing::packet, 200_000;
    "media_block", media::fuzzing::block, 100_000;
    "media_index", media::fuzzing::index, 100_000;
    "media_export", media::fuzzing::export, 50_000;
    "experiment", lab::experiment::fuzzing::experiment, 10_000;
};

fn below(random: &mut Random, bound: usize) -> usize {
    random.below(bound as u64) as usize
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    inputs.sort();
    assert!(
        inputs.len() >= 5,
        "{} holds {} inputs",
        folder.display(),
        inputs.len()
    );
    inputs
        .into_iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Any bytes, of a length of any order up to 4 KiB.
fn noise(random: &mut Random) -> Vec<u8> {
    let longest = 1 << below(random, 13);
    let length = below(random, longest + 1);
    (0..length).map(|_| random.next() as u8).collect()
}

/// Changes, adds, removes, repeats: what breaks parsers.
fn mutate(random: &mut Random, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    const INTERESTING: [u32; 8] = [
        0,
        1,
        511,
        512,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX - 511,
        u32::MAX,
    ];
    for _ in 0..=below(random, 6) {
        let at = below(random, input.len());
        match below(random, 6) {
            0 if !input.is_empty() => input[at] = random.next() as u8,
            1 if !input.is_empty() => input[at] ^= 1 << below(random, 8),
            2 => input.truncate(at),
            3 => input.insert(at, random.next() as u8),
            4 if at + 4 <= input.len() => {
                let number = INTERESTING[below(random, INTERESTING.len())];
                input[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            _ => {
                let other = &others[below(random, others.len())];
                input.truncate(at);
                input.extend_from_slice(&other[below(random, other.len())..]);
            }
        }
    }
}

#[test]
fn every_target_that_is_not_replayed_elsewhere_is_replayed() {
    let replayed = TARGETS.iter().map(|target| target.name.to_owned());
    let mut targets = fuzz_targets::fuzz_targets();
    targets.retain(|target| !target.starts_with("volume_"));
    assert_eq!(targets, replayed.collect());
    for target in TARGETS {
        fuzz_targets::assert_calls(target.name, target.path);
    }
}

#[test]
fn parsers_take_any_bytes() {
    for target in TARGETS {
        let mut random = Random(seed(target.name, None));
        let inputs = corpus(target.name);
        inputs.iter().for_each(|input| (target.call)(input));
        for round in 0..target.inputs {
            let input = if round % 16 == 0 {
                noise(&mut random)
            } else {
                let mut input = inputs[below(&mut random, inputs.len())].clone();
                mutate(&mut random, &mut input, &inputs);
                input
            };
            (target.call)(&input);
        }
    }
}
