//! Reads `profile`: whose stacks are sampled while loads run.

use crate::keys;
use crate::model::spec::ProfileSpec;
use crate::read::events;
use crate::read::reader::{Fields, Reader};
use crate::text::node::Value;

pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<ProfileSpec> {
    let node = fields.get("profile")?;
    let everything = ProfileSpec::of(Vec::new());
    if let Value::Scalar(..) = &node.value {
        return r.flag(fields, "profile")?.then_some(everything);
    }
    let own = r.fields(node, &keys::PROFILE, fields.key_span("profile"))?;
    let rate_per_s = r.count(&own, "rate").map_or(everything.rate_per_s, |rate| rate as u32);
    let on = r.choice(&own, "on").unwrap_or("cpu");
    let mut components: Vec<String> = Vec::new();
    for name in r.texts(&own, "components") {
        for one in events::named(r, &name, &name.text)? {
            if !components.contains(&one) {
                components.push(one);
            }
        }
    }
    Some(ProfileSpec { components, rate_per_s, on_cpu: on != "wait", on_wait: on != "cpu" })
}
