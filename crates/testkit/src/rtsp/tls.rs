//! Certificates that are made for a test, and a client that checks them.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{Client, with_blocks_of, with_rtsp};
use crate::site::{ReadyServer, Site};

/// A certificate for this host, and its key, in PEM.
pub struct Certificate {
    pub der: CertificateDer<'static>,
    pub pem: String,
    pub key: String,
}

impl Certificate {
    pub fn new() -> Self {
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        Self {
            der: made.cert.der().clone(),
            pem: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }
}

/// A certificate for a name that an authority has signed, and that of the authority, both in PEM.
pub fn signed(name: &str) -> (Certificate, String) {
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = params.self_signed(&key).expect("a certificate").pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let made = params.signed_by(&key, &issuer).expect("a certificate");
    let certificate = Certificate {
        der: made.der().clone(),
        pem: made.pem(),
        key: key.serialize_pem(),
    };
    (certificate, authority)
}

/// Writes a file with permissions.
pub fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("it can be written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Configuration of TLS.
pub const TLS: &str = "tls_listen = \"0\"\ncertificate = \"tls.pem\"\nkey = \"tls.key\"\n";

/// A site whose server has RTSP with and without TLS.
pub fn with_tls(site: &Site, more: &str) -> Certificate {
    let certificate = Certificate::new();
    with_certificate(site, &certificate, more);
    certificate
}

/// As [`with_tls`], with that certificate.
pub fn with_certificate(site: &Site, certificate: &Certificate, more: &str) {
    write_out(site, certificate);
    with_rtsp(site, &format!("{TLS}{more}"));
}

fn write_out(site: &Site, certificate: &Certificate) {
    write(&site.path("tls.pem"), &certificate.pem, 0o644);
    write(&site.path("tls.key"), &certificate.key, 0o640);
}

/// A pool on files with a volume for recordings, served; where RTSP is by TLS.
pub fn serving(more: &str) -> (Site, ReadyServer, Certificate, SocketAddr) {
    let site = Site::new(2);
    let certificate = Certificate::new();
    write_out(&site, &certificate);
    with_blocks_of(&site, "512KiB", &format!("{TLS}{more}"));
    site.run(&["pool", "create"]).done();
    let serve = site.serve_json();
    let address = serve.said["rtsps"].as_str().map(str::parse);
    let address = address.unwrap_or_else(|| panic!("no RTSP by TLS: {}", serve.said));
    site.run(&["volume", "create", "cam", "--size", "60MiB"])
        .done();
    (site, serve, certificate, address.expect("an address"))
}

/// The state of a client that takes this certificate alone.
pub fn client(address: SocketAddr, certificate: &Certificate) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::from(address.ip());
    ClientConnection::new(Arc::new(config), name).expect("a client")
}

/// A connection that takes this certificate alone.
pub fn connect(address: SocketAddr, certificate: &Certificate) -> Client {
    let mut connection = Client::connect(address);
    connection.tls = Some(client(address, certificate));
    connection
}

/// A client that has only said that it begins.
pub fn half_connect(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket
        .set_read_timeout(Some(crate::process::WITHIN))
        .expect("a time");
    // A record of a handshake that is longer than what comes of it.
    std::io::Write::write_all(&mut socket, &[22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3])
        .expect("it is taken");
    socket
}
