//! A packet socket (`AF_PACKET`) that captures the headers of some connections' packets, for the length of a burst.
//!
//! The kernel copies headers into a ring of fixed size: nothing is woken, no packet is held back, and when the ring is
//! full the burst is over. Its filter costs the senders time, so it is short, and removed with the socket. The socket
//! is closed after each burst: even a filter that rejects everything would still run for every packet.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes kept of each packet: the longest IP header and the fixed part of the TCP header.
const CAPTURED_BYTES: u32 = 80;
/// Size of a frame in the ring: the kernel's own 80 bytes about a packet, and the packet's header.
const FRAME: usize = 256;
/// Packets that the ring holds: the maximum of a burst.
pub(super) const MOST_PACKETS: usize = 2_048;
const RING: usize = FRAME * MOST_PACKETS;
const BLOCK: usize = 64 << 10;
/// `TPACKET_V2`: fixed frames, nanoseconds.
const VERSION: u32 = 1;
/// The loopback device has this index in every namespace.
const LOOPBACK: i32 = 1;
/// Maximum number of ports: jumps in a filter reach 255 instructions.
pub(super) const MOST_PORTS: usize = 8;

/// A sample of the connections to a port, drawn by the other end's port: this works for both directions and for
/// connections that do not exist yet, and the kernel's filter has the same length however many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortSample {
    /// The port the server listens on.
    pub port: u16,
    /// A random odd factor, and a random offset.
    pub factor: u32,
    pub offset: u32,
    /// A power of two minus one; one connection in that power of two is drawn.
    pub mask: u32,
}

impl PortSample {
    /// Whether the connection from that port is in the sample.
    pub fn has(self, port: u16) -> bool {
        u32::from(port).wrapping_mul(self.factor).wrapping_add(self.offset) >> 16 & self.mask == 0
    }
}

/// The instructions of the kernel's filters (`linux/bpf_common.h`) that are used.
mod op {
    pub const LOAD_BYTE: u16 = 0x30;
    pub const LOAD_HALF: u16 = 0x28;
    pub const LOAD_HALF_BEHIND_X: u16 = 0x48;
    pub const X_IS: u16 = 0x01;
    pub const X_IS_V4_HEAD: u16 = 0xb1;
    pub const ADD: u16 = 0x04;
    pub const MULTIPLY: u16 = 0x24;
    pub const AND: u16 = 0x54;
    pub const SHIFT_RIGHT: u16 = 0x74;
    pub const JUMP: u16 = 0x05;
    pub const IF_EQUAL: u16 = 0x15;
    pub const IF_ANY_BIT: u16 = 0x45;
    pub const RETURN: u16 = 0x06;
}

/// A filter program, one instruction after another.
#[derive(Default)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn then(&mut self, code: u16, k: u32) {
        self.0.push(libc::sock_filter { code, jt: 0, jf: 0, k });
    }

    /// Jumps to the given instruction (always forward), or continues with the next one for `None`.
    fn when(&mut self, code: u16, k: u32, if_so: Option<usize>, if_not: Option<usize>) {
        let next = self.0.len() + 1;
        let jump = |to: Option<usize>| to.map_or(0, |to| to.saturating_sub(next) as u8);
        self.0.push(libc::sock_filter { code, jt: jump(if_so), jf: jump(if_not), k });
    }
}

/// Accepts TCP headers of sampled connections, over IPv4 or IPv6. It is given packets from their IP header on.
fn filter(samples: &[PortSample]) -> Vec<libc::sock_filter> {
    const COMMON: usize = 14;
    const EACH: usize = 10;
    /// Offsets in the TCP header.
    const SENDER: u32 = 0;
    const RECEIVER: u32 = 2;
    let samples = samples.get(..MOST_PORTS).unwrap_or(samples);
    // Placed after the two lists of comparisons: of the receiver's port and of the sender's.
    let none = COMMON + 2 * samples.len() + 1;
    let case = |i: usize| none + 1 + EACH * i;
    let mut program = Program::default();
    program.then(op::LOAD_BYTE, 0);
    program.then(op::SHIFT_RIGHT, 4);
    program.when(op::IF_EQUAL, 4, None, Some(9));
    program.then(op::LOAD_BYTE, 9);
    program.when(op::IF_EQUAL, libc::IPPROTO_TCP as u32, None, Some(none));
    program.then(op::LOAD_HALF, 6);
    program.when(op::IF_ANY_BIT, 0x1fff, Some(none), None);
    program.then(op::X_IS_V4_HEAD, 0);
    program.then(op::JUMP, 4);
    program.when(op::IF_EQUAL, 6, None, Some(none));
    program.then(op::LOAD_BYTE, 6);
    program.when(op::IF_EQUAL, libc::IPPROTO_TCP as u32, None, Some(none));
    program.then(op::X_IS, 40);
    program.then(op::LOAD_HALF_BEHIND_X, RECEIVER);
    for (i, sample) in samples.iter().enumerate() {
        program.when(op::IF_EQUAL, sample.port.into(), Some(case(i)), None);
    }
    program.then(op::LOAD_HALF_BEHIND_X, SENDER);
    for (i, sample) in samples.iter().enumerate() {
        program.when(op::IF_EQUAL, sample.port.into(), Some(case(i) + 2), None);
    }
    program.then(op::RETURN, 0);
    for sample in samples {
        // To the port: the sender's port decides. From it: the receiver's.
        program.then(op::LOAD_HALF_BEHIND_X, SENDER);
        program.then(op::JUMP, 1);
        program.then(op::LOAD_HALF_BEHIND_X, RECEIVER);
        program.then(op::MULTIPLY, sample.factor);
        program.then(op::ADD, sample.offset);
        program.then(op::SHIFT_RIGHT, 16);
        program.then(op::AND, sample.mask);
        let behind = program.0.len() + 2;
        program.when(op::IF_EQUAL, 0, None, Some(behind));
        program.then(op::RETURN, CAPTURED_BYTES);
        program.then(op::RETURN, 0);
    }
    program.0
}

/// A packet socket with its ring. It captures nothing before [`start`](PacketSocket::start), and ends when dropped.
#[derive(Debug)]
pub(super) struct PacketSocket {
    // Declared before the descriptor: the kernel keeps the ring for as long as it is mapped.
    ring: Ring,
    socket: OwnedFd,
}

impl PacketSocket {
    /// Opens a packet socket in this thread's namespace, without a ring.
    ///
    /// # Errors
    /// Not permitted (`CAP_NET_RAW`), or the kernel has no packet sockets.
    #[expect(unsafe_code, reason = "packet sockets have no other way in")]
    pub fn here() -> io::Result<OwnedFd> {
        // SAFETY: socket(2) takes numbers, and what it returns is ours alone. Protocol 0 receives nothing yet.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just opened and is owned by nothing else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Captures packets of these connections from now on; `is_loopback` means that all of them are on the loopback
    /// device.
    ///
    /// # Errors
    /// The kernel cannot do it, or has no memory for it.
    pub fn start(socket: OwnedFd, samples: &[PortSample], is_loopback: bool) -> io::Result<PacketSocket> {
        attach(&socket, samples)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &VERSION)?;
        if is_loopback {
            // Each loopback packet goes out and comes in. Kernels before 4.20 show both: the second adds nothing new.
            let _ = set(&socket, libc::SOL_PACKET, IGNORE_OUTGOING, &1u32);
        }
        // `struct tpacket_req`: bytes of a block, blocks, bytes of a frame, frames.
        let request = [BLOCK as u32, (RING / BLOCK) as u32, FRAME as u32, MOST_PACKETS as u32];
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let ring = Ring::of(&socket)?;
        bind(&socket, if is_loopback { LOOPBACK } else { 0 })?;
        Ok(PacketSocket { ring, socket })
    }

    /// Calls back with the ring's contents: when each packet arrived (the kernel's wall clock, nanoseconds), its
    /// header, and its length in bytes. Returns whether packets were dropped because the ring was full.
    pub fn read(&self, mut each: impl FnMut(u64, &[u8], u32)) -> bool {
        for number in 0..MOST_PACKETS {
            let Some(frame) = self.ring.frame(number) else { break };
            if let Some(Packet { at_ns, head, length }) = Packet::of(frame) {
                each(at_ns, head, length);
            }
        }
        self.dropped() > 0
    }

    #[expect(unsafe_code, reason = "the kernel's counts of a packet socket")]
    fn dropped(&self) -> u32 {
        // `struct tpacket_stats`: packets, and how many of them were dropped.
        let mut counts = [0u32; 2];
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: the kernel writes no more than that length.
        let got = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if got == 0 { counts[1] } else { 0 }
    }
}

/// `PACKET_IGNORE_OUTGOING`.
const IGNORE_OUTGOING: i32 = 23;

fn attach(socket: &OwnedFd, samples: &[PortSample]) -> io::Result<()> {
    let mut code = filter(samples);
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

#[expect(unsafe_code, reason = "options of packet sockets have no other way in")]
fn set<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is as long as stated, and plain numbers, except a filter's pointer to instructions that
    // outlive the call.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds the socket to a device, or to all devices of its namespace.
#[expect(unsafe_code, reason = "an address of packet sockets")]
fn bind(socket: &OwnedFd, device: i32) -> io::Result<()> {
    // SAFETY: a struct of plain numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = device;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is as long as stated.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) };
    if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The ring shared with the kernel, mapped.
#[derive(Debug)]
struct Ring(*const u8);

// SAFETY: the mapping is this value's alone, and is read the same from any thread.
#[expect(unsafe_code, reason = "a mapping that its owner takes along")]
unsafe impl Send for Ring {}

impl Ring {
    #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
    fn of(socket: &OwnedFd) -> io::Result<Ring> {
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), RING, ProtFlags::READ, MapFlags::SHARED, socket, 0)
        }?;
        Ok(Ring(at.cast_const().cast()))
    }

    /// A frame filled by the kernel, if it is; the kernel fills frames in order, each once, since none is given back.
    #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
    fn frame(&self, number: usize) -> Option<&[u8]> {
        const IS_FILLED: u32 = 1;
        if number >= MOST_PACKETS {
            return None;
        }
        // SAFETY: within the mapping, and a frame begins with its state, aligned, which the kernel changes as a whole.
        let state = unsafe { AtomicU32::from_ptr(self.0.add(number * FRAME).cast_mut().cast()) };
        if state.load(Ordering::Acquire) & IS_FILLED == 0 {
            return None;
        }
        // SAFETY: within the mapping; the kernel leaves a filled frame alone until it is given back.
        Some(unsafe { std::slice::from_raw_parts(self.0.add(number * FRAME), FRAME) })
    }
}

impl Drop for Ring {
    #[expect(unsafe_code, reason = "the ring is shared with the kernel")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no frame outlives it.
        let _ = unsafe { rustix::mm::munmap(self.0.cast_mut().cast(), RING) };
    }
}

/// A packet of the ring.
struct Packet<'f> {
    at_ns: u64,
    /// Its beginning.
    head: &'f [u8],
    /// Its length in bytes, including what was not kept.
    length: u32,
}

impl<'f> Packet<'f> {
    /// Parses a frame (`struct tpacket2_hdr`).
    fn of(frame: &'f [u8]) -> Option<Packet<'f>> {
        let word = |at: usize| Some(u32::from_ne_bytes(frame.get(at..at + 4)?.try_into().ok()?));
        let begin = usize::from(u16::from_ne_bytes(frame.get(12..14)?.try_into().ok()?));
        let kept = word(8)? as usize;
        let at_ns = u64::from(word(16)?) * 1_000_000_000 + u64::from(word(20)?);
        Some(Packet { at_ns, head: frame.get(begin..begin.checked_add(kept)?)?, length: word(4)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::{Segment, made};
    use super::*;
    use proptest::prelude::*;

    /// Runs a filter as the kernel does: returns how much of the packet is kept.
    fn run(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        let load = |at: usize, length: usize| -> Option<u32> {
            let bytes = packet.get(at..at + length)?;
            Some(bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
        };
        loop {
            let step = program[at];
            let k = step.k;
            let mut jump = 0;
            let loaded = match step.code {
                op::LOAD_BYTE => load(k as usize, 1),
                op::LOAD_HALF => load(k as usize, 2),
                op::LOAD_HALF_BEHIND_X => load((x + k) as usize, 2),
                op::X_IS_V4_HEAD => load(k as usize, 1).inspect(|byte| x = (byte & 15) * 4).map(|_| a),
                _ => Some(a),
            };
            // A packet that is too short ends the program.
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match step.code {
                op::X_IS => x = k,
                op::ADD => a = a.wrapping_add(k),
                op::MULTIPLY => a = a.wrapping_mul(k),
                op::AND => a &= k,
                op::SHIFT_RIGHT => a >>= k,
                op::JUMP => jump = k as usize,
                op::IF_EQUAL => jump = usize::from(if a == k { step.jt } else { step.jf }),
                op::IF_ANY_BIT => jump = usize::from(if a & k != 0 { step.jt } else { step.jf }),
                op::RETURN => return k,
                _ => {}
            }
            at += 1 + jump;
        }
    }

    fn samples(number: usize, mask: u32) -> Vec<PortSample> {
        let of =
            |i: usize| PortSample { port: 80 + i as u16, factor: 0x9E37_79B1, offset: i as u32 * 7, mask };
        (0..number).map(of).collect()
    }

    fn passes(samples: &[PortSample], packet: &[u8]) -> bool {
        run(&filter(samples), packet) > 0
    }

    #[test]
    fn the_filter_knows_both_directions_of_both_families() {
        let all = samples(MOST_PORTS, 0);
        for (client, to) in [("10.0.0.1:4000", "10.0.0.2"), ("[fd00::1]:4000", "[fd00::2]")] {
            for port in [79, 80, 81, 87, 88] {
                let ends = (client.parse().unwrap(), format!("{to}:{port}").parse().unwrap());
                for (from, to) in [ends, (ends.1, ends.0)] {
                    let packet = made::packet(made::segment(from, to, 1, 5), 8, 12);
                    assert_eq!(passes(&all, &packet), (80..88).contains(&port), "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn the_kernel_takes_the_filter() {
        for number in 0..=MOST_PORTS {
            // The kernel checks filters alike for all sockets, and this one needs no privileges.
            let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
            attach(&socket, &samples(number, 3)).unwrap();
        }
    }

    #[test]
    fn of_many_ports_a_part_is_drawn() {
        let sample = samples(1, 15)[0];
        // Ephemeral ports are handed out in steps of two, all even or all odd.
        let drawn = (32_768..60_000).step_by(2).filter(|port| sample.has(*port)).count();
        assert!((700..1_000).contains(&drawn), "{drawn} of 13,616");
    }

    proptest! {
        #[test]
        fn the_filter_and_the_sample_agree(
            client in any::<u16>(), port in 78u16..90, number in 0..=MOST_PORTS,
            mask in prop_oneof![Just(0u32), Just(1), Just(7)], is_back in any::<bool>(), is_v6 in any::<bool>(),
        ) {
            let all = samples(number, mask);
            let ip = |n: u8| if is_v6 { format!("[fd00::{n}]") } else { format!("10.0.0.{n}") };
            let ends = (format!("{}:{client}", ip(1)).parse().unwrap(), format!("{}:{port}", ip(2)).parse().unwrap());
            let (from, to) = if is_back { (ends.1, ends.0) } else { ends };
            let packet = made::packet(made::segment(from, to, 1, 5), 0, 0);
            let is_one = |port: u16, other: u16| all.iter().find(|s| s.port == port).map(|s| s.has(other));
            // The receiver's port is checked first for a port of the sample.
            let expect = is_one(to.port(), from.port()).or_else(|| is_one(from.port(), to.port()));
            prop_assert_eq!(passes(&all, &packet), expect.unwrap_or(false));
        }

        #[test]
        fn what_passes_is_a_segment(mut bytes in proptest::collection::vec(any::<u8>(), 60..100), is_v6 in any::<bool>()) {
            bytes[0] = if is_v6 { 0x60 } else { 0x45 };
            bytes[if is_v6 { 6 } else { 9 }] = 6;
            let at = if is_v6 { 40 } else { 20 };
            bytes[at..at + 2].copy_from_slice(&80u16.to_be_bytes());
            if let Some(segment) = Segment::of(&bytes, 1 << 20) {
                prop_assert!(passes(&samples(1, 0), &bytes), "{segment:?}");
            }
        }

        #[test]
        fn no_frame_is_too_odd(frame in proptest::collection::vec(any::<u8>(), 0..FRAME)) {
            if let Some(packet) = Packet::of(&frame) {
                prop_assert!(packet.head.len() <= FRAME);
            }
        }
    }
}
