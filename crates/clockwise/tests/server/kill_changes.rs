//! A server that is killed while volumes are made, grown, shrunk, moved and deleted and while a stream
//! records: what was answered is there, what was under way is there or is not, and nothing else has
//! changed.

#![allow(clippy::print_stdout, reason = "a random test prints its seed")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::nbd::{Wire, cmd};
use testkit::site::{Serve, Site, call, call_if_there};
use testkit::{Random, pattern, seed, until};

/// Number of kills.
const ROUNDS: u64 = 14;

/// Longest round before the test fails: a hundred times its usual length.
const ROUND_WITHIN: Duration = Duration::from_secs(100);

const MIB: u64 = 1 << 20;

/// Bytes written to the kept volumes, which no change removes.
const KEPT: u64 = 2 * MIB;

/// The volume that is recorded to, and the size of a block.
const FILM: &str = "film";
const FILM_BYTES: u64 = 4 * MIB;
const BLOCK: usize = 256 << 10;

const SECTOR: usize = 512;

/// The largest volumes: the disks have room for all, and for what is being moved.
const EXTENTS_MAX: u64 = 6;

/// Last known state of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Volume {
    extents: u64,
    /// The disk that all of it was moved to.
    disk: Option<String>,
}

/// A change of a volume.
#[derive(Clone, Debug)]
enum Change {
    Create(u64),
    Grow(u64),
    Shrink(u64),
    Move(String),
    Delete,
}

impl Change {
    /// Some change of what `volume` is now.
    fn some(random: &mut Random, volume: Option<&Volume>, least: u64, disks: &[String]) -> Self {
        let Some(volume) = volume else {
            return Self::Create(random.range(1, EXTENTS_MAX));
        };
        match random.below(8) {
            0 | 1 if volume.extents < EXTENTS_MAX => {
                Self::Grow(random.range(volume.extents + 1, EXTENTS_MAX))
            }
            2 | 3 if volume.extents > least.max(1) => {
                Self::Shrink(random.range(least.max(1), volume.extents - 1))
            }
            4 | 5 if least == 0 => Self::Delete,
            _ => Self::Move(disks[random.below(disks.len() as u64) as usize].clone()),
        }
    }

    /// State of the volume after the change.
    fn after(&self, before: Option<&Volume>) -> Option<Volume> {
        let (extents, disk) = match self {
            Self::Create(extents) | Self::Grow(extents) => (*extents, None),
            Self::Shrink(extents) => (*extents, before?.disk.clone()),
            Self::Move(disk) => (before?.extents, Some(disk.clone())),
            Self::Delete => return None,
        };
        Some(Volume { extents, disk })
    }

    /// Asks for it, and whether it is done: `false` when the server has gone.
    fn ask(&self, site: &Site, name: &str) -> bool {
        let path = format!("/v1/volumes/{name}");
        let moving = format!("{path}/move");
        let resize =
            |extents: &u64| json!({ "size_bytes": extents * MIB, "force": true }).to_string();
        let create = |extents: &u64| json!({ "name": name, "size_bytes": extents * MIB });
        let (method, path, body) = match self {
            Self::Create(extents) => ("POST", "/v1/volumes", create(extents).to_string()),
            Self::Grow(extents) | Self::Shrink(extents) => ("PATCH", &*path, resize(extents)),
            Self::Move(disk) => {
                let placement = json!({ "placement": { "disks": [disk] } });
                ("POST", &*moving, placement.to_string())
            }
            Self::Delete => ("DELETE", &*path, String::new()),
        };
        match call_if_there(site, method, path, &body) {
            Some((200 | 201, _)) => true,
            // A server that is killed may have begun to answer.
            None | Some((_, Value::Null)) => false,
            Some((status, body)) => panic!("{self:?} of {name}: {status} {body}"),
        }
    }
}

/// Number of changes of each kind that were done, and that were under way at a kill.
#[derive(Debug, Default)]
struct Seen {
    done: [u64; 5],
    under_way: [u64; 5],
}

impl Seen {
    fn count(of: &mut [u64; 5], change: &Change) {
        of[match change {
            Change::Create(_) => 0,
            Change::Grow(_) => 1,
            Change::Shrink(_) => 2,
            Change::Move(_) => 3,
            Change::Delete => 4,
        }] += 1;
    }
}

/// A message of a client.
enum Told {
    /// It is about to ask for this change of a volume.
    Asks(String, Change),
    /// The change is done.
    Done(String),
    /// The server has taken some more of what is recorded.
    Took,
}

/// A volume as far as is known while the server runs.
#[derive(Clone, Debug, Default)]
struct Known {
    is: Option<Volume>,
    asked: Option<Change>,
}

/// The names of the volumes that one client changes, with what must always be left of each.
fn names(client: u64) -> [(String, u64); 3] {
    [
        (format!("kept-{client}"), KEPT / MIB),
        (format!("a-{client}"), 0),
        (format!("b-{client}"), 0),
    ]
}

/// Changes volumes until the server goes.
fn change(
    site: &Site,
    client: u64,
    mut random: Random,
    disks: &[String],
    mut volumes: BTreeMap<String, Known>,
    told: &mpsc::Sender<Told>,
) -> Option<()> {
    let names = names(client);
    loop {
        let (name, least) = &names[random.below(3) as usize];
        let known = volumes.entry(name.clone()).or_default();
        let change = Change::some(&mut random, known.is.as_ref(), *least, disks);
        // The killing thread listens until this ends.
        told.send(Told::Asks(name.clone(), change.clone())).ok()?;
        if !change.ask(site, name) {
            return None;
        }
        known.is = change.after(known.is.as_ref());
        told.send(Told::Done(name.clone())).ok()?;
    }
}

/// Recorded bytes of a round at a sector of the volume.
fn film(round: u64, sector: u64) -> Vec<u8> {
    pattern((round + 1) << 32 | sector, SECTOR)
}

/// Reserves a recording, and returns its connection and where its status is.
fn begin_recording(site: &Site) -> (UnixStream, String) {
    let ask = json!({
        "volume": FILM, "op": "record", "rate_bytes_per_second": 2_000_000, "block_bytes": BLOCK, "wraps": true
    });
    let (status, reserved) = call(site, "POST", "/v1/streams", &ask.to_string());
    assert_eq!(status, 201, "{reserved}");
    let token = reserved["token"].as_str().expect("a token");
    let mut connection = testkit::site::connect(&site.path("data.sock"));
    let hello = format!("clockwise-stream {token}\n");
    connection.write_all(hello.as_bytes()).expect("it is taken");
    let mut ok = [0; 3];
    connection.read_exact(&mut ok).expect("an answer");
    assert_eq!(&ok, b"ok\n");
    (connection, format!("/v1/streams/{}", reserved["id"]))
}

/// Waits until the first block is durable, as the server says it.
fn keep_first_block(site: &Site, recording: &str) {
    until("the first block is durable", || {
        let (_, status) = call(site, "GET", recording, "");
        status["pace"]["durable_bytes"].as_u64() >= Some(BLOCK as u64)
    });
}

/// Records until the server goes.
fn record(mut connection: UnixStream, round: u64, told: &mpsc::Sender<Told>) -> Option<()> {
    let content: Vec<u8> = (0..FILM_BYTES / SECTOR as u64)
        .flat_map(|sector| film(round, sector))
        .collect();
    loop {
        for block in content.chunks(BLOCK) {
            connection.write_all(block).ok()?;
            told.send(Told::Took).ok()?;
        }
    }
}

/// In each fourth round what is recorded decides when the server is killed, in the others the changes do.
fn is_by_stream(round: u64) -> bool {
    round % 4 == 3
}

/// Runs clients until so many answers came, kills the server, and returns what is known.
fn killed(
    site: &Site,
    server: Serve,
    round: u64,
    random: &mut Random,
    mut volumes: BTreeMap<String, Known>,
    seen: &mut Seen,
) -> BTreeMap<String, Known> {
    let (recording, its_status) = begin_recording(site);
    let (sender, told) = mpsc::channel();
    let disks = [0, 1].map(|disk| site.path(&format!("disk-{disk}")).display().to_string());
    let is_by_stream = is_by_stream(round);
    let mut left = random.range(1, 16);
    let mut is_answering = true;
    std::thread::scope(|scope| {
        // In half of those rounds nobody changes anything, which may make durable what the flush has to.
        for client in 0..if round % 8 == 3 { 0 } else { 2 } {
            let (sender, volumes) = (sender.clone(), volumes.clone());
            let (random, disks) = (Random(random.next()), &disks);
            scope.spawn(move || change(site, client, random, disks, volumes, &sender));
        }
        let recorder = sender;
        scope.spawn(move || record(recording, round, &recorder));
        let mut learn = |told: Told| match told {
            Told::Asks(name, change) => {
                volumes.entry(name).or_default().asked = Some(change);
                false
            }
            Told::Done(name) => {
                let known = volumes.get_mut(&name).expect("it was asked for");
                let change = known.asked.take().expect("it was asked for");
                known.is = change.after(known.is.as_ref());
                Seen::count(&mut seen.done, &change);
                !is_by_stream
            }
            Told::Took => is_by_stream,
        };
        // A server that answers wrongly, or not at all, is not waited for for ever.
        let until = Instant::now() + ROUND_WITHIN;
        while left > 0 && is_answering {
            let limit = until.saturating_duration_since(Instant::now());
            match told.recv_timeout(limit) {
                Ok(told) => left -= u64::from(learn(told)),
                Err(_) => is_answering = false,
            }
        }
        if is_by_stream && is_answering {
            keep_first_block(site, &its_status);
        }
        // Changes asked for in the meantime are under way.
        drop(server.kill());
        for told in told {
            learn(told);
        }
    });
    assert!(
        is_answering,
        "nothing in {ROUND_WITHIN:?}, {left} answers to go"
    );
    for change in volumes.values().filter_map(|known| known.asked.as_ref()) {
        Seen::count(&mut seen.under_way, change);
    }
    volumes
}

/// State of a volume by the server; `None` where there is none.
fn found(site: &Site, name: &str) -> Option<(u64, Vec<(String, u64)>)> {
    let (status, volume) = call(site, "GET", &format!("/v1/volumes/{name}"), "");
    if status == 404 {
        return None;
    }
    let parts = volume["extents_by_disk"].as_array().expect("its disks");
    let part = |part: &Value| {
        let disk = part["disk"].as_str().expect("a name").to_owned();
        (disk, part["extents"].as_u64().expect("a number"))
    };
    let size = volume["size_bytes"].as_u64().expect("a size");
    Some((size, parts.iter().map(part).collect()))
}

/// Checks that a volume is what was answered, or what was under way would have made of it. Returns what
/// it is from now on.
fn settled(site: &Site, name: &str, known: &Known) -> Known {
    let found = found(site, name);
    let is = |volume: &Option<Volume>, is_moved: bool| match (volume, &found) {
        (None, None) => true,
        (Some(volume), Some((size, parts))) => {
            let all: u64 = parts.iter().map(|(_, extents)| extents).sum();
            let disk = volume.disk.as_ref();
            let is_there = |disk: &String| parts.iter().all(|(part, _)| part == disk);
            volume.extents * MIB == *size
                && volume.extents == all
                && (is_moved || disk.is_none_or(is_there))
        }
        _ => false,
    };
    // A move is durable extent by extent.
    let is_moved = matches!(known.asked, Some(Change::Move(_)));
    let after = known
        .asked
        .as_ref()
        .map(|change| change.after(known.is.as_ref()));
    let is_after = after.is_some_and(|after| is(&after, is_moved));
    assert!(
        is(&known.is, is_moved) || is_after,
        "{name}: {found:?} instead of {known:?}"
    );
    let is = found.map(|(size, parts)| Volume {
        extents: size / MIB,
        disk: (parts.len() == 1).then(|| parts[0].0.clone()),
    });
    Known { is, asked: None }
}

/// Contents of a volume from its beginning on.
fn content(wire: &mut Wire, length: u64) -> Vec<u8> {
    let pieces = (0..length).step_by(MIB as usize);
    pieces
        .flat_map(|offset| wire.read_range(offset, (length - offset).min(MIB) as u32))
        .collect()
}

/// Discards, durably, the beginning of a volume. The next write there is lost with a change of the map unless
/// it is flushed; the host of a killed server keeps overwrites.
fn clear(wire: &mut Wire, length: u64) {
    assert_eq!(wire.ask(cmd::TRIM, cmd::FUA, 0, length as u32).error, 0);
}

/// Checks that nothing is on a volume, and lets go of it.
fn is_empty(site: &Site, name: &str, length: u64) {
    let mut wire = Wire::structured(&site.path("nbd.sock"), name);
    let is_zero = content(&mut wire, length).iter().all(|byte| *byte == 0);
    assert!(is_zero, "{name} has what nobody wrote there");
    close(site, name, wire);
}

/// Closes the only connection to a volume, and waits until the server has let go of the volume. Before that,
/// nobody may delete it or record to it.
fn close(site: &Site, name: &str, mut wire: Wire) {
    wire.request(cmd::DISC, 0, 0, 0, 0);
    assert!(wire.is_closed());
    let users = || call(site, "GET", &format!("/v1/volumes/{name}"), "").1["open_count"].clone();
    until("the server lets go of it", || users() == 0);
}

#[test]
fn answered_volume_changes_survive_a_kill_and_others_are_whole() {
    let seed = seed("kill changes", None);
    let mut random = Random(seed);
    let (site, mut server) = Site::serving(2);
    let socket = site.path("nbd.sock");
    let mut volumes = BTreeMap::new();
    for (name, size) in [("kept-0", KEPT), ("kept-1", KEPT), (FILM, FILM_BYTES)] {
        let extents = size / MIB;
        assert!(Change::Create(extents).ask(&site, name));
        let is = Change::Create(extents).after(None);
        volumes.insert(name.to_owned(), Known { is, asked: None });
    }
    let mut seen = Seen::default();
    let mut recorded = vec![0; FILM_BYTES as usize];
    for round in 0..ROUNDS {
        // In use while they are changed.
        let mut users = [0, 1].map(|client| Wire::structured(&socket, &format!("kept-{client}")));
        let kept = |client: u64| pattern(round << 8 | client, KEPT as usize);
        for (client, wire) in (0..).zip(&mut users) {
            clear(wire, KEPT);
            assert_eq!(wire.write(0, 0, &kept(client)).error, 0);
            assert_eq!(wire.ask(cmd::FLUSH, 0, 0, 0).error, 0);
        }
        if is_by_stream(round) {
            let mut wire = Wire::structured(&socket, FILM);
            clear(&mut wire, BLOCK as u64);
            close(&site, FILM, wire);
            recorded[..BLOCK].fill(0);
        }
        volumes = killed(&site, server, round, &mut random, volumes, &mut seen);
        site.run(&["pool", "check"]).done();
        server = site.serve();
        for (name, known) in &mut volumes {
            *known = settled(&site, name, known);
            if let Some(is) = known.is.as_ref().filter(|_| name.starts_with(['a', 'b'])) {
                is_empty(&site, name, is.extents * MIB);
            }
        }
        let there = site.json(&["volume", "list"]);
        let there = there.as_array().expect("volumes").len();
        assert_eq!(
            there,
            volumes.values().filter(|known| known.is.is_some()).count()
        );
        for client in 0..2 {
            let mut wire = Wire::structured(&socket, &format!("kept-{client}"));
            assert!(
                content(&mut wire, KEPT) == kept(client),
                "round {round}: kept-{client}"
            );
        }
        // The first block was flushed. Then sector by sector: a block that was under way may be there in part.
        let mut wire = Wire::structured(&socket, FILM);
        let now = content(&mut wire, FILM_BYTES);
        let both = now.chunks(SECTOR).zip(recorded.chunks(SECTOR));
        for (sector, (now, before)) in (0..).zip(both) {
            let is_known = now == before || now == film(round, sector);
            assert!(is_known, "round {round}: sector {sector} of the film");
            let is_kept = is_by_stream(round) && sector < (BLOCK / SECTOR) as u64;
            assert!(
                !is_kept || now == film(round, sector),
                "round {round}: sector {sector} of the film was flushed"
            );
        }
        close(&site, FILM, wire);
        recorded = now;
    }
    println!("{seen:?}");
    let is_each_done = seen.done.iter().all(|count| *count > 0);
    assert!(
        is_each_done && seen.under_way.iter().sum::<u64>() > 0,
        "{seen:?}"
    );
    assert_eq!(server.terminate().0, Some(0));
}
