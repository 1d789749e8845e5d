//! More sessions than the disks carry: who is refused is told so, leaves nothing behind, and harms nobody.

#![allow(clippy::print_stdout, reason = "how many are admitted is told")]

use std::net::SocketAddr;
use std::sync::Mutex;

use serde_json::{Value, json};
use testkit::rtsp::{Client, SDP_TYPE, TCP, publisher, reservations, rtp, sdp, serve, with_rtsp};
use testkit::site::{ReadyServer, Site, call, read_text};
use testkit::until;

/// Number of clients.
const MANY: usize = 500;

/// Number of them at once.
const AT_ONCE: usize = 8;

/// Descriptors and threads that a server holds. Those of io_uring belong to the kernel, which keeps them for
/// a while.
fn held(serve: &ReadyServer) -> [usize; 2] {
    let folder = format!("/proc/{}", serve.pid());
    let all = |of: &str| std::fs::read_dir(format!("{folder}/{of}")).expect("it runs");
    let names = all("task").filter_map(|of| std::fs::read(of.ok()?.path().join("comm")).ok());
    let threads = names.filter(|name| !name.starts_with(b"iou-")).count();
    [all("fd").count(), threads]
}

/// Promises of the disks.
fn promised(site: &Site) -> Vec<Value> {
    let status = call(site, "GET", "/v1/status", "").1;
    let disks = status["disks"].as_array().expect("disks").iter();
    disks.map(|disk| disk["utilization"].clone()).collect()
}

/// A recording that goes on while others come and go.
struct Steady {
    client: Client,
    sent: u16,
}

impl Steady {
    fn new(address: SocketAddr) -> Self {
        let client = publisher(address, TCP);
        Self { client, sent: 0 }
    }

    fn sends(&mut self) {
        let packet = rtp(
            self.sent,
            10 * u32::from(self.sent),
            7,
            &[self.sent as u8; 900],
        );
        self.client.packet(0, &packet);
        self.sent += 1;
    }
}

/// Has each of many do something, several of them at once, while somebody records: those that were admitted,
/// with their numbers.
fn many(
    what: &str,
    steady: &mut Steady,
    come: impl Fn(usize) -> Result<Client, u16> + Sync,
) -> Vec<(usize, Client)> {
    let steady = Mutex::new(steady);
    let one_after_another = |first: usize| {
        let mut admitted = Vec::new();
        for number in (first..MANY).step_by(AT_ONCE) {
            steady.lock().expect("it goes on").sends();
            match come(number) {
                Ok(client) => admitted.push((number, client)),
                Err(status) => assert_eq!(status, 453, "of number {number}"),
            }
        }
        admitted
    };
    let one_after_another = &one_after_another;
    let admitted: Vec<(usize, Client)> = std::thread::scope(|scope| {
        let begin = |first| scope.spawn(move || one_after_another(first));
        let all: Vec<_> = (0..AT_ONCE).map(begin).collect();
        let all = all.into_iter();
        all.flat_map(|of| of.join().expect("all have come"))
            .collect()
    });
    println!("{} of {MANY} {what} are admitted", admitted.len());
    assert!(!admitted.is_empty(), "nobody is admitted");
    assert!(admitted.len() < MANY, "nobody is refused");
    admitted
}

/// They go, every other one with good manners.
fn leave(clients: Vec<(usize, Client)>, path: impl Fn(usize) -> String) {
    for (turn, (number, mut client)) in clients.into_iter().enumerate() {
        if turn % 2 == 0 {
            client.ask("TEARDOWN", &path(number), "", "").is(200);
        }
    }
}

#[test]
fn five_hundred_that_come_are_served_or_refused_and_leave_nothing_behind() {
    let site = Site::new(2);
    let text = read_text(&site.config());
    let text = text.replace("size = \"64MiB\"", "size = \"400MiB\"");
    let text = text.replace("total = \"64MiB\"", "total = \"32MiB\"");
    std::fs::write(site.config(), text).expect("the configuration can be written");
    // A client that waits for its turn among so many is not taken for a vanished one.
    with_rtsp(&site, "timeout = \"10min\"");
    site.run(&["pool", "create"]).done();
    let (server, address) = serve(&site);
    let volume = |name: &str, mib: u64| {
        let body = json!({ "name": name, "size_bytes": mib << 20 }).to_string();
        assert_eq!(call(&site, "POST", "/v1/volumes", &body).0, 201);
    };
    let nothing = promised(&site);
    volume("cam", 40);
    volume("done", 10);
    (0..MANY).for_each(|number| volume(&format!("v{number}"), 1));
    let mut first = Client::connect(address);
    first.ask("ANNOUNCE", "done", SDP_TYPE, &sdp(800)).is(200);
    first.ask("SETUP", "done/one", TCP, "").is(200);
    first.ask("RECORD", "done", "", "").is(200);
    for number in 0..100 {
        first.packet(0, &rtp(number, 100 * u32::from(number), 5, &[5; 900]));
    }
    first.ask("TEARDOWN", "done", "", "").is(200);
    drop(first);
    until("nothing is promised", || promised(&site) == nothing);
    let mut steady = Steady::new(address);
    steady.sends();
    until("only one has something reserved", || {
        reservations(&site) == 1
    });
    let (before, promised_before) = (held(&server), promised(&site));
    let is_as_before = |what: &str| {
        until(&format!("{what}: one reservation is left"), || {
            let all = call(&site, "GET", "/v1/sessions", "").1;
            all.as_array().map(Vec::len) == Some(1) && reservations(&site) == 1
        });
        until(&format!("{what}: what was promised is as before"), || {
            promised(&site) == promised_before
        });
        until(
            &format!("{what}: descriptors and threads are as before"),
            || {
                let held = held(&server);
                held.iter().zip(&before).all(|(now, before)| now <= before)
            },
        );
    };

    let path = |number: usize| format!("v{number}");
    let recorders = many("recorders", &mut steady, |number| {
        let (mut client, path) = (Client::connect(address), path(number));
        client.ask("ANNOUNCE", &path, SDP_TYPE, &sdp(80)).is(200);
        let said = client.ask("SETUP", &format!("{path}/one"), TCP, "");
        if said.status != 200 {
            let why = ["cannot carry it", "can be guaranteed"];
            assert!(why.iter().any(|why| said.body.contains(why)), "{said:?}");
            return Err(said.status);
        }
        client.ask("RECORD", &path, "", "").is(200);
        client.packet(0, &rtp(0, 0, 5, b"one"));
        Ok(client)
    });
    assert_eq!(reservations(&site), 1 + recorders.len());
    leave(recorders, path);
    is_as_before("all recorders have gone");

    let players = many("players", &mut steady, |_| {
        let mut client = Client::connect(address);
        client.ask("DESCRIBE", "done", "", "").is(200);
        let said = client.ask("SETUP", "done/track0", TCP, "");
        if said.status != 200 {
            return Err(said.status);
        }
        client.ask("PLAY", "done", "", "").is(200);
        Ok(client)
    });
    assert_eq!(reservations(&site), 1 + players.len());
    leave(players, |_| "done".to_owned());
    is_as_before("all players have gone");

    steady.client.ask("TEARDOWN", "cam", "", "").is(200);
    let found = site.json(&["recording", "check", "cam", "1"]);
    assert_eq!(
        (&found["packets"], &found["lost"], &found["is_sound"]),
        (&steady.sent.into(), &0.into(), &true.into()),
        "{found}"
    );
    server.terminate();
}
