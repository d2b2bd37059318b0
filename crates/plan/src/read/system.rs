//! Reads `system`: components with their replicas, commands, probes.

use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::names::RESERVED;

use crate::keys::MAX_EXPANDED;
use crate::keys::{self, MAX_REPLICAS, SIGNALS};
use crate::model::component_kind::{Command, ComponentKind, Lifetime};
use crate::model::spec::{ComponentSpec, PortSpec, ReadySign, ReadySpec, StopSpec, SystemSpec};
use crate::model::template::Template;
use crate::read::component_kind::{read_compose, read_kind};
use crate::read::reader::{Fields, Instance, KnownPort, Reader};
use crate::read::texts::{check_rendered, in_folder, read_command, read_env, read_url};
use crate::read::{limits, probes};
use crate::text::error::Problem;
use crate::text::node::{Entry, Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;
use crate::url;

/// Reads `system` of one case. Sets the reader's instances, which URLs of the loads refer to.
pub(crate) fn read(r: &mut Reader<'_>, node: &Node, at: Span) -> SystemSpec {
    let mut spec = SystemSpec::default();
    let Some(fields) = r.fields(node, &keys::SYSTEM, at) else { return spec };
    let components = fields.get("components");
    // Where a service of the Compose file differs between cases.
    let mut differs = None;
    if let Some(components) = components {
        r.instances = instances(r, components);
        let entries = r.map(components, "a map of components by name");
        if check_instances(r, entries, fields.key_span("components")) {
            for entry in entries {
                r.used_case = None;
                let read = read_component(r, entry);
                let is_service = |c: &ComponentSpec| matches!(c.kind, ComponentKind::Service(_));
                differs = differs.or(r.used_case.filter(|_| read.iter().any(is_service)));
                spec.components.extend(read);
            }
        }
        names_differ(r, entries);
    }
    spec.engine = r.text(&fields, "engine");
    spec.compose =
        fields.get("compose").and_then(|n| read_compose(r, n, fields.key_span("compose"), differs));
    services_have_a_file(r, &spec, &fields, components);
    spec.seed = read_commands(r, &fields, "seed");
    spec.before_trial = read_commands(r, &fields, "before_trial");
    spec.after_trial = read_commands(r, &fields, "after_trial");
    spec.sample_interval_ns = match r.choice(&fields, "sample_rate") {
        Some("2/s") => Some(SECOND_NS / 2),
        Some("4/s") => Some(SECOND_NS / 4),
        Some("10/s") => Some(SECOND_NS / 10),
        _ => None,
    };
    if let Some(node) = fields.get("probes") {
        for entry in r.map(node, "a map of probes by name") {
            r.check_word(&entry.key, entry.key_span, "a probe");
            if loadlab_record::expr::built_in_kind(&entry.key).is_some() {
                let message = format!("`{}` already has another meaning in conditions", entry.key);
                r.push(Problem::new(entry.key_span, message).hint("rename the probe"));
            }
            spec.probes.extend(probes::read(r, entry));
        }
    }
    spec
}

/// Reports services without a Compose file: a service belongs to one.
fn services_have_a_file(
    r: &mut Reader<'_>,
    spec: &SystemSpec,
    fields: &Fields<'_>,
    components: Option<&Node>,
) {
    for entry in components.map_or(&[][..], Node::entries) {
        let key = entry.value.entries().iter().find(|e| e.key == "compose");
        if let (Some(key), None, None) = (key, &spec.compose, fields.get("compose")) {
            let problem = Problem::new(key.key_span, "the system has no Compose file for this service");
            r.push(problem.hint("add `compose: docker-compose.yml` next to `components`"));
        }
    }
}

/// A first, silent pass: which components and ports there will be, so that any text can refer to any of them.
fn instances(r: &Reader<'_>, components: &Node) -> Vec<Instance> {
    let mut quiet = Reader::new(r.from(), r.scope);
    let mut found: Vec<Instance> = Vec::new();
    for entry in components.entries() {
        let whole = Fields::of(&entry.value, &keys::COMPONENT, entry.key_span);
        let replicas = quiet.count(&whole, "replicas").unwrap_or(1) as u32;
        for replica in 1..=replicas {
            // Exceeding the limit is reported later; here it must only not take long.
            if found.len() > MAX_REPLICAS as usize {
                return found;
            }
            let name = if replicas == 1 { entry.key.clone() } else { format!("{}{replica}", entry.key) };
            found.push(Instance { name, group: entry.key.clone(), replica, ports: Vec::new() });
            quiet.instances = vec![Instance { ports: Vec::new(), ..found[found.len() - 1].clone() }];
            quiet.own = Some(0);
            let ports = read_ports(&mut quiet, &whole);
            let known = ports.iter().map(|p| KnownPort { variable: p.variable(), number: p.number });
            // Its address is known only once it is up, whatever its kind.
            let address = KnownPort { variable: "address".to_owned(), number: None };
            let last = found.len() - 1;
            found[last].ports = known.chain([address]).collect();
            quiet.own = None;
        }
    }
    found
}

/// Whether all replicas can be read in reasonable time; reported once if not.
fn check_instances(r: &mut Reader<'_>, entries: &[Entry], at: Span) -> bool {
    if r.instances.len() > MAX_REPLICAS as usize {
        r.push(Problem::new(
            at,
            format!("the system has more than {MAX_REPLICAS} components with their replicas"),
        ));
        return false;
    }
    let replicas = |entry: &Entry| r.instances.iter().filter(|i| i.group == entry.key).count();
    r.cost += entries.iter().map(|e| e.value.size() * replicas(e)).sum::<usize>();
    let fit = r.cost <= MAX_EXPANDED;
    if !fit {
        r.push(Problem::new(at, "the system with all its replicas is too large").hint("fewer replicas"));
    }
    fit
}

/// Reports clashing names: `edge` with two replicas is `edge1` and `edge2`, and no other component may have one of
/// these names.
fn names_differ(r: &mut Reader<'_>, entries: &[Entry]) {
    let clash = |r: &Reader<'_>, entry: &Entry| {
        r.instances.iter().find(|i| i.name == entry.key && i.group != entry.key).map(|i| i.group.clone())
    };
    for entry in entries {
        if let Some(group) = clash(r, entry) {
            let message = format!("`{}` is also the name of a replica of `{group}`", entry.key);
            r.push(Problem::new(entry.key_span, message).hint("rename one of the two"));
        }
    }
}

/// Reads all replicas of a component.
fn read_component(r: &mut Reader<'_>, entry: &Entry) -> Vec<ComponentSpec> {
    if !r.check_name(&entry.key, entry.key_span, "a component") {
        return Vec::new();
    }
    if RESERVED.contains(&entry.key.as_str()) {
        let message = format!("`{}` is a reserved name", entry.key);
        let hint = "rename the component: the record uses `host`, `loadlab` and `probes` for other samples";
        r.push(Problem::new(entry.key_span, message).hint(hint));
    }
    let Some(fields) = r.fields(&entry.value, &keys::COMPONENT, entry.key_span) else { return Vec::new() };
    let own: Vec<usize> = (0..r.instances.len()).filter(|i| r.instances[*i].group == entry.key).collect();
    ports_differ(r, &own, &fields);
    let mut specs = Vec::new();
    for index in &own {
        r.own = Some(*index);
        r.used_case = None;
        specs.extend(read_replica(r, &fields, own.len() as u32));
        r.own = None;
    }
    specs
}

fn ports_differ(r: &mut Reader<'_>, own: &[usize], fields: &Fields<'_>) {
    let (Some(first), Some(second)) = (own.first(), own.get(1)) else { return };
    let (first, second) = (&r.instances[*first].ports, &r.instances[*second].ports);
    let same = first.iter().find(|p| p.number.is_some() && second.iter().any(|q| q.number == p.number));
    if let Some(number) = same.and_then(|p| p.number) {
        let key = if fields.get("port").is_some() { "port" } else { "ports" };
        let problem = Problem::new(fields.key_span(key), format!("all replicas would have port {number}"));
        r.push(problem.hint("use `auto`, or put `${replica}` in it"));
    }
}

/// Reads one replica, if everything required is valid.
fn read_replica(r: &mut Reader<'_>, fields: &Fields<'_>, replicas: u32) -> Option<ComponentSpec> {
    let instance = r.own.and_then(|i| r.instances.get(i))?.clone();
    r.count(fields, "replicas");
    let kind = read_kind(r, fields);
    let build = read_builds(r, fields);
    let env = read_env(r, fields);
    let dir = match fields.get("dir") {
        Some(node) => r.scalar(node, "a folder").map(|s| in_folder(r.plan_dir, &s.text)),
        None => Some(r.plan_dir.to_owned()),
    };
    let ports = read_ports(r, fields);
    let ready = fields.get("ready").and_then(|n| read_ready(r, n, fields.key_span("ready")));
    check_ready(r, fields, kind.as_ref(), ready.as_ref());
    // Limits are changed on the running component when the case changes, so they may differ; its cores are not.
    let used_case = r.used_case;
    r.used_case_for_cores = None;
    let limits =
        fields.get("limits").map(|n| limits::read(r, n, fields.key_span("limits"))).unwrap_or_default();
    r.used_case = used_case.or(r.used_case_for_cores);
    let stop = read_stop(r, fields);
    let lifetime = match r.choice(fields, "lifetime") {
        Some("case") => Lifetime::Case,
        Some("experiment") => Lifetime::Experiment,
        _ => Lifetime::Trial,
    };
    if let (Lifetime::Experiment, Some(used)) = (lifetime, r.used_case) {
        let message =
            format!("`{}` lives for the whole experiment, but this differs between cases", instance.group);
        let problem = Problem::new(used, message).related("because of this", fields.key_span("lifetime"));
        r.push(problem.hint("use `lifetime: case` or `lifetime: trial`"));
    }
    let Instance { name, group, replica, .. } = instance;
    Some(ComponentSpec {
        name,
        group,
        replica,
        replicas,
        kind: kind?,
        build,
        env,
        dir: dir?,
        ports,
        ready,
        limits,
        is_relayed: false,
        lifetime,
        stop,
    })
}

/// Refuses readiness signs that this kind of component cannot give.
fn check_ready(
    r: &mut Reader<'_>,
    fields: &Fields<'_>,
    kind: Option<&ComponentKind>,
    ready: Option<&ReadySpec>,
) {
    let (message, hint) = match (kind, ready.map(|r| &r.sign)) {
        (Some(ComponentKind::Process(_)), Some(ReadySign::Health)) => {
            ("a process has no health check", "use `http`, `tcp` or `log`")
        }
        (Some(ComponentKind::External(_)), Some(ReadySign::Log(_) | ReadySign::Health)) => {
            ("it runs already, so loadlab cannot read its output", "use `http` or `tcp`")
        }
        _ => return,
    };
    r.push(Problem::new(fields.key_span("ready"), message).hint(hint));
}

/// Reads one shell line, or a list of commands that run one after another.
fn read_commands(r: &mut Reader<'_>, fields: &Fields<'_>, key: &str) -> Vec<Command> {
    match fields.get(key) {
        None => Vec::new(),
        Some(Node { value: Value::List(items), .. }) => {
            items.iter().filter_map(|n| read_command(r, n)).collect()
        }
        Some(node) => read_command(r, node).into_iter().collect(),
    }
}

/// Reads build commands. Builds run before there is a run folder or a port, so their texts must be complete.
fn read_builds(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Command> {
    let commands = read_commands(r, fields, "build");
    let late = |t: &Template| t.names().next().map(str::to_owned);
    for command in &commands {
        let name = match command {
            Command::Shell(line) => late(line),
            Command::Words(words) => words.iter().find_map(late),
        };
        if let (Some(name), Some(node)) = (name, fields.get("build")) {
            let message =
                format!("`${{{name}}}` is known only while the system runs, but builds finish earlier");
            r.push(Problem::new(r.inner_span(node, &name), message));
        }
    }
    commands
}

fn read_ports(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<PortSpec> {
    let mut ports = Vec::new();
    if let Some(node) = fields.get("port") {
        ports.extend(read_port(r, node).map(|number| PortSpec { name: None, number }));
    }
    if let Some(node) = fields.get("ports") {
        for entry in r.map(node, "a map of ports by name") {
            r.check_name(&entry.key, entry.key_span, "a port");
            let number = read_port(r, &entry.value);
            ports.extend(number.map(|number| PortSpec { name: Some(entry.key.clone()), number }));
        }
    }
    ports
}

fn read_port(r: &mut Reader<'_>, node: &Node) -> Option<Option<u16>> {
    let scalar = r.scalar(node, "`auto` or a port number")?;
    if scalar.text == "auto" {
        return Some(None);
    }
    match scalar.text.parse::<u16>() {
        Ok(number) if number > 0 => Some(Some(number)),
        _ => {
            let message =
                format!("`{}` is not a port: `auto`, or a number from 1 to 65535", shorten(&scalar.text));
            r.wrong(&scalar, message, None);
            None
        }
    }
}

fn read_ready(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<ReadySpec> {
    let fields = r.fields(node, &keys::READY, at)?;
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(30 * SECOND_NS);
    let sign = if let Some(node) = fields.get("http") {
        ReadySign::Http(read_url(r, node)?)
    } else if let Some(node) = fields.get("tcp") {
        let address = r.template(node, "HOST:PORT")?;
        check_rendered(r, node, &address, url::host_and_port)?;
        ReadySign::Tcp(address)
    } else if fields.get("health").is_some() {
        if r.flag(&fields, "health") == Some(false) {
            r.push(Problem::new(fields.key_span("health"), "`health` can only be true").hint("leave it out"));
        }
        ReadySign::Health
    } else {
        let node = fields.get("log")?;
        let text = r.template(node, "a text")?;
        if text.to_string().is_empty() || text.to_string().contains('\n') {
            r.push(Problem::new(node.span, "expected part of a single line for `log`"));
            return None;
        }
        ReadySign::Log(text)
    };
    Some(ReadySpec { sign, timeout_ns })
}

fn read_stop(r: &mut Reader<'_>, fields: &Fields<'_>) -> StopSpec {
    let fallback = StopSpec { signal: SIGNALS[0].to_owned(), timeout_ns: 10 * SECOND_NS };
    let Some(node) = fields.get("stop") else { return fallback };
    let Some(fields) = r.fields(node, &keys::STOP, fields.key_span("stop")) else { return fallback };
    let signal = r.choice(&fields, "signal").unwrap_or(SIGNALS[0]);
    let timeout_ns = r.duration(&fields, "timeout").unwrap_or(fallback.timeout_ns);
    StopSpec { signal: signal.to_owned(), timeout_ns }
}
