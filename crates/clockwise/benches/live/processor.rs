//! Processor time of the server for each player.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::rtsp::load::{self, Epoch, Player, StopOnDrop};
use testkit::rtsp::peers::closed;

use crate::served::Served;

const KBIT: u64 = 2_500;
/// Longest of a measurement of a recording, which is made before.
const FILM_S: u64 = 60;
/// Numbers of players, and the processor time of commit `edc165d` for each live player as a multiple of that of
/// MediaMTX, by TCP and by UDP, as measured earlier.
const PLAYERS: [(usize, f64, f64); 3] = [(1, 0.88, 0.60), (8, 1.24, 0.76), (24, 1.07, 0.82)];
/// One player costs little, so it is measured for longer.
const MEASURED: Duration = Duration::from_secs(6);
const MEASURED_ALONE: Duration = Duration::from_secs(12);
/// Players that are measured begin before.
const SETTLED: Duration = Duration::from_secs(3);

/// The played stream, and its transport.
#[derive(Clone, Copy)]
struct Case {
    is_live: bool,
    is_udp: bool,
    players: usize,
}

pub(crate) fn report(rounds: usize) {
    let other = std::env::var_os("CLOCKWISE_OTHER").map(PathBuf::from);
    let mut programs = vec![None];
    programs.extend(other.as_deref().map(Some));
    let servers: Vec<Served> = programs.iter().map(|of| Served::new(*of)).collect();
    for served in &servers {
        served.volume("cam");
        served.volume("film");
        film(served);
    }
    println!(
        "## Processor time\n\nProcessor time of the server for each player and minute of {KBIT} kbit/s, without the \
         share of the recorder: median (least\nto greatest) of {rounds} rounds. \"Before\" is commit `edc165d`, in \
         alternating runs if `CLOCKWISE_OTHER` names its program.\n\nThe column before/MediaMTX has the processor \
         time of `edc165d` for each live player as a multiple of that of MediaMTX, as\nmeasured earlier. The last \
         column is that ratio times now/before: an estimate. The goal is 0.5.\n"
    );
    println!(
        "| played | by | players | before | now | now/before | before/MediaMTX | now/MediaMTX, estimated |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for is_live in [true, false] {
        let recorder = rounds_of(&servers, rounds, |served| measured(served, None, is_live));
        for is_udp in [false, true] {
            for (players, tcp, udp) in PLAYERS {
                let case = Case {
                    is_live,
                    is_udp,
                    players,
                };
                let all = rounds_of(&servers, rounds, |served| {
                    measured(served, Some(case), is_live)
                });
                let each = |server: usize| -> Vec<f64> {
                    let idle = median(&recorder[server]);
                    let each = all[server].iter();
                    each.map(|of| (of - idle) / players as f64).collect()
                };
                let ratio = if is_udp { udp } else { tcp };
                let now = each(0);
                let before = (servers.len() > 1).then(|| each(1));
                row(case, &now, before.as_deref(), is_live.then_some(ratio));
            }
        }
    }
    println!();
    servers.into_iter().for_each(Served::ends);
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints times that are in seconds of a processor for each second.
fn row(case: Case, now: &[f64], before: Option<&[f64]>, ratio: Option<f64>) {
    let spread = |values: &[f64]| {
        let ms = |of: f64| of * 60.0 * 1e3;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!(
            "{:.0} ms ({:.0} to {:.0})",
            ms(median(values)),
            ms(least),
            ms(greatest)
        )
    };
    let change = before.map(|before| median(now) / median(before));
    let text = |value: Option<f64>| value.map_or(String::new(), |of| format!("{of:.2}"));
    println!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        if case.is_live { "live" } else { "recorded" },
        if case.is_udp { "UDP" } else { "TCP" },
        case.players,
        before.map_or(String::new(), spread),
        spread(now),
        text(change),
        text(ratio),
        text(change.zip(ratio).map(|(change, ratio)| change * ratio)),
    );
}

/// The values of each server; the servers take turns.
fn rounds_of(servers: &[Served], rounds: usize, measure: impl Fn(&Served) -> f64) -> Vec<Vec<f64>> {
    let mut values = vec![Vec::new(); servers.len()];
    for round in 0..rounds {
        for turn in 0..servers.len() {
            let server = (round + turn) % servers.len();
            values[server].push(measure(&servers[server]));
        }
    }
    values
}

/// Makes a recording as fast as it is taken.
fn film(served: &Served) {
    let epoch = Epoch::now();
    let mut camera = load::Camera::publishes(served.rtsp, "film", KBIT, 8 * KBIT);
    for _ in 0..FILM_S * load::FRAMES_PER_SECOND {
        camera.sends_picture(epoch);
    }
    camera.ends();
    closed(&served.site, "film", 1);
}

/// Processor time of the server for each second, with a camera if `is_live`.
fn measured(served: &Served, case: Option<Case>, is_live: bool) -> f64 {
    let (epoch, stop) = (Epoch::now(), AtomicBool::new(false));
    let camera = is_live.then(|| load::Camera::publishes(served.rtsp, "cam", KBIT, KBIT * 11 / 10));
    let mut cameras: Vec<load::Camera> = camera.into_iter().collect();
    let path = if is_live { "cam/live" } else { "film/1" };
    let length = match case {
        Some(Case { players: 8.., .. }) => MEASURED,
        _ => MEASURED_ALONE,
    };
    let share = std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stop);
        let (cameras, stop) = (&mut cameras, &stop);
        if is_live {
            scope.spawn(|| load::publish(cameras, epoch, stop));
        }
        served.is_live(path);
        let mut players = Vec::new();
        for _ in 0..case.map_or(0, |of| of.players) {
            let is_udp = case.is_some_and(|of| of.is_udp);
            let player = Player::connect(served.rtsp, path, is_live, is_udp);
            let mut player = player.expect("the disks carry the players");
            player.plays();
            players.push(player);
        }
        let receiving = scope.spawn(move || {
            load::receive(&mut players, epoch, stop);
            players
        });
        std::thread::sleep(SETTLED);
        let (begin, before) = (Instant::now(), served.processor_s());
        std::thread::sleep(length);
        let share = (served.processor_s() - before) / begin.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let players = receiving.join().expect("they play");
        for player in &players {
            assert!(player.packets > 0, "a player got nothing");
            assert_eq!(player.missing, 0, "packets are missing");
        }
        players.into_iter().for_each(Player::ends);
        share
    });
    cameras.into_iter().for_each(load::Camera::ends);
    share
}
