//! Memory that the kernel reads and writes asynchronously: receive buffers and addresses.

use std::net::SocketAddr;

use io_uring::types::BufRingEntry;

use crate::target::Address;

/// Fewest and most receive buffers per ring. If more responses arrive in one turn, the others are received in later
/// turns.
const BUFFERS: (usize, usize) = (64, 512);
/// Receive buffers of all rings together, except for the fewest of each: very many connections need many rings, but
/// their responses do not arrive all at once.
const BUFFERS_OF_RINGS: usize = 1024;
/// Bytes per receive buffer: with many buffers, with few, and with several rings. The kernel uses buffers from the
/// start: with short responses only a page or two of each is ever touched.
const BUFFER: usize = 16 * 1024;
const LARGE_BUFFER: usize = 32 * 1024;
const SMALL_BUFFER: usize = 2048;
/// Gap between the end of one buffer and the beginning of the next. Most responses are short: without the gap all of
/// them would begin at the same offset of their page, and share a few sets of each cache.
const APART: usize = 5 * 64;

/// Receive buffers, handed to the kernel in their own ring.
pub struct Buffers {
    pub entries: *mut BufRingEntry,
    memory: *mut u8,
    pub count: u16,
    size: usize,
    stride: usize,
    tail: u16,
}

/// A socket address in the kernel's layout, at a fixed address for the life of the ring.
pub struct RawAddress {
    pub storage: libc::sockaddr_storage,
    pub length: libc::socklen_t,
}

impl Buffers {
    /// For one of `rings` rings: as many buffers as responses may arrive in one turn, within bounds.
    pub fn new(in_flight: usize, rings: usize) -> std::io::Result<Self> {
        let (least, most) = BUFFERS;
        let share = 1 << (BUFFERS_OF_RINGS / rings).max(1).ilog2();
        let count = in_flight.next_power_of_two().min(share).clamp(least, most);
        let size = match (rings, count == least) {
            (2.., _) => SMALL_BUFFER,
            (_, true) => LARGE_BUFFER,
            (_, false) => BUFFER,
        };
        let map = |length: usize| {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
            // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing of ours.
            unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    length,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
            }
        };
        let entries = map(count * std::mem::size_of::<BufRingEntry>())?.cast();
        let stride = size + APART;
        let memory = map(count * stride)?.cast();
        let mut buffers = Buffers { entries, memory, count: count as u16, size, stride, tail: 0 };
        (0..count as u16).for_each(|id| buffers.give_back(id));
        buffers.publish();
        Ok(buffers)
    }

    /// The bytes that the kernel wrote into a buffer.
    ///
    /// # Safety
    /// The kernel has handed over this buffer with `length` bytes in it. They must not be read after the buffer was
    /// given back, nor after `self` has been dropped: the caller chooses the lifetime, which bounds neither.
    pub unsafe fn bytes<'a>(&self, id: u16, length: usize) -> &'a [u8] {
        // SAFETY: the buffer lies within our mapping, and the kernel does not write to it before it is given back.
        unsafe {
            std::slice::from_raw_parts(self.memory.add(id as usize * self.stride), length.min(self.size))
        }
    }

    /// Gives a buffer back with the next [`publish`](Self::publish).
    pub fn give_back(&mut self, id: u16) {
        // SAFETY: the index is below `count`, a power of two; the entry after the published tail is ours.
        unsafe {
            let entry = &mut *self.entries.add((self.tail & (self.count - 1)) as usize);
            entry.set_addr(self.memory.add(id as usize * self.stride) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes the returned buffers visible to the kernel.
    pub fn publish(&self) {
        // SAFETY: the tail lies in the first entry's reserved field, which only this side writes; the release
        // makes the entries visible before it.
        unsafe {
            let tail = BufRingEntry::tail(self.entries).cast_mut();
            std::sync::atomic::AtomicU16::from_ptr(tail)
                .store(self.tail, std::sync::atomic::Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: both were mapped with these lengths in `new`, and the ring that used them is gone.
        unsafe {
            let entries = self.count as usize * std::mem::size_of::<BufRingEntry>();
            let _ = rustix::mm::munmap(self.entries.cast(), entries);
            let _ = rustix::mm::munmap(self.memory.cast(), self.count as usize * self.stride);
        }
    }
}

impl RawAddress {
    /// Address family of the socket.
    pub fn family(address: &Address) -> libc::c_int {
        match address {
            Address::Unix(_) => libc::AF_UNIX,
            Address::Inet(SocketAddr::V4(_)) => libc::AF_INET,
            Address::Inet(SocketAddr::V6(_)) => libc::AF_INET6,
        }
    }

    pub fn of(address: &Address) -> Self {
        // SAFETY: an all-zero sockaddr_storage is valid, and it has room and alignment for all kinds.
        unsafe {
            let mut storage: libc::sockaddr_storage = std::mem::zeroed();
            let length = match address {
                Address::Unix(path) => {
                    let raw = &mut *std::ptr::addr_of_mut!(storage).cast::<libc::sockaddr_un>();
                    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
                    // A zero byte follows: a longer path was refused when the URL was read.
                    let room = raw.sun_path.len() - 1;
                    for (to, from) in raw.sun_path[..room].iter_mut().zip(path.bytes()) {
                        *to = from as libc::c_char;
                    }
                    std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len().min(room) + 1
                }
                Address::Inet(SocketAddr::V4(v4)) => {
                    let raw = &mut *std::ptr::addr_of_mut!(storage).cast::<libc::sockaddr_in>();
                    raw.sin_family = libc::AF_INET as libc::sa_family_t;
                    raw.sin_port = v4.port().to_be();
                    raw.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
                    std::mem::size_of::<libc::sockaddr_in>()
                }
                Address::Inet(SocketAddr::V6(v6)) => {
                    let raw = &mut *std::ptr::addr_of_mut!(storage).cast::<libc::sockaddr_in6>();
                    raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                    raw.sin6_port = v6.port().to_be();
                    raw.sin6_flowinfo = v6.flowinfo();
                    raw.sin6_addr.s6_addr = v6.ip().octets();
                    raw.sin6_scope_id = v6.scope_id();
                    std::mem::size_of::<libc::sockaddr_in6>()
                }
            };
            RawAddress { storage, length: length as libc::socklen_t }
        }
    }
}
