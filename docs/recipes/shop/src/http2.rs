//! The shop over HTTP/2 with prior knowledge, recognised by the first bytes of a connection.

use std::net::TcpStream;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Asked, Shop, count};

/// Requests on a connection until it ends.
pub(crate) fn serve(shop: &Arc<Shop>, stream: TcpStream) {
    count(&shop.http2_connections);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(async {
        let _ = stream.set_nonblocking(true);
        let Ok(stream) = tokio::net::TcpStream::from_std(stream) else { return };
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((request, respond))) = connection.accept().await {
            tokio::task::spawn_local(answer(shop.clone(), request, respond));
        }
    }));
}

/// One stream.
async fn answer(
    shop: Arc<Shop>,
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let (parts, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(piece) = incoming.data().await {
        let Ok(piece) = piece else { return };
        body.extend_from_slice(&piece);
        let _ = incoming.flow_control().release_capacity(piece.len());
    }
    let text = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let answer = shop.answer(&Asked {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        authorization: text("authorization"),
        content_type: text("content-type"),
        body,
    });
    let head = http::Response::builder().status(answer.status).header("content-type", answer.content_type);
    let Ok(head) = head.body(()) else { return };
    if let Ok(mut stream) = respond.send_response(head, false) {
        let _ = stream.send_data(answer.body.into_bytes().into(), true);
    }
}
