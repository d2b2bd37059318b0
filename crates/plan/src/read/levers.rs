//! Reads `levers`: what can be changed while the system is up.

use crate::keys;
use crate::model::spec::{LeverSetting, LeverSpec};
use crate::read::reader::{Fields, Reader};
use crate::read::texts::read_command;
use crate::text::error::Problem;
use crate::text::node::{Entry, Node};
use crate::text::shorten::shorten;

/// Maximum number of values that a lever can be raised to.
const MOST_RAISES: usize = 8;

pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<LeverSpec> {
    let Some(node) = fields.get("levers") else { return Vec::new() };
    let entries = r.map(node, "a map of levers by name");
    entries.iter().filter_map(|entry| lever(r, entry)).collect()
}

fn lever(r: &mut Reader<'_>, entry: &Entry) -> Option<LeverSpec> {
    let fields = r.fields(&entry.value, &keys::LEVER, entry.key_span)?;
    let now = r.count(&fields, "now");
    let less = r.count(&fields, "less");
    let more = fields.get("more").map_or(Vec::new(), |node| raises(r, node));
    let set = fields.get("set")?;
    let (now, less) = (now?, less?);
    if less == now {
        let problem = Problem::new(fields.key_span("less"), "`less` is the same as `now`");
        r.push(problem.hint("about a tenth less is a good step"));
        return None;
    }
    // The direction in which more of it lies: a longer interval may be the tighter one.
    let is_wrong_way = |value: &&u64| **value == now || (**value > now) == (less > now);
    if let Some(value) = more.iter().find(is_wrong_way) {
        let message =
            format!("`{value}` is not more of `{}`: `less` is {less} and `now` {now}", shorten(&entry.key));
        r.push(
            Problem::new(fields.key_span("more"), message).hint("`more` lies beyond `now`, away from `less`"),
        );
        return None;
    }
    // The smallest raise comes first: its effect is predicted.
    let mut more = more;
    more.sort_by_key(|value| value.abs_diff(now));
    more.dedup();
    let mut setting = |value: u64| {
        r.value = Some(value);
        let command = read_command(r, set);
        r.value = None;
        Some(LeverSetting { value: value as f64, text: value.to_string(), command: command? })
    };
    let (now, less) = (setting(now)?, setting(less)?);
    if now.command == less.command {
        let problem = Problem::new(set.span, "`set` is the same for every value");
        r.push(problem.hint("put the value in: `${value}`"));
        return None;
    }
    let more = more.into_iter().map(setting).collect::<Option<_>>()?;
    Some(LeverSpec { name: entry.key.clone(), now, less, more })
}

fn raises(r: &mut Reader<'_>, node: &Node) -> Vec<u64> {
    let items = r.list(node, "a list of values such as `[12, 16]`");
    if items.len() > MOST_RAISES {
        r.push(Problem::new(node.span, format!("more than {MOST_RAISES} values")));
        return Vec::new();
    }
    let mut values = Vec::new();
    for item in items {
        let Some(scalar) = r.scalar(item, "a whole number") else { continue };
        match scalar.text.parse() {
            Ok(value) if value > 0 => values.push(value),
            _ => r.wrong(&scalar, format!("`{}` is not a whole number above 0", shorten(&scalar.text)), None),
        }
    }
    values
}
