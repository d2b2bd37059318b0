//! Network devices whose other end is a file: what the kernel sends can be read there, and what is written there
//! arrives.
//!
//! A header before each packet carries what a card would be asked to do – checksums, segmentation – so that as much
//! goes over them at once as over a link within the kernel. A device is gone when its file is closed.

#![expect(unsafe_code, reason = "ioctls of a network device, which no safe wrapper has")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `TUNSETIFF` and `TUNSETOFFLOAD` of linux/if_tun.h.
const SET_NAME: libc::Ioctl = 0x4004_54ca;
const SET_OFFLOAD: libc::Ioctl = 0x4004_54d0;
/// Ethernet frames, without a header of the device's own but with that of a card.
const TAP: u16 = 0x0002;
const NO_HEADER: u16 = 0x1000;
const CARD_HEADER: u16 = 0x4000;
/// What a card may be asked for: checksums; segmentation of TCP over IPv4 and IPv6.
const CHECKSUMS: libc::c_ulong = 0x01;
const LARGE: libc::c_ulong = 0x02 | 0x04;

/// `struct ifreq`, as far as it is used.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a device in the network namespace of this thread. It is down.
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: TAP | NO_HEADER | CARD_HEADER, rest: [0; 22] };
    let bytes = name.as_bytes();
    // One byte less: the kernel wants a terminating zero.
    let place = request.name[..15].get_mut(..bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(bytes);
    // SAFETY: the request is as long as `struct ifreq`, lives through the call, and its name ends with a zero.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), SET_NAME, &mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(file.into())
}

/// Lets many packets come at once, or each separately, as on a wire: a loss is then one packet.
pub(crate) fn set_large(device: &OwnedFd, is_large: bool) -> io::Result<()> {
    let flags = if is_large { CHECKSUMS | LARGE } else { CHECKSUMS };
    // SAFETY: this request takes a number and touches no memory.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), SET_OFFLOAD, flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
