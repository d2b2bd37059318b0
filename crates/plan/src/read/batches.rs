//! Reads how often a load is repeated.

use crate::keys;
use crate::read::reader::{Fields, Reader};

pub(crate) fn read_batches(r: &mut Reader<'_>, fields: &Fields<'_>) -> (u32, u64) {
    let Some(node) = fields.get("batches") else { return (1, 0) };
    let Some(fields) = r.fields(node, &keys::BATCHES, fields.key_span("batches")) else { return (1, 0) };
    let repeat = r.count(&fields, "repeat").unwrap_or(1) as u32;
    (repeat, r.duration(&fields, "pause").unwrap_or(0))
}
