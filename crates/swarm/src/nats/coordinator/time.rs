//! Answers the agents' time requests, so that each knows how far its clock is from the coordinator's.

use async_nats::Client;
use futures_util::StreamExt;
use loadlab_load::io::epoll::now_ns;

use crate::nats::{HEARTBEAT_INTERVAL, Subjects};

/// Answers time requests with the times of arrival and reply.
pub(super) async fn answer_time_requests(client: &Client, subjects: &Subjects) {
    loop {
        if let Ok(mut questions) = client.subscribe(subjects.time()).await {
            while let Some(question) = questions.next().await {
                let received_ns = now_ns();
                let Some(reply) = question.reply else { continue };
                let answer = serde_json::to_vec(&[received_ns, now_ns()]).expect("numbers");
                let _ = client.publish(reply, answer.into()).await;
            }
        }
        tokio::time::sleep(HEARTBEAT_INTERVAL / 4).await;
    }
}
