//! Which agents are alive: their heartbeats, and what the server knows of those that missed one.

use async_nats::{Client, RequestErrorKind};
use futures_util::StreamExt;
use loadlab_load::io::epoll::now_ns;

use super::Shared;
use crate::nats::{HEARTBEAT_INTERVAL, Subjects};

/// Records signs of life: heartbeats and the coordinator's own echo.
pub(super) async fn receive_heartbeats(client: &Client, subjects: &Subjects, shared: &Shared) {
    loop {
        if let Ok(mut beats) = client.subscribe(subjects.heartbeats()).await {
            while let Some(beat) = beats.next().await {
                if *beat.subject == *subjects.echo() {
                    let said_ns = std::str::from_utf8(&beat.payload).ok().and_then(|text| text.parse().ok());
                    shared.change(|agents| {
                        said_ns.into_iter().for_each(|said_ns| agents.heard(said_ns, now_ns()))
                    });
                    continue;
                }
                let mut numbers = beat.subject.rsplit('.');
                let epoch = numbers.next().and_then(|epoch| epoch.parse().ok());
                let slot = numbers.next().and_then(|slot| slot.parse().ok());
                if let Some((slot, epoch)) = slot.zip(epoch) {
                    shared.change(|agents| agents.seen(slot, epoch, now_ns()));
                }
            }
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
    }
}

/// Asks the server whether agents that missed a heartbeat are still connected.
pub(super) async fn look_for_gone(client: &Client, subjects: &Subjects, shared: &Shared) {
    let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
    loop {
        beat.tick().await;
        let quiet = shared.agents().quiet(now_ns());
        for (slot, epoch) in quiet {
            let asked = client.request(subjects.alive(slot, epoch), Vec::new().into());
            match tokio::time::timeout(HEARTBEAT_INTERVAL, asked).await {
                Ok(Ok(_)) => shared.change(|agents| agents.seen(slot, epoch, now_ns())),
                Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                    shared.change(|agents| agents.gone(slot, epoch, now_ns()));
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}
