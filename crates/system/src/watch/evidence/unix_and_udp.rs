//! Sockets other than TCP: Unix and UDP.
//!
//! A desktop has thousands of Unix sockets, and most systems have none that matter. So these tables are read with every
//! reading only while a component has such a socket; otherwise only now and then, to see whether one has appeared.
//! Costly tables are read less often.

use std::collections::{BTreeSet, HashSet};
use std::io;

use loadlab_record::watch::evidence::{Listener, Pair};

use super::Members;
use super::owners::Owners;
use super::sockets::{Socket, SocketTable};
use super::udp::UdpPairs;
use super::unix::{UnixPairs, UnixSocket};
use crate::clock::thread_cpu_ns;

/// Interval between readings of a table that no component uses.
const UNUSED_NS: u64 = 1_000_000_000;
/// The interval between readings of a table, as a multiple of its CPU cost: half of the budget for all readings.
const COSTS: u64 = 200;
/// A table in use is read at least this often, whatever its cost: every line must have it.
const LONGEST_NS: u64 = 900_000_000;
/// The shortest interval between two searches for owners, and the interval as a multiple of its CPU cost: on a desktop
/// new sockets appear all the time, nearly all of them of other programs.
const POLL_INTERVAL_NS: u64 = 200_000_000;
const LOOK_COSTS: u64 = 400;

/// When a task is due.
#[derive(Debug, Default)]
struct Due {
    at_ns: u64,
}

impl Due {
    fn is(&self, now_ns: u64) -> bool {
        now_ns >= self.at_ns
    }

    fn after(&mut self, now_ns: u64, wait_ns: u64) {
        self.at_ns = now_ns + wait_ns;
    }
}

/// Reads Unix and UDP sockets, and adds up who waits for whom.
#[derive(Debug, Default)]
pub(crate) struct UnixAndUdp {
    unix: UnixPairs,
    udp: UdpPairs,
    unix_due: Due,
    udp_due: Due,
    look_due: Due,
    unix_sockets: Vec<UnixSocket>,
    udp_sockets: Vec<Socket>,
    /// Sockets whose owners matter.
    relevant: HashSet<u32>,
    /// What could not be read, and why.
    failed: BTreeSet<String>,
}

impl UnixAndUdp {
    /// Reads the tables that are due.
    pub fn read<'a>(
        &mut self,
        now_ns: u64,
        tables: impl Iterator<Item = &'a mut SocketTable>,
        owners: &mut Owners,
        members: &[Members],
    ) {
        let (is_unix_due, is_udp_due) = (self.unix_due.is(now_ns), self.udp_due.is(now_ns));
        if !is_unix_due && !is_udp_due {
            return;
        }
        let (mut unix_ns, mut udp_ns) = (0, 0);
        if is_unix_due {
            self.unix_sockets.clear();
        }
        if is_udp_due {
            self.udp_sockets.clear();
        }
        for table in tables {
            if is_unix_due {
                unix_ns += timed(|| {
                    let done = table.read_unix(&mut self.unix_sockets);
                    note(&mut self.failed, "Unix", done);
                });
            }
            if is_udp_due {
                udp_ns += timed(|| {
                    let done = table.read_udp(&mut self.udp_sockets);
                    note(&mut self.failed, "UDP", done);
                });
            }
        }
        self.look(now_ns, owners, members);
        if is_unix_due {
            unix_ns += timed(|| self.unix.add(&self.unix_sockets, owners, now_ns));
            unix_ns = unix_ns.saturating_sub(self.unix.threads_ns());
            self.unix_due.after(now_ns, wait(unix_ns, self.unix.is_used()));
        }
        if is_udp_due {
            udp_ns += timed(|| self.udp.add(&self.udp_sockets, owners, now_ns));
            self.udp_due.after(now_ns, wait(udp_ns, self.udp.is_used()));
        }
    }

    /// Finds the owners of new sockets.
    fn look(&mut self, now_ns: u64, owners: &mut Owners, members: &[Members]) {
        self.relevant.clear();
        self.relevant.extend(UnixPairs::relevant(&self.unix_sockets));
        self.relevant.extend(UdpPairs::relevant(&self.udp_sockets));
        let unknown: HashSet<u32> =
            self.relevant.iter().copied().filter(|inode| owners.is_unknown(*inode)).collect();
        if unknown.is_empty() || !self.look_due.is(now_ns) {
            return;
        }
        let cost_ns = timed(|| owners.look(members, &unknown));
        self.look_due.after(now_ns, POLL_INTERVAL_NS.max(cost_ns * LOOK_COSTS));
    }

    /// Sockets whose owners are to be kept.
    pub fn inodes(&self) -> impl Iterator<Item = u32> {
        self.relevant.iter().copied()
    }

    /// Means over the readings so far, which are then reset. What could not be read is appended to `not_seen`.
    pub fn take(
        &mut self,
        now_ns: u64,
        pairs: &mut Vec<Pair>,
        listeners: &mut Vec<Listener>,
        not_seen: &mut Vec<String>,
    ) {
        if self.unix.readings() > 0 {
            let (own, listening) = self.unix.take();
            pairs.extend(own);
            listeners.extend(listening);
        }
        if self.udp.readings() > 0 {
            pairs.extend(self.udp.take(now_ns));
        }
        not_seen.extend(std::mem::take(&mut self.failed));
    }
}

/// How long to wait before a table that took this much CPU time is read again.
fn wait(cost_ns: u64, is_used: bool) -> u64 {
    let by_cost_ns = cost_ns * COSTS;
    if is_used { by_cost_ns.min(LONGEST_NS) } else { by_cost_ns.max(UNUSED_NS) }
}

/// A kernel without the table cannot show sockets of that kind, which is worth reporting.
fn note(failed: &mut BTreeSet<String>, kind: &str, done: io::Result<()>) {
    if let Err(error) = done {
        failed.insert(format!("connections over {kind} sockets: the kernel's table of them: {error}"));
    }
}

/// CPU time that `what` takes.
fn timed(what: impl FnOnce()) -> u64 {
    let before_ns = thread_cpu_ns();
    what();
    thread_cpu_ns() - before_ns
}

#[cfg(test)]
mod tests {
    use super::super::EvidenceReader;
    use super::*;
    use crate::clock;
    use loadlab_record::text::time::SECOND_NS;
    use loadlab_record::watch::evidence::Evidence;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::process::{Child, Command, Stdio};

    /// Long enough for a busy machine.
    const PATIENCE_NS: u64 = 60 * SECOND_NS;

    /// A program that is killed at the end of the test, even if the test fails.
    struct Program(Child);

    impl Program {
        fn id(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A program that runs this text.
    fn python(text: &str, args: &[&str]) -> Program {
        let mut command = Command::new("python3");
        command.args(["-c", text]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        Program(command.spawn().expect("python3 is installed"))
    }

    /// Reads one line per reading until one is as expected.
    struct Lines(EvidenceReader);

    impl Lines {
        fn of(members: Vec<Members>) -> Lines {
            let mut reader = EvidenceReader::default();
            reader.set_members(members);
            Lines(reader)
        }

        #[track_caller]
        fn until(&mut self, is_wanted: impl Fn(&Evidence) -> bool) -> Evidence {
            let (mut last, until_ns) = (None, clock::now_ns() + PATIENCE_NS);
            while clock::now_ns() < until_ns {
                self.0.read(clock::now_ns());
                last = self.0.take(clock::now_ns(), true, |ns| ns as f64 / 1e9);
                if last.as_ref().is_some_and(&is_wanted) {
                    break;
                }
                std::thread::yield_now();
            }
            assert!(last.as_ref().is_some_and(&is_wanted), "never seen; last: {last:#?}");
            last.unwrap()
        }
    }

    #[track_caller]
    fn until(members: Vec<Members>, is_wanted: impl Fn(&Evidence) -> bool) -> Evidence {
        Lines::of(members).until(is_wanted)
    }

    #[test]
    fn a_pool_over_a_unix_socket_is_busy_as_far_as_its_threads_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // Five connections: threads wait on two, one was answered, one was never used, and one's request is still
        // unread.
        let web = python(
            "import socket,sys,threading\n\
            c=[socket.socket(socket.AF_UNIX) for _ in range(5)]\n\
            for s in c: s.connect(sys.argv[1])\n\
            for s in (c[0],c[1],c[2],c[4]): s.sendall(b'?')\n\
            for s in c[:2]: threading.Thread(target=s.recv,args=(1,),daemon=True).start()\n\
            print(flush=True)\n\
            sys.stdin.read()\n",
            &[path.to_str().unwrap()],
        );
        let mut accepted: Vec<_> = (0..5).map(|_| listener.accept().unwrap().0).collect();
        for stream in &mut accepted[..3] {
            stream.read_exact(&mut [0]).unwrap();
        }
        accepted[2].write_all(b"!").unwrap();
        let members = vec![
            Members { component: "store".into(), pids: vec![std::process::id()] },
            Members { component: "web".into(), pids: vec![web.id()] },
        ];
        // Other tests of this process have sockets, too.
        let is_ours = |p: &&Pair| p.is_unix && p.to == "store" && p.address == path.to_str().unwrap();
        let line = until(members, |line| {
            line.pairs.iter().filter(is_ours).any(|p| p.busy >= 3.0 && p.unknown == 0.0)
        });
        let pair = line.pairs.iter().find(is_ours).unwrap();
        assert_eq!(pair.from, "web");
        assert_eq!((pair.open, pair.busy, pair.unread), (5.0, 3.0, 1.0));
        let listens = line.listeners.iter().find(|l| l.address == path.to_str().unwrap()).unwrap();
        assert_eq!((listens.component.as_str(), listens.queue_max), ("store", 0));
        assert!(listens.backlog > 0);
    }

    #[test]
    fn an_event_loop_hides_who_waits_and_a_queue_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut web = python(
            "import select,socket,sys\n\
            e=select.epoll()\n\
            c=[socket.socket(socket.AF_UNIX) for _ in range(4)]\n\
            for s in c: s.connect(sys.argv[1]); e.register(s,select.EPOLLIN)\n\
            c[3].sendall(b'?')\n\
            print(flush=True)\n\
            e.poll()\n",
            &[path.to_str().unwrap()],
        );
        BufReader::new(web.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        // The fourth is not accepted.
        let _accepted: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let members = vec![
            Members { component: "store".into(), pids: vec![std::process::id()] },
            Members { component: "web".into(), pids: vec![web.id()] },
        ];
        let line = until(members, |line| line.pairs.iter().any(|p| p.is_unix && p.from == "web"));
        let pair = line.pairs.iter().find(|p| p.is_unix && p.from == "web").unwrap();
        assert_eq!((pair.open, pair.busy, pair.unknown, pair.unread), (4.0, 1.0, 3.0, 1.0), "{pair:?}");
        let listens = line.listeners.iter().find(|l| l.address == pair.address).unwrap();
        assert_eq!((listens.component.as_str(), listens.queue_max), ("store", 1));
    }

    #[test]
    fn a_server_with_a_thread_for_each_connection_shows_whom_it_works_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sock");
        let path = path.to_str().unwrap();
        let mut store = python(
            "import socket,sys,threading,time\n\
            s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
            print(flush=True)\n\
            def serve(c): c.recv(1); time.sleep(1e5)\n\
            while True: threading.Thread(target=serve,args=(s.accept()[0],),daemon=True).start()\n",
            &[path],
        );
        BufReader::new(store.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let mut web = python(
            "import select,socket,sys\n\
            e=select.epoll()\n\
            c=[socket.socket(socket.AF_UNIX) for _ in range(3)]\n\
            for s in c: s.connect(sys.argv[1]); e.register(s,select.EPOLLIN)\n\
            sys.stdin.readline()\n\
            c[0].sendall(b'?')\n\
            e.poll()\n",
            &[path],
        );
        let mut lines = Lines::of(vec![
            Members { component: "store".into(), pids: vec![store.id()] },
            Members { component: "web".into(), pids: vec![web.id()] },
        ]);
        let is = |open: f64, busy: f64| {
            move |line: &Evidence| {
                let mut of_unix = line.pairs.iter().filter(|p| p.is_unix && p.from == "web");
                of_unix.any(|p| (p.open, p.busy, p.unknown) == (open, busy, 0.0) && p.to == "store")
            }
        };
        lines.until(is(3.0, 0.0));
        web.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        lines.until(is(3.0, 1.0));
    }

    #[test]
    fn queries_over_udp_are_who_asks_a_resolver() {
        let resolver = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = resolver.local_addr().unwrap();
        // Unanswered queries, given up one after the other, and three at a time.
        let web = python(
            "import socket,sys\n\
            c=[]\n\
            while True:\n \
            s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n \
            s.connect(('127.0.0.1',int(sys.argv[1])))\n \
            s.send(b'?')\n \
            s.settimeout(0.02)\n \
            c=[*c[-2:],s]\n \
            try: s.recv(1)\n \
            except OSError: pass\n",
            &[&address.port().to_string()],
        );
        let members = vec![
            Members { component: "dns".into(), pids: vec![std::process::id()] },
            Members { component: "web".into(), pids: vec![web.id()] },
        ];
        let line = until(members, |line| {
            let mut of_udp = line.pairs.iter().filter(|p| p.is_udp && p.from == "web");
            // Not every reading finds a new socket.
            of_udp.any(|p| p.busy >= 2.0 && p.unread > 0.0 && p.made > 0)
        });
        let pair = line.pairs.iter().find(|p| p.is_udp && p.from == "web").unwrap();
        assert_eq!((pair.to.as_str(), pair.address.as_str()), ("dns", address.to_string().as_str()));
        assert!(pair.open <= 4.0, "{pair:?}");
    }

    #[test]
    fn what_costs_much_or_is_not_needed_is_read_less_often() {
        assert_eq!((wait(100_000, true), wait(100_000, false)), (20_000_000, UNUSED_NS));
        assert_eq!((wait(10_000_000, true), wait(10_000_000, false)), (LONGEST_NS, 2 * SECOND_NS));
    }
}
