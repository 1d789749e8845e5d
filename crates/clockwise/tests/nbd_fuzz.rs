//! Replays the corpus of the NBD fuzz targets and runs each on random and mutated input: what
//! `make fuzz` does for longer on a nightly toolchain.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::path::Path;

use clockwise::export::nbd::fuzzing;

/// Inputs made up for each target.
const ITERATIONS: usize = 200_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
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
    for _ in 0..=random.below(6) {
        let at = random.below(input.len());
        match random.below(6) {
            0 if !input.is_empty() => input[at] = random.next() as u8,
            1 if !input.is_empty() => input[at] ^= 1 << random.below(8),
            2 => input.truncate(at),
            3 => input.insert(at, random.next() as u8),
            4 if at + 4 <= input.len() => {
                let number = INTERESTING[random.below(INTERESTING.len())];
                input[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            _ => {
                let other = &others[random.below(others.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
}

fn run(target: &str, check: impl Fn(&[u8])) {
    let seed = std::env::var("CLOCKWISE_SEED").map_or_else(
        |_| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        |text| text.parse().unwrap(),
    );
    println!("{target}: CLOCKWISE_SEED={seed}");
    let inputs = corpus(target);
    inputs.iter().for_each(|input| check(input));
    let mut random = Random(seed);
    for _ in 0..ITERATIONS {
        let mut input = inputs[random.below(inputs.len())].clone();
        mutate(&mut random, &mut input, &inputs);
        check(&input);
    }
}

#[test]
fn any_bytes_in_a_handshake() {
    run("nbd_option", fuzzing::nbd_option);
}

#[test]
fn any_bytes_as_a_request() {
    run("nbd_request", fuzzing::nbd_request);
}
