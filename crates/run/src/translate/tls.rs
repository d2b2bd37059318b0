//! Reads certificate files and builds the TLS configuration that the engine needs for https hosts.

use std::path::{Path, PathBuf};

use loadlab_load::journey::redirect::Site;
use loadlab_load::protocol::tls::{
    Identity, TlsConfig, TlsConfigError, TlsError, TlsParts, Trust, Versions, server_name,
};
use loadlab_load::spec::TlsSpec;

/// Where systems keep their trusted certificates.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The user's TLS settings.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// A file of certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Files of the client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Accept any certificate.
    pub is_insecure: bool,
    /// TLS versions to offer.
    pub versions: Versions,
    /// Resume earlier sessions.
    pub is_resumed: bool,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// The system has no trusted certificates.
    #[error(
        "this system has no file of trusted certificates\nhint: install `ca-certificates`, name a CA file, or \
         accept any certificate with --insecure"
    )]
    NoBundle,
    /// The contents of a file or the settings are invalid.
    #[error(transparent)]
    Config(#[from] TlsConfigError),
    /// A host name cannot be used with TLS.
    #[error(transparent)]
    Name(#[from] TlsError),
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    std::fs::read(path).map_err(|error| TrustError::File { path: path.to_owned(), error })
}

/// The TLS configuration for https hosts; `None` if there are none.
///
/// # Errors
/// A file cannot be read or is invalid, or no certificate can cover a host.
pub fn tls_spec(
    settings: &TlsSettings,
    sites: &[Site],
    http2: bool,
) -> Result<Option<Box<TlsSpec>>, TrustError> {
    tls_offering(settings, sites, &[if http2 { b"h2" } else { b"http/1.1" }])
}

/// As [`tls_spec`], with the protocols to offer, preferred first.
///
/// # Errors
/// As [`tls_spec`].
pub fn tls_offering(
    settings: &TlsSettings,
    sites: &[Site],
    protocols: &[&[u8]],
) -> Result<Option<Box<TlsSpec>>, TrustError> {
    if !sites.iter().any(|s| s.is_secure) {
        return Ok(None);
    }
    let trust = match &settings.ca {
        _ if settings.is_insecure => Trust::Anyone,
        Some(path) => Trust::Authorities(read(path)?),
        None => {
            let bundle = BUNDLES.iter().map(Path::new).find(|p| p.exists()).ok_or(TrustError::NoBundle)?;
            Trust::Authorities(read(bundle)?)
        }
    };
    let identity = match &settings.identity {
        None => None,
        Some((certificates, key)) => Some(Identity { certificates: read(certificates)?, key: read(key)? }),
    };
    let parts = TlsParts {
        trust,
        identity,
        versions: settings.versions,
        resumption: settings.is_resumed,
        alpn: protocols.iter().map(|p| p.to_vec()).collect(),
    };
    let names = sites.iter().map(|s| if s.is_secure { server_name(&s.host).map(Some) } else { Ok(None) });
    let names = names.collect::<Result<_, _>>()?;
    Ok(Some(Box::new(TlsSpec { config: TlsConfig::new(&parts)?, names })))
}
