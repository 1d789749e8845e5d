//! TLS of the server's own: its certificate and its key.
//!
//! `rustls` with the cryptography of `ring`: both build with a C compiler alone. TLS 1.2 and 1.3.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

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
pub(super) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What serves by TLS.
///
/// # Errors
/// When a file cannot be read, or the key is not the certificate's.
pub(super) fn server(config: &TlsConfig) -> Result<Arc<ServerConfig>, TlsError> {
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
pub(super) fn accept(server: &Arc<ServerConfig>) -> io::Result<rustls::Connection> {
    let connection = ServerConnection::new(Arc::clone(server)).map_err(io::Error::other)?;
    Ok(connection.into())
}
