//! Network devices whose other end is a file: reading it yields what the kernel sends, and writing to it delivers
//! packets to the kernel.
//!
//! A header before each packet carries what a network card would be asked to do (checksums, segmentation), so that
//! packets as large as on a link within the kernel can pass. A device is gone when its file is closed.

#![expect(unsafe_code, reason = "ioctls of a network device, which no safe wrapper has")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `TUNSETIFF` and `TUNSETOFFLOAD` of linux/if_tun.h.
const SET_NAME: libc::Ioctl = 0x4004_54ca;
const SET_OFFLOAD: libc::Ioctl = 0x4004_54d0;
/// Ethernet frames, without the device's own header but with a virtual network card's.
const TAP: u16 = 0x0002;
const NO_HEADER: u16 = 0x1000;
const CARD_HEADER: u16 = 0x4000;
/// Offloads a card may be asked for: checksums; segmentation of TCP over IPv4 and IPv6.
const CHECKSUMS: libc::c_ulong = 0x01;
const LARGE: libc::c_ulong = 0x02 | 0x04;

/// `struct ifreq`, as far as it is used here.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a device in this thread's network namespace. It is down at first.
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    let mut request = Request { name: [0; 16], flags: TAP | NO_HEADER | CARD_HEADER, rest: [0; 22] };
    let bytes = name.as_bytes();
    // One byte less: the kernel requires a terminating zero.
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

/// Lets several packets arrive as one large one, or each separately as on a wire, so that a loss is one packet.
pub(crate) fn set_large(device: &OwnedFd, is_large: bool) -> io::Result<()> {
    let flags = if is_large { CHECKSUMS | LARGE } else { CHECKSUMS };
    // SAFETY: this request takes a number and touches no memory.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), SET_OFFLOAD, flags) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
