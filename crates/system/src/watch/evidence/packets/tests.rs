//! Bursts over real connections: idle ones, ones that take turns, ones in other namespaces, and without permission to
//! capture.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::EvidenceReader;
use super::super::rhythm::Waits;
use super::super::sockets::{SocketTable, Subset};
use super::*;
use crate::cancel::Cancel;

/// Far beyond what a working test needs: only a failing test takes this long.
const PATIENCE_NS: u64 = 60_000_000_000;

type Ends = (TcpStream, TcpStream);

/// Prints why a test cannot run here; fails where no test may be skipped.
#[track_caller]
fn skip(why: &str) {
    const NOTHING: &str = "LOADLAB_LEAVE_NO_TEST_OUT";
    assert!(std::env::var_os(NOTHING).is_none(), "left out, which {NOTHING} forbids: {why}");
    eprintln!("skipped: {why}");
}

fn pass(ns: u64) {
    assert!(!Cancel::new().wait_until(clock::now_ns() + ns));
}

/// Whether packets can be read here; prints the reason if not.
fn can_read() -> bool {
    let can = PacketSocket::here();
    if let Err(error) = &can {
        skip(&format!("packets cannot be read here: {error}"));
    }
    can.is_ok()
}

fn connections(number: usize) -> Vec<Ends> {
    listened(number).1
}

/// A number of connections, and the listener that accepted them.
fn listened(number: usize) -> (TcpListener, Vec<Ends>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let one = || (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
    let ends = (0..number).map(|_| one()).collect();
    (listener, ends)
}

/// One request and its answer. Returns how long the client waited.
fn exchange((client, other): &mut Ends, answer: &[&[u8]]) -> u64 {
    let begin_ns = clock::now_ns();
    client.write_all(b"question").unwrap();
    other.read_exact(&mut [0; 8]).unwrap();
    answer.iter().for_each(|part| other.write_all(part).unwrap());
    let length = answer.iter().map(|part| part.len()).sum();
    client.read_exact(&mut vec![0; length]).unwrap();
    clock::now_ns() - begin_ns
}

/// A namespace as the bursts see it: its socket table, with all connections to an address taken as ties.
struct Ties {
    timer: PacketTimer,
    table: SocketTable,
    namespace: u64,
    members: Vec<Members>,
    listener: SocketAddr,
}

impl Ties {
    fn here(listener: SocketAddr) -> Ties {
        Ties::of(std::process::id(), SocketTable::here().unwrap(), listener)
    }

    fn of(pid: u32, table: SocketTable, listener: SocketAddr) -> Ties {
        let path = match pid == std::process::id() {
            true => "/proc/thread-self/ns/net".to_owned(),
            false => format!("/proc/{pid}/ns/net"),
        };
        let namespace = fs::metadata(path).unwrap().ino();
        let members = vec![Members { component: "web".into(), pids: vec![pid] }];
        Ties { timer: PacketTimer::default(), table, namespace, members, listener }
    }

    fn see(&mut self) -> Option<u64> {
        let mut sockets = Vec::new();
        self.table.read(&mut Subset::default(), &mut sockets).unwrap();
        let noted = sockets.iter().filter(|s| !s.is_listener && s.remote == self.listener).map(|s| Noted {
            pair: pair(),
            client: s.local,
            listener: s.remote,
            inode: s.inode,
            waits: Waits::Unknown,
            since_sent_ms: s.times.since_sent_ms,
        });
        let noted = noted.collect();
        let parts = [NamespacePart { namespace: self.namespace, end: sockets.len() }];
        self.timer.see(clock::now_ns(), noted, &sockets, &parts, 1)
    }

    /// Runs bursts until this many answers were seen to begin.
    fn timed(&mut self, exchanges: u64) -> Timed {
        let begin_ns = clock::now_ns();
        while self.timer.sums.get(&pair()).is_none_or(|sums| sums.exchanges < exchanges) {
            assert!(clock::now_ns() - begin_ns < PATIENCE_NS, "{:?}", self.timer);
            // Make a burst due at once.
            self.timer.due_ns = 1;
            assert_eq!(self.see(), None);
            self.timer.begin(&self.members);
            let burst_ns = self.see().unwrap_or_else(|| panic!("no burst: {:?}", self.timer));
            pass(burst_ns);
            assert!(self.timer.end());
        }
        let mut pairs = [Pair { from: "web".into(), to: "store".into(), ..Pair::default() }];
        self.timer.fill(&mut pairs);
        pairs[0].timed.unwrap()
    }
}

fn pair() -> PairKey {
    PairKey { from: "web".into(), to: "store".into(), address: String::new() }
}

/// Runs `run` in parallel until `until` has returned.
fn beside<T: Send, U>(run: impl FnOnce(&AtomicBool) -> T + Send, until: impl FnOnce() -> U) -> (T, U) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&is_over));
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(until));
        is_over.store(true, Ordering::Relaxed);
        let ran = running.join().unwrap();
        (ran, ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Runs exchanges now and then, each on the next of these connections. Returns the share of time in which they waited,
/// and the longest wait in milliseconds.
fn now_and_then(ends: &mut [Ends], is_over: &AtomicBool) -> (f64, f64) {
    let (begin_ns, mut waited_ns, mut longest_ns, number) = (clock::now_ns(), 0, 0, ends.len());
    for at in (0..number).cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let wait_ns = exchange(&mut ends[at], &[b"answer"]);
        (waited_ns, longest_ns) = (waited_ns + wait_ns, longest_ns.max(wait_ns));
        pass(5_000_000);
    }
    let all_ns = (clock::now_ns() - begin_ns) * number as u64;
    (waited_ns as f64 / all_ns as f64, longest_ns as f64 / 1e6)
}

#[test]
fn connections_that_are_asked_now_and_then_are_idle() {
    if !can_read() {
        return;
    }
    until_it_fits(|| {
        let mut ends = connections(20);
        let mut ties = Ties::here(ends[0].0.peer_addr().unwrap());
        let ((share, longest_ms), timed) =
            beside(|is_over| now_and_then(&mut ends, is_over), || ties.timed(20));
        assert!(timed.exchanges >= 20);
        // Waits cut off by the end of a burst have no answer, so the mean may exceed the longest.
        let is_short = (0.0..=2.0 * longest_ms).contains(&timed.wait_ms);
        let is_idle = timed.busy_share <= 2.0 * share + 0.1;
        fits(is_idle && is_short, format!("{timed:?}, client: {share}, {longest_ms} ms"))
    });
}

#[test]
fn connections_that_wait_for_their_turn_are_busy() {
    if !can_read() {
        return;
    }
    until_it_fits(|| {
        let ends = connections(8);
        let mut ties = Ties::here(ends[0].0.peer_addr().unwrap());
        let (mut clients, others): (Vec<TcpStream>, Vec<TcpStream>) = ends.into_iter().unzip();
        // They are answered one after the other, a millisecond each.
        let serve = move || {
            for mut other in others.iter().cycle() {
                if other.read(&mut [0; 8]).unwrap_or(0) == 0 {
                    break;
                }
                pass(1_000_000);
                let _ = other.write_all(b"answer");
            }
        };
        let ask = |client: &mut TcpStream, is_over: &AtomicBool| {
            let (mut waited_ns, mut waits) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let begin_ns = clock::now_ns();
                client.write_all(b"question").unwrap();
                if client.read(&mut [0; 6]).unwrap_or(0) == 0 {
                    break;
                }
                waited_ns += clock::now_ns() - begin_ns;
                waits += 1;
            }
            // If another client ended first, the server may have reset this connection.
            let _ = client.shutdown(std::net::Shutdown::Both);
            (waited_ns, waits)
        };
        let begin_ns = clock::now_ns();
        let all = |is_over: &AtomicBool| {
            std::thread::scope(|scope| {
                scope.spawn(serve);
                let asking: Vec<_> =
                    clients.iter_mut().map(|client| scope.spawn(move || ask(client, is_over))).collect();
                let of_all = asking.into_iter().map(|asking| asking.join().unwrap());
                of_all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            })
        };
        let ((waited_ns, waits), timed) = beside(all, || ties.timed(100));
        let share = waited_ns as f64 / (8 * (clock::now_ns() - begin_ns)) as f64;
        let mean_ms = waited_ns as f64 / 1e6 / f64::from(waits);
        assert!(timed.busy_share <= 1.0, "{timed:?}");
        let is_near = (mean_ms / 3.0..=mean_ms * 3.0).contains(&timed.wait_ms);
        fits(timed.busy_share >= share / 2.0 && is_near, format!("{timed:?}, clients: {share}, {mean_ms} ms"))
    });
}

/// Measures until what the packets show fits what the clients saw themselves, a few times at most. A thread that has to
/// wait long for a core spoils a measurement: bursts see only parts of that wait, or take it for idleness.
#[track_caller]
fn until_it_fits(mut measure: impl FnMut() -> Result<(), String>) {
    const ATTEMPTS: u32 = 6;
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        match measure() {
            Ok(()) => return,
            Err(why) => seen.push(why),
        }
    }
    panic!("{}", seen.join("\n"));
}

fn fits(is_so: bool, seen: String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(seen) }
}

/// A process in its own network namespace.
struct Namespace(Child);

impl Namespace {
    /// `None`, with a message, if no namespace can be created.
    fn new() -> Option<Namespace> {
        let run = "ip link set lo up && echo up && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", run]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let namespace = Namespace(child);
        if line.trim() != "up" {
            skip("no network namespace can be made here");
        }
        (line.trim() == "up").then_some(namespace)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn ip(&self, args: &str) {
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &self.pid().to_string(), "ip"]);
        assert!(command.args(args.split(' ')).status().unwrap().success(), "{args}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn connections_within_another_namespace_are_seen() {
    let Some(namespace) = Namespace::new().filter(|_| can_read()) else { return };
    let mut ends = in_namespace_of(namespace.pid(), || Ok(connections(3))).unwrap();
    let table = SocketTable::of_process(namespace.pid()).unwrap();
    let mut ties = Ties::of(namespace.pid(), table, ends[0].0.peer_addr().unwrap());
    let (_, timed) = beside(|is_over| now_and_then(&mut ends, is_over), || ties.timed(5));
    assert!(timed.busy_share <= 1.0 && timed.wait_ms > 0.0, "{timed:?}");
    assert!(ties.timer.connections.keys().all(|group| group.is_loopback), "{:?}", ties.timer);
    // A child of another test, forked meanwhile, has the socket of a burst as well until its exec.
    let begin_ns = clock::now_ns();
    let attached = || fs::read_to_string(format!("/proc/{}/net/packet", namespace.pid())).unwrap();
    while attached().lines().count() > 1 {
        assert!(clock::now_ns() - begin_ns < PATIENCE_NS, "nothing stays attached: {}", attached());
        std::thread::yield_now();
    }
}

#[test]
fn connections_from_one_namespace_to_another_are_seen() {
    const TO: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 19, 0, 2), 8080);
    let (Some(one), Some(two)) = (Namespace::new(), Namespace::new().filter(|_| can_read())) else { return };
    one.ip(&format!("link add near type veth peer name far netns {}", two.pid()));
    for (namespace, device, address) in [(&one, "near", "198.19.0.1/24"), (&two, "far", "198.19.0.2/24")] {
        namespace.ip(&format!("addr add {address} dev {device}"));
        namespace.ip(&format!("link set {device} up"));
    }
    let listener = in_namespace_of(two.pid(), || TcpListener::bind(TO)).unwrap();
    let connect = || {
        let client = in_namespace_of(one.pid(), || TcpStream::connect(TO)).unwrap();
        (client, listener.accept().unwrap().0)
    };
    let mut ends: Vec<Ends> = (0..3).map(|_| connect()).collect();
    until_it_fits(|| {
        let mut ties = Ties::of(one.pid(), SocketTable::of_process(one.pid()).unwrap(), TO.into());
        let ((_, longest_ms), timed) = beside(|is_over| now_and_then(&mut ends, is_over), || ties.timed(5));
        assert!(timed.busy_share <= 1.0, "{timed:?}");
        assert!(ties.timer.connections.keys().all(|group| !group.is_loopback), "{:?}", ties.timer);
        let is_near = timed.wait_ms > 0.0 && timed.wait_ms <= 2.0 * longest_ms;
        fits(is_near, format!("{timed:?}, client: {longest_ms} ms"))
    });
}

/// Runs exchanges on four connections, one after the other, that the socket table cannot distinguish from waits:
/// acknowledged at once, and with answers of one segment or two. Meanwhile reads until a line is as expected.
fn tied_until(is_good: impl Fn(&Pair, &[String]) -> bool) -> (Pair, Vec<String>) {
    // The listener's process is the one that is asked.
    let (listener, mut ends) = listened(4);
    let address = listener.local_addr().unwrap().to_string();
    let members = vec![Members { component: "web".into(), pids: vec![std::process::id()] }];
    let ask = |is_over: &AtomicBool| {
        let mut random = Random::new(7);
        while !is_over.load(Ordering::Relaxed) {
            for ends in &mut ends {
                for end in [&ends.0, &ends.1] {
                    end.set_nodelay(true).unwrap();
                    rustix::net::sockopt::set_tcp_quickack(end, true).unwrap();
                }
                let answers: [&[&[u8]]; 3] = [&[b"a"], &[b"a", b"b"], &[b"a", b"b", b"c"]];
                exchange(ends, answers[random.below(3)]);
            }
        }
    };
    let read = || {
        let mut reader = EvidenceReader::default();
        let begin_ns = clock::now_ns();
        loop {
            reader.set_members(members.clone());
            pass(reader.read(clock::now_ns()));
            let line = reader.take(clock::now_ns(), false, |ns| ns as f64 / 1e9);
            let Some(line) = line else { continue };
            let pair = line.pairs.iter().find(|p| p.address == address).cloned().unwrap_or_default();
            if is_good(&pair, &line.not_seen) {
                break (pair, line.not_seen);
            }
            assert!(clock::now_ns() - begin_ns < PATIENCE_NS, "{line:?}");
        }
    };
    beside(ask, read).1
}

#[test]
fn ties_of_the_table_of_sockets_are_timed() {
    if !can_read() {
        return;
    }
    let (pair, not_seen) = tied_until(|pair, _| pair.timed.is_some_and(|timed| timed.exchanges > 20));
    let timed = pair.timed.unwrap();
    // One of four is asked at a time.
    assert!((0.0..0.8).contains(&timed.busy_share) && timed.wait_ms > 0.0, "{pair:?}");
    assert!(!not_seen.iter().any(|text| text.starts_with("exact times")), "{not_seen:?}");
}

#[test]
fn without_the_right_ties_stay_and_it_is_said() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    // The permission belongs to this thread, and ends with it.
    let mut rights = capabilities(None).unwrap();
    rights.effective.remove(CapabilitySet::NET_RAW);
    set_capabilities(None, rights).unwrap();
    const TEXT: &str = "exact times of connections: no right to read packets (CAP_NET_RAW)";
    let (pair, not_seen) = tied_until(|_, not_seen| not_seen.iter().any(|text| text == TEXT));
    assert_eq!((pair.timed, not_seen.iter().filter(|text| text.contains("exact")).count()), (None, 1));
}
