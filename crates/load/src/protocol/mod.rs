//! The protocols spoken over connections: bytes in, events and bytes out. Nothing here knows about sockets, clocks or
//! loads.

pub mod connect;
pub mod http1;
pub mod http2;
pub mod redirect_headers;
pub mod tls;
pub mod websocket;
