//! A run from an agent's side: everything that it does at the same time until the run is over.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use loadlab_load::io::epoll::now_ns;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use super::Agent;
use super::liveness::dead_man;
use super::orders::Work;
use super::state::RunState;
use crate::clock::Bounds;
use crate::message::{FileOffer, OpenSlot};
use crate::nats::{Subjects, files, follow};

impl Agent<'_> {
    /// Takes part in a run until it is over or the coordinator has given this agent up.
    pub(super) async fn run(
        &self,
        subjects: &Subjects,
        claimed: OpenSlot,
        bundle: Value,
        offered: &[FileOffer],
    ) -> RunExit {
        let (outgoing, queue) = mpsc::unbounded_channel();
        let run_state = Arc::new(RunState {
            clock: Mutex::new(Bounds::default()),
            heard_ns: AtomicU64::new(now_ns()),
            is_left: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            flagged: Notify::new(),
            loads: Mutex::new(BTreeMap::new()),
        });
        let mut work = Work {
            agent: self,
            claimed,
            bundle,
            files: Ok(Arc::default()),
            run_state: run_state.clone(),
            outgoing,
            next_order: 0,
            spool: self.options.spool.join(format!("{}-{}-{}", subjects.run, claimed.slot, claimed.epoch)),
        };
        let spool = work.spool.clone();
        let _ends = EndsWithRun { run_state: run_state.clone(), spool: spool.clone() };
        let orders = async {
            let received = files::receive(&self.context, subjects, offered, &spool.join("files")).await;
            work.files = received.map(Arc::new);
            follow(&self.context, subjects, subjects.orders(), |message| work.order(message, subjects)).await;
        };
        tokio::select! {
            () = orders => {}
            () = self.send_outgoing(subjects, claimed, queue) => {}
            () = self.beat(subjects, claimed) => {}
            () = self.live(subjects, claimed) => {}
            () = self.ask_time(subjects, &run_state) => {}
            () = self.listen(subjects, claimed, &run_state) => {}
            () = dead_man(&run_state) => {
                if run_state.is_given_up.load(Ordering::Relaxed) {
                    return RunExit::GivenUp;
                }
                let s = run_state.silent_ns() / 1_000_000_000;
                let text = format!("no message from the coordinator for {s} s: sending has stopped");
                (self.log)(&format!("run {}: {text}", subjects.run));
            }
        }
        RunExit::Over
    }
}

/// How an agent's participation in a run ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RunExit {
    /// The run is over, at least for this agent.
    Over,
    /// The coordinator did not hear from this agent for too long and offers its slot to others.
    GivenUp,
}

/// Ends everything an agent does in a run, even if the agent itself is interrupted.
struct EndsWithRun {
    run_state: Arc<RunState>,
    /// Holds the reports and files of this run only.
    spool: PathBuf,
}

impl Drop for EndsWithRun {
    fn drop(&mut self) {
        self.run_state.abort_all();
        let _ = std::fs::remove_dir_all(&self.spool);
    }
}
