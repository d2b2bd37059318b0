//! `POST /widgets`: needless work on the body, on purpose.
//!
//! The handler resembles one that has grown over years: it parses, copies, converts, serialises and parses again, then
//! waits for something slow and holds everything meanwhile. None of it is needed for the answer. It allocates many
//! blocks of many sizes, which live as long as the request and are often freed by another thread than the one that
//! allocated them: that is where allocators differ. It is not an example of how to write a handler.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What handlers share.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the handler waits, with its memory held.
    pub sleep: Duration,
}

#[allow(dead_code, reason = "held, not read: that is what it is for")]
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Widget {
    event_type: String,
    payload: Value,
}

/// One element of the payload, with every leaf as text under its path.
#[allow(dead_code, reason = "held, not read: that is what it is for")]
struct Record {
    index: usize,
    fields: Vec<Field>,
}

#[allow(dead_code, reason = "as above")]
struct Field {
    path: String,
    text: String,
}

/// The answer for a widget that was accepted.
#[derive(Debug, Serialize)]
pub struct Created {
    /// Unique within this process.
    id: String,
    /// Size in bytes of the payload once it was serialised again.
    size: usize,
}

/// Why a widget was not accepted: a status and `{"error": …}`.
pub type Refusal = (StatusCode, Json<Value>);

/// `POST /widgets`: 201 with `{id, size}`, 400 for a body that is not JSON, 422 for one that is not a widget.
pub async fn create(
    State(settings): State<Settings>,
    body: Bytes,
) -> Result<(StatusCode, Json<Created>), Refusal> {
    let hoard = Hoard::gather(&body)?;
    tokio::time::sleep(settings.sleep).await;
    // Measured only now, so that nothing can be freed before the wait is over.
    let created = Created { id: next_id(), size: hoard.size() };
    Ok((StatusCode::CREATED, Json(created)))
}

/// Everything a request holds while it waits.
#[allow(dead_code, reason = "held, not read: that is what it is for")]
struct Hoard {
    original: Value,
    widget: Widget,
    records: Vec<Record>,
    payload: Vec<u8>,
    again: Value,
}

impl Hoard {
    fn gather(body: &[u8]) -> Result<Self, Refusal> {
        let original: Value =
            serde_json::from_slice(body).map_err(|error| refuse(StatusCode::BAD_REQUEST, &error))?;
        let widget: Widget = serde_json::from_value(original.clone())
            .map_err(|error| refuse(StatusCode::UNPROCESSABLE_ENTITY, &error))?;
        let records = records(&widget.clone().payload);
        let payload = serde_json::to_vec(&widget.payload).expect("a parsed value can be serialised");
        let again = serde_json::from_slice(&payload).expect("a serialised value can be parsed");
        Ok(Self { original, widget, records, payload, again })
    }

    fn size(&self) -> usize {
        self.payload.len()
    }
}

fn records(payload: &Value) -> Vec<Record> {
    let record = |(index, element): (usize, &Value)| {
        let mut fields = Vec::new();
        flatten("", element, &mut fields);
        Record { index, fields }
    };
    match payload {
        Value::Array(elements) => elements.iter().enumerate().map(record).collect(),
        single => vec![record((0, single))],
    }
}

/// Depth is bounded: the parser refuses more than 128 levels.
fn flatten(path: &str, value: &Value, fields: &mut Vec<Field>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                flatten(&format!("{path}/{name}"), member, fields);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                flatten(&format!("{path}/{index}"), element, fields);
            }
        }
        Value::String(text) => fields.push(Field { path: path.to_owned(), text: text.clone() }),
        leaf => fields.push(Field { path: path.to_owned(), text: leaf.to_string() }),
    }
}

fn refuse(status: StatusCode, error: &serde_json::Error) -> Refusal {
    (status, Json(json!({ "error": error.to_string() })))
}

/// A counter, not random: an id only has to be unique.
fn next_id() -> String {
    static CREATED: AtomicU64 = AtomicU64::new(0);
    format!("widget-{:012}", CREATED.fetch_add(1, Ordering::Relaxed) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_per_element_and_a_field_per_leaf() {
        let records =
            records(&json!([{ "name": "a", "tags": ["x", 7] }, { "nested": { "flag": true } }, null]));
        let paths: Vec<Vec<(&str, &str)>> = records
            .iter()
            .map(|record| record.fields.iter().map(|field| (&*field.path, &*field.text)).collect())
            .collect();
        assert_eq!(paths[0], [("/name", "a"), ("/tags/0", "x"), ("/tags/1", "7")]);
        assert_eq!(paths[1], [("/nested/flag", "true")]);
        assert_eq!(paths[2], [("", "null")]);
        assert_eq!(records[2].index, 2);
    }

    #[test]
    fn a_payload_that_is_no_list_is_one_record() {
        assert_eq!(records(&json!({ "body": [1, 2] })).len(), 1);
    }

    #[test]
    fn size_is_that_of_the_compact_payload() {
        let hoard = Hoard::gather(br#"{ "eventType": "t", "payload": [ {"a": 1} ] }"#).ok().unwrap();
        assert_eq!(hoard.size(), br#"[{"a":1}]"#.len());
    }

    #[test]
    fn the_answer_comes_after_the_sleep() {
        // The clock is simulated: it jumps to the next timer when nothing else is runnable.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let begun = tokio::time::Instant::now();
            let settings = Settings { sleep: Duration::from_millis(450) };
            let body = Bytes::from_static(br#"{"eventType":"t","payload":[]}"#);
            assert_eq!(create(State(settings), body).await.unwrap().0, StatusCode::CREATED);
            assert_eq!(begun.elapsed().as_millis(), 450);
        });
    }

    #[test]
    fn ids_are_distinct() {
        assert_ne!(next_id(), next_id());
    }
}
