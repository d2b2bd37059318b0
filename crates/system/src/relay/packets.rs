//! The packet relay, between the two halves of a component's link.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::pace::{Fifo, Pace};
use super::{Control, ControlMessage, LinkShape, RelayCounts, RelayReport};
use crate::clock;
use crate::netns::tap;

/// The largest frame, with its header.
const FRAME_BYTES: usize = 65_536 + 128;
/// How many packets are read from one side before it is the other side's turn.
const TURN: usize = 64;
/// How many bytes are queued per direction: a gigabyte per second for a fifteenth of a second. Further packets wait in
/// the kernel, and what does not fit there is lost, as on any link that is too slow.
const MOST_BYTES: usize = 64 << 20;

/// One direction of the link.
#[derive(Default)]
struct Direction {
    order: Fifo,
    queue: VecDeque<(u64, Box<[u8]>)>,
    bytes: usize,
}

/// Relays until the control connection is closed.
pub(super) fn run(links: [OwnedFd; 2], shape: LinkShape, mut control: Control) -> io::Result<()> {
    let mut pace = Pace::new(shape);
    let mut counts = RelayCounts::default();
    let mut ways = [Direction::default(), Direction::default()];
    let mut frame = vec![0; FRAME_BYTES];
    let behave = |shape: LinkShape| links.iter().try_for_each(|l| tap::set_large(l, shape.loss == 0.0));
    behave(shape)?;
    control.report(&RelayReport { shape, counts });
    loop {
        for (i, way) in ways.iter_mut().enumerate() {
            read(&links[i], way, &mut pace, &mut counts, &mut frame)?;
            write(&links[1 - i], way, &mut counts)?;
        }
        let wakes = wait(&links, &ways, &control)?;
        if wakes {
            match control.look() {
                ControlMessage::None => {}
                ControlMessage::Closed => return Ok(()),
                ControlMessage::Shape(shape) => {
                    behave(shape)?;
                    pace.shape = shape;
                    control.report(&RelayReport { shape, counts });
                }
            }
        }
    }
}

fn read(
    link: &OwnedFd,
    way: &mut Direction,
    pace: &mut Pace,
    counts: &mut RelayCounts,
    frame: &mut [u8],
) -> io::Result<()> {
    for _ in 0..TURN {
        if way.bytes >= MOST_BYTES {
            break;
        }
        let bytes = match rustix::io::read(link, &mut *frame) {
            Ok(n) => n,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
            // The device is down: nothing arrives, and it may come up again.
            Err(rustix::io::Errno::IO | rustix::io::Errno::BADFD) => break,
            Err(error) => return Err(error.into()),
        };
        if pace.loses() {
            counts.lost += 1;
            continue;
        }
        let due_ns = pace.due(&mut way.order, clock::now_ns());
        way.bytes += bytes;
        way.queue.push_back((due_ns, frame[..bytes].into()));
    }
    Ok(())
}

fn write(link: &OwnedFd, way: &mut Direction, counts: &mut RelayCounts) -> io::Result<()> {
    while let Some((due_ns, _)) = way.queue.front() {
        let (due_ns, now_ns) = (*due_ns, clock::now_ns());
        if due_ns > now_ns {
            break;
        }
        let Some((_, frame)) = way.queue.pop_front() else { break };
        way.bytes -= frame.len();
        match rustix::io::write(link, &frame) {
            Ok(_) => counts.went_on(due_ns, now_ns),
            // The device is down, or the kernel has no memory for the packet.
            Err(_) => counts.dropped += 1,
        }
    }
    Ok(())
}

/// Waits until something arrives or is due; true if a control message has arrived.
fn wait(links: &[OwnedFd; 2], ways: &[Direction; 2], control: &Control) -> io::Result<bool> {
    let due_ns = ways.iter().filter_map(|w| w.queue.front()).map(|(due_ns, _)| *due_ns).min();
    let timeout = due_ns.map(|due_ns| {
        let ns = due_ns.saturating_sub(clock::now_ns());
        Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
    });
    let wanted = |way: &Direction| if way.bytes < MOST_BYTES { PollFlags::IN } else { PollFlags::empty() };
    let mut files = [
        PollFd::from_borrowed_fd(links[0].as_fd(), wanted(&ways[0])),
        PollFd::from_borrowed_fd(links[1].as_fd(), wanted(&ways[1])),
        PollFd::from_borrowed_fd(control.stream.as_fd(), PollFlags::IN),
    ];
    match poll(&mut files, timeout.as_ref()) {
        Ok(_) => Ok(!files[2].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
