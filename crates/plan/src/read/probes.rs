//! Reads `probes`: numbers of the system, by source.

use crate::model::spec::{ProbeSource, ProbeSpec};
use crate::read::journey::capture::check_pointer;
use crate::read::reader::{Fields, Reader};
use crate::read::texts::{check_rendered, read_command, read_url};
use crate::text::error::Problem;
use crate::text::node::{Entry, Node};
use crate::text::shorten::shorten;
use crate::text::suggest;
use crate::{keys, url};

pub(crate) fn read(r: &mut Reader<'_>, entry: &Entry) -> Option<ProbeSpec> {
    let fields = r.fields(&entry.value, &keys::PROBE, entry.key_span)?;
    let source = if let Some(node) = fields.get("http") {
        let url = read_url(r, node);
        let pointer = fields.get("json").and_then(|n| read_pointer(r, n));
        ProbeSource::Http { url: url?, json_pointer: pointer? }
    } else if let Some(node) = fields.get("prometheus") {
        let url = read_url(r, node);
        let metric = fields.get("metric").and_then(|n| r.scalar(n, "a metric's name"));
        ProbeSource::Prometheus { url: url?, metric: metric?.text, labels: read_labels(r, &fields) }
    } else if let Some(node) = fields.get("redis") {
        read_redis(r, node, &fields)?
    } else if let Some(node) = fields.get("command") {
        ProbeSource::Command(read_command(r, node)?)
    } else {
        read_log(r, fields.get("log")?, &fields)?
    };
    Some(ProbeSpec { name: entry.key.clone(), source })
}

/// Reads a JSON pointer.
pub(crate) fn read_pointer(r: &mut Reader<'_>, node: &Node) -> Option<String> {
    let pointer = r.scalar(node, "a JSON pointer such as `/stored`")?;
    check_pointer(r, &pointer).then_some(pointer.text)
}

fn read_labels(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<(String, String)> {
    let Some(node) = fields.get("labels") else { return Vec::new() };
    let mut labels = Vec::new();
    for entry in r.map(node, "a map of labels") {
        labels.extend(r.scalar(&entry.value, "a label's value").map(|v| (entry.key.clone(), v.text)));
    }
    labels
}

/// Reads a Redis query: one of its commands with a key, or any command in words.
fn read_redis(r: &mut Reader<'_>, node: &Node, fields: &Fields<'_>) -> Option<ProbeSource> {
    let address = r.template(node, "HOST:PORT")?;
    check_rendered(r, node, &address, url::host_and_port)?;
    if let Some(node) = fields.get("call") {
        let items = r.list(node, "a list of words such as `[DBSIZE]`");
        if items.is_empty() {
            r.push(Problem::new(fields.key_span("call"), "`call` is empty").hint("`call: [DBSIZE]`"));
        }
        let words: Vec<_> = items.iter().filter_map(|n| r.template(n, "a word")).collect();
        return (words.len() == items.len() && !words.is_empty())
            .then_some(ProbeSource::Redis { address, words });
    }
    let key = keys::REDIS_KEYS.iter().find(|key| fields.has(key))?;
    let what = r.template(fields.get(key)?, "a key")?;
    let verb = crate::model::template::Template::text(key.to_ascii_uppercase());
    Some(ProbeSource::Redis { address, words: vec![verb, what] })
}

fn read_log(r: &mut Reader<'_>, node: &Node, fields: &Fields<'_>) -> Option<ProbeSource> {
    let component = r.scalar(node, "a component")?;
    let components: Vec<String> = r
        .instances
        .iter()
        .filter(|i| i.name == component.text || i.group == component.text)
        .map(|i| i.name.clone())
        .collect();
    if components.is_empty() {
        let names: Vec<String> = r.instances.iter().map(|i| i.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let message = format!("there is no component `{}`", shorten(&component.text));
        r.wrong(&component, message, suggest::hint(&component.text, &names));
        return None;
    }
    let node = fields.get("contains")?;
    let contains = r.scalar(node, "a text")?.text;
    if contains.is_empty() || contains.contains('\n') {
        r.push(Problem::new(node.span, "expected part of a single line for `contains`"));
        return None;
    }
    Some(ProbeSource::Log { components, contains })
}
