//! Sessions of players that say nothing, and of those that only say that they are there.

use std::net::SocketAddr;
use std::time::Duration;

use testkit::rtsp::udp::Pair;
use testkit::rtsp::{Client, TCP, publisher, reservations, rtp, serving};
use testkit::until;

/// A receiver report of nobody.
const REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 5];

/// From one to the next.
const EACH: Duration = Duration::from_secs(1);

/// Number of reports: two timeouts and more.
const REPORTS: u32 = 18;

/// The last requests of a player before it only shows that it is there.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Does {
    IsSetUp,
    Plays,
    IsPaused,
    HasEnded,
}

/// Somebody whose session is as it says.
struct Player {
    client: Client,
    pair: Option<Pair>,
}

impl Player {
    fn new(address: SocketAddr, does: Does, by_udp: bool) -> Self {
        let mut client = Client::connect(address);
        let pair = by_udp.then(Pair::new);
        let transport = pair.as_ref().map_or(TCP.to_owned(), Pair::transport);
        let said = client.ask("SETUP", "cam/track0", &transport, "").is(200);
        if let Some(pair) = &pair {
            pair.agreed(address, &said);
        }
        if does != Does::IsSetUp {
            let range = match does {
                Does::HasEnded => "Range: npt=15.85-\r\n",
                _ => "",
            };
            client.ask("PLAY", "cam", range, "").is(200);
        }
        if does == Does::IsPaused {
            client.ask("PAUSE", "cam", "", "").is(200);
        }
        Self { client, pair }
    }

    fn is_there(&mut self) {
        match &self.pair {
            Some(pair) => pair.report(&REPORT),
            None => self.client.packet(1, &REPORT),
        }
    }
}

#[test]
fn silent_session_ends_and_reporting_session_stays() {
    let (site, serve, address) = serving("timeout = \"8s\"\n");
    let mut client = publisher(address, TCP);
    for number in 0..160_u16 {
        client.packet(0, &rtp(number, 100 * u32::from(number), 1, &[1; 100]));
    }
    client.ask("TEARDOWN", "cam", "", "").is(200);
    until("the reservation is given back", || reservations(&site) == 0);
    let does = [Does::IsSetUp, Does::Plays, Does::IsPaused, Does::HasEnded];
    let players = || -> Vec<Player> {
        let each = does.iter().flat_map(|does| [(*does, false), (*does, true)]);
        each.map(|(does, by_udp)| Player::new(address, does, by_udp))
            .collect()
    };
    let silent = players();
    let mut there = players();
    // Nothing comes by this, which is waited for.
    let clock = Pair::new();
    clock.wait_at_most(EACH);
    for _ in 0..REPORTS {
        there.iter_mut().for_each(Player::is_there);
        assert_eq!(clock.receive(&mut [0; 100]), None);
    }
    assert_eq!(reservations(&site), there.len());
    for mut player in there {
        // It is still there, and so is its session.
        player.client.ask("GET_PARAMETER", "cam", "", "").is(200);
        player.client.ask("TEARDOWN", "cam", "", "").is(200);
    }
    drop(silent);
    until("all is given back", || reservations(&site) == 0);
    serve.terminate();
}
