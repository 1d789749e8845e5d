//! TLS: as whom the server is served, and which cameras are believed to be themselves.
//!
//! A camera is believed by the certificates of authorities that the server's host knows; or, where some are given for
//! it, by these and no others. Most cameras have made theirs themselves: one that is given is believed whatever name and
//! time it is for.
//!
//! `rustls` with the cryptography of `ring`: both build with a C compiler alone. TLS 1.2 and 1.3.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

/// Where RTSP is served by TLS, and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The file of the certificate, with those that it is signed by.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{0} cannot be read: {1}")]
    File(PathBuf, String),
    /// Others may see the key.
    #[error("{0}, a key, may be read by everybody (its mode is {1:04o})")]
    Open(PathBuf, u32),
    /// No certificate.
    #[error("there is no certificate in {0}")]
    NoCertificate(PathBuf),
    /// They are of no use, or do not belong together.
    #[error("the key {0} and the certificate {1} cannot be used: {2}")]
    Pair(PathBuf, PathBuf, rustls::Error),
    /// The library.
    #[error("TLS cannot be had: {0}")]
    Library(#[from] rustls::Error),
}

fn unread(path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "there is none in it, as PEM".to_owned(),
        error => format!("it is no PEM: {error}"),
    };
    TlsError::File(path.to_owned(), why)
}

/// The library's cryptography.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What serves by TLS.
///
/// # Errors
/// When a file cannot be read, or the key is not the certificate's.
pub(crate) fn server(config: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
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
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth();
    let server = builder
        .with_single_cert(chain, secret)
        .map_err(|error| TlsError::Pair(key.clone(), certificate.clone(), error))?;
    Ok(Arc::new(server))
}

/// What a connection is accepted with.
///
/// # Errors
/// When the library has none.
pub(crate) fn accept(server: &Arc<ServerConfig>) -> io::Result<rustls::Connection> {
    let connection = ServerConnection::new(Arc::clone(server)).map_err(io::Error::other)?;
    Ok(connection.into())
}

/// Certificates that a camera is believed by.
#[derive(Clone, PartialEq, Eq)]
pub struct Trusted {
    pem: String,
    certificates: Vec<CertificateDer<'static>>,
}

/// Why nobody is believed by a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrustError {
    /// It is no PEM.
    #[error("it is no PEM: {0}")]
    Syntax(String),
    /// There is none.
    #[error("there is no certificate in it, as PEM")]
    None,
    /// None of them can be used.
    #[error("there is no certificate in it that can be used")]
    Unusable,
}

impl Trusted {
    /// Those of a text in PEM.
    ///
    /// # Errors
    /// When there is none.
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

    /// The text.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

impl std::fmt::Debug for Trusted {
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

/// Believes a certificate that was given, and one that such a one has signed.
#[derive(Debug)]
struct Verifier {
    given: Vec<CertificateDer<'static>>,
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
        if self.given.contains(certificate) {
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

/// What a camera is connected to with.
///
/// # Errors
/// When the host knows no certificates of authorities, or the name cannot be one of a certificate.
pub(crate) fn connect(host: &str, trusted: Option<&Trusted>) -> io::Result<rustls::Connection> {
    let (given, roots) = match trusted {
        Some(of) => (of.certificates.clone(), roots(&of.certificates)),
        None => (
            Vec::new(),
            roots(&rustls_native_certs::load_native_certs().certs),
        ),
    };
    if roots.is_empty() {
        return Err(io::Error::other(
            "TLS: this host knows no authorities (ca-certificates): --ca names whose certificates are believed",
        ));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Verifier { given, signed }))
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(connection.into())
}
