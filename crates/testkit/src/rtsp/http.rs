//! Requests of browsers and other programs over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::process::WITHIN;
use crate::site::ReadyServer;

/// A request, and its answer: status, head and body.
pub fn get(address: SocketAddr, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    ask(address, "GET", path, headers)
}

/// As [`get`], with another method.
pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("a socket");
    let text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).expect("it takes it");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer
        .windows(4)
        .position(|of| of == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|of| of.parse().ok())
        .expect("a status");
    let body = answer.split_off(end + 4);
    (status, head, body)
}

/// Address at which a server serves browsers.
pub fn http(serve: &ReadyServer) -> SocketAddr {
    serve.said["http"]
        .as_str()
        .and_then(|of| of.parse().ok())
        .expect("an address")
}

/// A header of an answer, by its name in small letters.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// A connection that is kept, and what it was told to answer.
pub struct HttpConnection {
    stream: TcpStream,
    login: Option<http_auth::PasswordClient>,
}

impl HttpConnection {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(WITHIN)).expect("a socket");
        Self {
            stream,
            login: None,
        }
    }

    /// Asks, and asks again as somebody when it is told to say who it is.
    pub fn ask(&mut self, path: &str, who: Option<(&str, &str)>) -> (u16, Vec<u8>) {
        let mut authorization = String::new();
        for turn in 0..2 {
            if let (Some((username, password)), Some(login)) = (who, &mut self.login) {
                let params = http_auth::PasswordParams {
                    username,
                    password,
                    uri: path,
                    method: "GET",
                    body: None,
                };
                let said = login.respond(&params).expect("an answer");
                authorization = format!("Authorization: {said}\r\n");
            }
            let (status, head, body) = self.send(path, &authorization);
            let challenge = head
                .lines()
                .find_map(|line| line.strip_prefix("www-authenticate: "));
            let Some(challenge) = challenge.filter(|_| who.is_some() && turn == 0) else {
                return (status, body);
            };
            self.login = Some(challenge.try_into().expect("a challenge"));
        }
        unreachable!("the second turn is the last")
    }

    fn send(&mut self, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
        let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        self.stream.write_all(text.as_bytes()).expect("it takes it");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).expect("a head");
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|of| of.parse().ok())
            .expect("a status");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|of| of.parse().ok()).expect("a length");
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        (status, head, body)
    }
}
