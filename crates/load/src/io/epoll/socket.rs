//! Creates, connects and watches the sockets of the epoll backend.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

/// Registers a socket, so that its events are reported from now on.
pub(super) fn watch(epoll: &OwnedFd, socket: &OwnedFd, key: u64) -> Result<(), Errno> {
    let interest =
        epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::add(epoll, socket.as_fd(), epoll::EventData::new_u64(key), interest)
}

/// Creates a socket for an address, bound to its source address.
pub(super) fn make_inet(address: &SocketAddr, source: Option<IpAddr>) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(source) = source {
        bind_source(&socket, source)?;
    }
    Ok(socket)
}

/// Starts to connect; success or failure is reported later.
pub(super) fn connect_inet(socket: &OwnedFd, address: &SocketAddr) -> Result<(), Errno> {
    match net::connect(socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Binds to an address and leaves the port to `connect`, which then only needs one that is free for this peer (ip(7),
/// IP_BIND_ADDRESS_NO_PORT).
fn bind_source(socket: &OwnedFd, source: IpAddr) -> Result<(), Errno> {
    let one: libc::c_int = 1;
    // SAFETY: the option takes an int, whose address and size are given.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::addr_of!(one).cast(),
            std::mem::size_of_val(&one) as libc::socklen_t,
        );
    }
    net::bind(socket, &SocketAddr::new(source, 0))
}
