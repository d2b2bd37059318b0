//! Reads `profile`: whose stacks are sampled while loads run.

use crate::keys;
use crate::model::spec::ProfileSpec;
use crate::read::events;
use crate::read::reader::{Fields, Reader};
use crate::text::node::Value;

/// Samples per second and core. No multiple of a round rate, so that work in step with a timer is neither always seen nor
/// never.
const RATE_PER_S: u32 = 199;

pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<ProfileSpec> {
    let node = fields.get("profile")?;
    let everything = ProfileSpec { components: Vec::new(), rate_per_s: RATE_PER_S };
    if let Value::Scalar(..) = &node.value {
        return r.flag(fields, "profile")?.then_some(everything);
    }
    let own = r.fields(node, &keys::PROFILE, fields.key_span("profile"))?;
    let rate_per_s = r.count(&own, "rate").map_or(RATE_PER_S, |rate| rate as u32);
    let mut components: Vec<String> = Vec::new();
    for name in r.texts(&own, "components") {
        for one in events::named(r, &name, &name.text)? {
            if !components.contains(&one) {
                components.push(one);
            }
        }
    }
    Some(ProfileSpec { components, rate_per_s })
}
