//! What is requested and how, if no plan defines it: shared by the commands that load a URL.

use std::path::PathBuf;

use clap::Args as Arguments;
use loadlab_plan::METHODS;

use super::given::{Header, ProxyGiven, header};
use super::values::{few, positive_duration};

/// A request's timeout if none is given.
pub const DEFAULT_TIMEOUT_NS: u64 = 30_000_000_000;

#[derive(Debug, Default, Arguments)]
#[command(next_help_heading = "Request")]
pub struct RequestArgs {
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub method: Option<String>,
    /// Header `Name: value`; may be repeated
    ///
    /// `@FILE` has one on each line, which keeps credentials out of the process list.
    #[arg(short = 'H', long = "header", value_name = "HEADER|@FILE", value_parser = header)]
    pub headers: Vec<Header>,
    /// Body, or @FILE to read it from
    #[arg(short = 'b', long, value_name = "BODY|@FILE")]
    pub body: Option<String>,
    /// Open a new connection for every request
    #[arg(long, hide_short_help = true)]
    pub no_keep_alive: bool,
    /// Fail a request after this time [default: 30s]
    #[arg(long, value_name = "T", value_parser = positive_duration, hide_short_help = true)]
    pub timeout: Option<u64>,
    /// Use HTTP/2: negotiated by ALPN over https, by prior knowledge otherwise
    #[arg(long, hide_short_help = true)]
    pub http2: bool,
    /// HTTP/2: concurrent requests on each connection; 200 users with 10 streams use 20 connections [default: 1]
    #[arg(long, value_name = "N", value_parser = few(1, 10_000), requires = "http2", hide_short_help = true)]
    pub streams: Option<u32>,
    /// Send through this proxy; @FILE contains its URL
    ///
    /// Through a tunnel (CONNECT) for https and HTTP/2, with absolute URLs for everything else.
    #[arg(long, value_name = "URL|@FILE", hide_short_help = true)]
    pub proxy: Option<ProxyGiven>,

    /// https: accept any certificate
    #[arg(long, help_heading = "TLS", hide_short_help = true)]
    pub insecure: bool,
    /// https: trust the certificates in this PEM file instead of the system's
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "insecure",
        help_heading = "TLS",
        hide_short_help = true
    )]
    pub cacert: Option<PathBuf>,
    /// https: client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS", hide_short_help = true)]
    pub cert: Option<PathBuf>,
    /// https: key of the client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS", hide_short_help = true)]
    pub key: Option<PathBuf>,
    /// https: offer only this version
    #[arg(long, value_name = "VERSION", value_parser = ["1.2", "1.3"], help_heading = "TLS", hide_short_help = true)]
    pub tls_version: Option<String>,
    /// https: full handshake on every connection, no session resumption
    #[arg(long, help_heading = "TLS", hide_short_help = true)]
    pub no_resumption: bool,
}

impl RequestArgs {
    /// The first of these options that was given, for a command that takes none of them.
    pub fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.method.is_some(), "--method"),
            (!self.headers.is_empty(), "--header"),
            (self.body.is_some(), "--body"),
            (self.no_keep_alive, "--no-keep-alive"),
            (self.timeout.is_some(), "--timeout"),
            (self.http2, "--http2"),
            (self.proxy.is_some(), "--proxy"),
            (self.insecure, "--insecure"),
            (self.cacert.is_some(), "--cacert"),
            (self.cert.is_some(), "--cert"),
            (self.tls_version.is_some(), "--tls-version"),
            (self.no_resumption, "--no-resumption"),
        ];
        given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| *option)
    }

    /// The method as given, in capital letters if it is one that plans know; else POST if there is a body, GET if not.
    pub fn method(&self) -> String {
        let usual = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(usual);
        match METHODS.contains(&method.to_ascii_lowercase().as_str()) {
            true => method.to_ascii_uppercase(),
            false => method.to_owned(),
        }
    }

    /// Timeout of a request.
    pub fn timeout_ns(&self) -> u64 {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT_NS)
    }

    /// Requests at a time on an HTTP/2 connection.
    pub fn streams(&self) -> u32 {
        self.streams.unwrap_or(1)
    }
}
