//! Which TLS implementation the process uses: ring, for PostgreSQL, NATS, endpoints and the
//! trace collector alike.

/// Makes ring the process's provider. Call it before anything opens a connection; a second call
/// does nothing.
pub fn install_provider() {
    // An `Err` says that one is installed already, which is what the caller wants.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
