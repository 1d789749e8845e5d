//! A client that says who it is.

use std::net::SocketAddr;

use http_auth::{PasswordClient, PasswordParams};

use super::{Client, RtspResponse, SDP_TYPE, TCP, sdp};

/// Somebody who knows a password.
pub struct DigestUser {
    pub client: Client,
    pub address: SocketAddr,
    pub user: &'static str,
    pub password: &'static str,
    pub login: PasswordClient,
}

/// The challenge for a client without credentials.
pub fn challenge(client: &mut Client) -> String {
    let said = client.ask("DESCRIBE", "cam", "", "").is(401);
    let challenge = said.header("WWW-Authenticate").expect("a challenge");
    assert!(
        challenge.starts_with("Digest realm=\"clockwise\", nonce=\""),
        "{challenge}"
    );
    challenge.to_owned()
}

impl DigestUser {
    pub fn connect(address: SocketAddr, user: &'static str, password: &'static str) -> Self {
        let mut client = Client::connect(address);
        let login = PasswordClient::try_from(challenge(&mut client).as_str()).expect("a challenge");
        Self {
            client,
            address,
            user,
            password,
            login,
        }
    }

    pub fn authorization(&mut self, method: &str, path: &str) -> String {
        let said = self.login.respond(&PasswordParams {
            username: self.user,
            password: self.password,
            uri: &format!("rtsp://{}/{path}", self.address),
            method,
            body: None,
        });
        format!("Authorization: {}\r\n", said.expect("an answer"))
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> RtspResponse {
        let headers = self.authorization(method, path) + headers;
        self.client.ask(method, path, &headers, body)
    }

    /// Begins a recording; its session with the timeout, as the server calls it.
    pub fn records(&mut self) -> String {
        self.ask("ANNOUNCE", "cam", SDP_TYPE, &sdp(800)).is(200);
        let set_up = self.ask("SETUP", "cam/one", TCP, "").is(200);
        self.ask("RECORD", "cam", "", "").is(200);
        set_up.header("Session").expect("a session").to_owned()
    }
}
