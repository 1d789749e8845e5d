//! TLS: the certificate of the server, and the verification of cameras.
//!
//! A camera is verified with the certificate authorities of the host, or, if certificates are configured for it,
//! with these and no others. Most cameras have self-signed certificates: a configured certificate is accepted
//! whatever its name and validity period.
//!
//! `rustls` with the cryptography of `ring`: both build with a C compiler alone. TLS 1.2 and 1.3.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

/// The configuration of a service over TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// The address that it listens at.
    pub listen: SocketAddr,
    /// The file of the certificate and its chain, in PEM.
    pub certificate: PathBuf,
    /// The file of its private key, in PEM.
    pub key: PathBuf,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{0} cannot be read: {1}")]
    File(PathBuf, String),
    /// All users may read the key.
    #[error("private key {0} is accessible to all users (mode {1:04o}): set mode 0600")]
    Open(PathBuf, u32),
    /// A file contains no certificate.
    #[error("no certificate in {0}")]
    NoCertificate(PathBuf),
    /// They are invalid, or do not belong together.
    #[error("the key {0} and the certificate {1} cannot be used: {2}")]
    Pair(PathBuf, PathBuf, rustls::Error),
    /// The library failed.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

fn unread(path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it contains no PEM section of that kind".to_owned(),
        error => format!("it is not PEM: {error}"),
    };
    TlsError::File(path.to_owned(), why)
}

/// The cryptography.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Device, inode, length and change time (s, ns) of a file: another stamp means that the file has changed.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(path: &Path) -> Option<Stamp> {
    let of = std::fs::metadata(path).ok()?;
    Some((of.dev(), of.ino(), of.len(), of.ctime(), of.ctime_nsec()))
}

/// Reads a certificate with its chain, and its key.
fn read_certificate(config: &TlsConfig) -> Result<CertifiedKey, TlsError> {
    let (certificate, key) = (&config.certificate, &config.key);
    let read = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
    let chain: Vec<_> = read.map_err(|error| unread(certificate, &error))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.clone()));
    }
    let failed = |error: io::Error| TlsError::File(key.clone(), error.to_string());
    let mode = std::fs::metadata(key).map_err(failed)?.mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(TlsError::Open(key.clone(), mode));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, &error))?;
    CertifiedKey::from_der(chain, secret, &provider())
        .map_err(|error| TlsError::Pair(key.clone(), certificate.clone(), error))
}

#[derive(Debug)]
struct LoadedCertificate {
    certified: Arc<CertifiedKey>,
    /// Those of the files that were read last, valid or not.
    stamps: [Option<Stamp>; 2],
}

/// The certificate of the server. It is read again at a handshake after its files have changed.
#[derive(Debug)]
struct CurrentCertificate {
    config: TlsConfig,
    loaded: Mutex<LoadedCertificate>,
}

impl CurrentCertificate {
    fn open(config: &TlsConfig) -> Result<Self, TlsError> {
        // A change after this is found by the next handshake.
        let stamps = [&config.certificate, &config.key].map(|path| stamp(path));
        let certified = Arc::new(read_certificate(config)?);
        Ok(Self {
            config: config.clone(),
            loaded: Mutex::new(LoadedCertificate { certified, stamps }),
        })
    }

    /// The certificate. If changed files are invalid, logs that once and keeps the previous certificate.
    fn current(&self) -> Arc<CertifiedKey> {
        // It is valid after a panic: its parts are replaced as a whole.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let config = &self.config;
        let now = [&config.certificate, &config.key].map(|path| stamp(path));
        if now != loaded.stamps {
            loaded.stamps = now;
            let file = config.certificate.display();
            match read_certificate(config) {
                Ok(certified) => {
                    tracing::info!(%file, "certificate read again");
                    loaded.certified = Arc::new(certified);
                }
                Err(error) => {
                    tracing::error!(%file, %error, "certificate invalid; keeping the previous one");
                }
            }
        }
        Arc::clone(&loaded.certified)
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// The TLS configuration of the server. Changed files are read again at the next handshake.
///
/// # Errors
/// When a file cannot be read, or the key is not the certificate's.
pub fn server(config: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
    let certificate = CurrentCertificate::open(config)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth();
    Ok(Arc::new(builder.with_cert_resolver(Arc::new(certificate))))
}

/// The TLS state of an accepted connection.
///
/// # Errors
/// When the library fails.
pub(crate) fn accept(server: &Arc<ServerConfig>) -> io::Result<rustls::Connection> {
    let connection = ServerConnection::new(Arc::clone(server)).map_err(io::Error::other)?;
    Ok(connection.into())
}

/// The certificates that are trusted for a camera.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustedCertificates {
    pem: String,
    certificates: Vec<CertificateDer<'static>>,
}

/// Why a text has no certificates to trust.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrustError {
    /// It is no PEM.
    #[error("it is not PEM: {0}")]
    Syntax(String),
    /// It contains no certificate.
    #[error("it contains no certificate in PEM")]
    None,
    /// No certificate in it is valid.
    #[error("it contains no valid certificate")]
    Unusable,
}

impl TrustedCertificates {
    /// Parses certificates in PEM.
    ///
    /// # Errors
    /// When there is no valid one.
    pub fn parse(pem: &str) -> Result<Self, TrustError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = read.map_err(|error| TrustError::Syntax(error.to_string()))?;
        if certificates.is_empty() {
            return Err(TrustError::None);
        }
        match roots(&certificates).is_empty() {
            true => Err(TrustError::Unusable),
            false => Ok(Self {
                pem: pem.to_owned(),
                certificates,
            }),
        }
    }

    /// The text that was parsed.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

impl std::fmt::Debug for TrustedCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.certificates.len();
        f.debug_struct("Trusted")
            .field("certificates", &count)
            .finish_non_exhaustive()
    }
}

fn roots(certificates: &[CertificateDer<'static>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.iter().cloned());
    roots
}

/// Accepts the trusted certificates, and those that a trusted one has signed.
#[derive(Debug)]
struct Verifier {
    trusted: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.contains(certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed
            .verify_server_cert(certificate, others, name, status, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// The TLS configuration of a client that trusts these certificates, or the authorities of this host.
///
/// # Errors
/// When the host has no certificate authorities.
pub fn client(trusted: Option<&TrustedCertificates>) -> io::Result<Arc<ClientConfig>> {
    let (trusted, roots) = match trusted {
        Some(of) => (of.certificates.clone(), roots(&of.certificates)),
        None => (
            Vec::new(),
            roots(&rustls_native_certs::load_native_certs().certs),
        ),
    };
    if roots.is_empty() {
        return Err(io::Error::other(
            "TLS: this host has no certificate authorities (package ca-certificates)",
        ));
    }
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { trusted, signed }))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The TLS state of a connection to a camera.
///
/// # Errors
/// When the host has no certificate authorities, or a certificate cannot have this host name.
pub(crate) fn connect(
    host: &str,
    trusted: Option<&TrustedCertificates>,
) -> io::Result<rustls::Connection> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let config = client(trusted)
        .map_err(|error| io::Error::other(format!("{error}: install it, or use --ca")))?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    Ok(connection.into())
}
