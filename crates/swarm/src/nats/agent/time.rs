//! Asks for the coordinator's time, to know how far this machine's clock is from it.

use loadlab_load::io::epoll::now_ns;
use loadlab_record::sync::lock;

use super::Agent;
use super::state::RunState;
use crate::clock::Exchange;
use crate::nats::{HEARTBEAT_INTERVAL, Subjects};

/// Number of time requests in quick succession at first, to get narrow bounds soon.
const FIRST_QUESTIONS: usize = 8;

impl Agent<'_> {
    /// Asks the coordinator for the time: in quick succession at first, then every second.
    pub(super) async fn ask_time(&self, subjects: &Subjects, run_state: &RunState) {
        for question in 0.. {
            let asked_ns = now_ns();
            let answer = self.client.request(subjects.time(), Vec::new().into()).await;
            let returned_ns = now_ns();
            if let Ok(answer) = answer
                && let Ok([received_ns, answered_ns]) = serde_json::from_slice::<[u64; 2]>(&answer.payload)
            {
                run_state.heard();
                let exchange = Exchange { asked_ns, received_ns, answered_ns, returned_ns };
                lock(&run_state.clock).add(exchange);
            }
            tokio::time::sleep(if question < FIRST_QUESTIONS {
                HEARTBEAT_INTERVAL / 100
            } else {
                HEARTBEAT_INTERVAL
            })
            .await;
        }
    }
}
