//! One TCP segment, parsed from the header of its packet.
//!
//! The bytes are untrusted: anything that is not a complete header of TCP over IP is rejected.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// IP's protocol number.
const TCP: u8 = 6;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The contents of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The sender's address.
    pub from: SocketAddr,
    /// The receiver's address.
    pub to: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Bytes of data; more than fit on a wire if the kernel splits segments later (or has joined them earlier).
    pub data: u32,
    /// Whether it opens a connection.
    pub is_opening: bool,
    /// Whether its sender has nothing more to send.
    pub is_last: bool,
    /// Whether it resets the connection.
    pub is_reset: bool,
}

impl Segment {
    /// Parses a packet that begins with its IP header and is `length` bytes long, of which `head` is the beginning.
    pub fn of(head: &[u8], length: u32) -> Option<Segment> {
        let (from, to, tcp_at, ip_length) = match head.first()? >> 4 {
            4 => v4(head, length)?,
            6 => v6(head, length)?,
            _ => return None,
        };
        let tcp = head.get(tcp_at..)?;
        let head_length = usize::from(tcp.get(12)? >> 4) * 4;
        let flags = *tcp.get(13)?;
        if head_length < 20 {
            return None;
        }
        Some(Segment {
            from: SocketAddr::new(from, u16_be_at(tcp, 0)?),
            to: SocketAddr::new(to, u16_be_at(tcp, 2)?),
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            data: ip_length.checked_sub(u32::try_from(tcp_at + head_length).ok()?)?,
            is_opening: flags & (SYN | ACK) == SYN,
            is_last: flags & FIN != 0,
            is_reset: flags & RST != 0,
        })
    }
}

type IpHead = (IpAddr, IpAddr, usize, u32);

fn v4(head: &[u8], length: u32) -> Option<IpHead> {
    let at = usize::from(head.first()? & 15) * 4;
    let is_later_fragment = u16_be_at(head, 6)? & 0x1fff != 0;
    if at < 20 || *head.get(9)? != TCP || is_later_fragment {
        return None;
    }
    let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(head.get(at..at + 4)?).ok()?));
    // A short packet may be padded, so the length in the header counts. It is 0 for segments too long for the field,
    // which only the kernel itself passes on.
    let total = match u32::from(u16_be_at(head, 2)?) {
        0 => length,
        total => total,
    };
    Some((address(12)?, address(16)?, at, total))
}

fn v6(head: &[u8], length: u32) -> Option<IpHead> {
    const HEAD: u32 = 40;
    if *head.get(6)? != TCP {
        return None;
    }
    let address = |at: usize| {
        let bytes = <[u8; 16]>::try_from(head.get(at..at + 16)?).ok()?;
        Some(Ipv6Addr::from(bytes).to_canonical())
    };
    let total = match u32::from(u16_be_at(head, 4)?) {
        0 => length,
        after => HEAD + after,
    };
    Some((address(8)?, address(24)?, HEAD as usize, total))
}

fn u16_be_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Packets as they are on the wire.
#[cfg(test)]
pub(super) mod made {
    use std::net::Ipv4Addr;

    use super::*;

    /// A packet of this segment, with this many bytes of options in the IPv4 and TCP headers.
    pub fn packet(segment: Segment, ip_options: usize, tcp_options: usize) -> Vec<u8> {
        let (ip_options, tcp_options) = (ip_options.min(40) / 4 * 4, tcp_options.min(40) / 4 * 4);
        let tcp_length = 20 + tcp_options + segment.data as usize;
        let mut bytes = match (segment.from.ip(), segment.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => v4_head(from, to, ip_options, tcp_length),
            (IpAddr::V6(from), IpAddr::V6(to)) => v6_head(from, to, tcp_length),
            _ => panic!("both ends are of one family"),
        };
        bytes.extend(segment.from.port().to_be_bytes());
        bytes.extend(segment.to.port().to_be_bytes());
        bytes.extend(segment.sequence.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.push(((20 + tcp_options) as u8 / 4) << 4);
        let flag = |is: bool, bit: u8| if is { bit } else { 0 };
        let ack = flag(!segment.is_opening, ACK);
        let is = (segment.is_opening, segment.is_last, segment.is_reset);
        bytes.push(ack | flag(is.0, SYN) | flag(is.1, FIN) | flag(is.2, RST));
        bytes.extend(vec![0; 6 + tcp_options]);
        bytes.extend(vec![7; segment.data as usize]);
        bytes
    }

    fn v4_head(from: Ipv4Addr, to: Ipv4Addr, options: usize, tcp_length: usize) -> Vec<u8> {
        let mut bytes = vec![0x40 | ((20 + options) / 4) as u8, 0];
        bytes.extend(((20 + options + tcp_length) as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes.extend(vec![1; options]);
        bytes
    }

    fn v6_head(from: Ipv6Addr, to: Ipv6Addr, tcp_length: usize) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((tcp_length as u16).to_be_bytes());
        bytes.extend([TCP, 64]);
        bytes.extend(from.octets());
        bytes.extend(to.octets());
        bytes
    }

    /// A segment between two ends.
    pub fn segment(from: SocketAddr, to: SocketAddr, sequence: u32, data: u32) -> Segment {
        Segment { from, to, sequence, data, is_opening: false, is_last: false, is_reset: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn segments_of_both_families_are_read_whatever_options_they_have() {
        for (from, to) in [("10.0.0.1:4000", "10.0.0.2:80"), ("[fd00::1]:4000", "[fd00::2]:80")] {
            for (ip_options, tcp_options, data) in [(0, 0, 0), (8, 12, 5), (40, 40, 1400)] {
                let segment = made::segment(from.parse().unwrap(), to.parse().unwrap(), u32::MAX, data);
                let bytes = made::packet(segment, ip_options, tcp_options);
                // Only the beginning of a long packet is captured, and a short one is padded.
                let head = &bytes[..bytes.len().min(100)];
                assert_eq!(Segment::of(head, bytes.len() as u32 + 6), Some(segment));
            }
        }
    }

    #[test]
    fn segments_too_long_for_the_ip_head_have_the_length_of_the_packet() {
        for (from, to, at) in [("1.1.1.1:4", "1.1.1.2:80", 2), ("[fd00::1]:4", "[fd00::2]:80", 4)] {
            let segment = made::segment(from.parse().unwrap(), to.parse().unwrap(), 1, 10);
            let mut bytes = made::packet(segment, 0, 0);
            bytes[at..at + 2].fill(0);
            let length = bytes.len() as u32 - 10 + 200_000;
            assert_eq!(Segment::of(&bytes, length).map(|s| s.data), Some(200_000));
        }
    }

    #[test]
    fn what_is_no_whole_segment_is_none() {
        let segment = made::segment("1.1.1.1:4".parse().unwrap(), "1.1.1.2:80".parse().unwrap(), 1, 10);
        let good = made::packet(segment, 0, 0);
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            Segment::of(&bytes, bytes.len() as u32)
        };
        assert_eq!(Segment::of(&good, good.len() as u32), Some(segment));
        assert_eq!(changed(0, 0x55), None, "no version of IP");
        assert_eq!(changed(0, 0x44), None, "an IP head of 16 bytes");
        assert_eq!(changed(9, 17), None, "UDP");
        assert_eq!(changed(7, 1), None, "a later fragment");
        assert_eq!(changed(3, 20), None, "shorter than its heads");
        assert_eq!(changed(32, 0x40), None, "a TCP head of 16 bytes");
        assert_eq!(Segment::of(&good[..33], good.len() as u32), None, "cut off");
    }

    proptest! {
        #[test]
        fn no_packet_is_too_odd(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..160),
            version in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
            length in any::<u32>(),
        ) {
            let _ = Segment::of(&bytes, length);
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            for at in [6, 9] {
                if let Some(protocol) = bytes.get_mut(at) {
                    *protocol = TCP;
                }
            }
            let _ = Segment::of(&bytes, length);
        }

        #[test]
        fn a_good_packet_survives_no_change_as_a_panic(at in 0usize..60, to in any::<u8>(), cut in 0usize..60) {
            let ends = ("1.1.1.1:4".parse().unwrap(), "1.1.1.2:80".parse().unwrap());
            let mut bytes = made::packet(made::segment(ends.0, ends.1, 1, 10), 0, 0);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
            let length = bytes.len() as u32;
            bytes.truncate(cut);
            if let Some(segment) = Segment::of(&bytes, length) {
                prop_assert!(segment.data <= 0xffff);
            }
        }
    }
}
