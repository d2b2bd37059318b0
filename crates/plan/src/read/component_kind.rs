//! Reads components that loadlab does not start as processes.

use loadlab_record::text::time::SECOND_NS;

use crate::keys::{BUILD, COMPOSE, CONTAINER, EXTERNAL, HEALTH};
use crate::model::component_kind::Lifetime;
use crate::model::component_kind::{
    ComponentKind, ComposeSpec, ContainerSpec, External, HealthSpec, Image, Network,
};
use crate::model::template::Template;
use crate::read::reader::{Fields, Reader};
use crate::read::texts::{in_folder, read_command, read_env, read_url};
use crate::text::error::Problem;
use crate::text::node::{Node, Value};
use crate::text::shorten::shorten;
use crate::text::span::Span;

/// Reads what a component is: one of the four keys.
pub(crate) fn read_kind(r: &mut Reader<'_>, fields: &Fields<'_>) -> Option<ComponentKind> {
    if let Some(node) = fields.get("run") {
        return read_command(r, node).map(ComponentKind::Process);
    }
    if let Some(node) = fields.get("container") {
        let container = read_container(r, node, fields)?;
        return Some(ComponentKind::Container(Box::new(container)));
    }
    if let Some(node) = fields.get("compose") {
        refuse(
            r,
            fields,
            &["replicas", "dir", "port", "ports", "lifetime", "stop", "build"],
            "the Compose file sets it",
        );
        return r.scalar(node, "the name of a service").map(|s| ComponentKind::Service(s.text));
    }
    let node = fields.get("external")?;
    let keys = ["replicas", "dir", "port", "ports", "lifetime", "stop", "build", "limits", "env"];
    refuse(r, fields, &keys, "it runs already");
    read_external(r, node, fields.key_span("external")).map(ComponentKind::External)
}

/// Refuses keys that have no meaning for such a component.
fn refuse(r: &mut Reader<'_>, fields: &Fields<'_>, keys: &[&str], why: &str) {
    for key in keys.iter().filter(|key| fields.get(key).is_some()) {
        let message = format!("`{key}` cannot be used here: {why}");
        r.push(Problem::new(fields.key_span(key), message).hint("leave it out"));
    }
}

fn read_container(r: &mut Reader<'_>, node: &Node, component: &Fields<'_>) -> Option<ContainerSpec> {
    let fields = r.fields(node, &CONTAINER, component.key_span("container"))?;
    let image = match fields.get("build") {
        Some(node) => read_build(r, node, fields.key_span("build")),
        None => r.text(&fields, "image").map(Image::Named),
    };
    let command = fields.get("command").and_then(|n| read_command(r, n));
    let texts = |r: &mut Reader<'_>, key: &str| -> Vec<Template> {
        let Some(node) = fields.get(key) else { return Vec::new() };
        r.list(node, "a list of texts").iter().filter_map(|n| r.template(n, "a text")).collect()
    };
    let entrypoint = texts(r, "entrypoint");
    let volumes = read_volumes(r, &fields);
    let ports = read_inner_ports(r, &fields, component);
    let network = match r.text(&fields, "network").as_deref() {
        None | Some("run") => Network::Run,
        Some("host") => Network::Host,
        Some("none") => Network::None,
        Some(name) => Network::Named(name.to_owned()),
    };
    let health = fields.get("health").and_then(|n| read_health(r, n, fields.key_span("health")));
    let user = r.text(&fields, "user");
    Some(ContainerSpec { image: image?, command, entrypoint, ports, volumes, network, health, user })
}

/// Reads the ports in the container: each is behind a port of the component.
fn read_inner_ports(r: &mut Reader<'_>, fields: &Fields<'_>, component: &Fields<'_>) -> Vec<(String, u16)> {
    let mut ports = Vec::new();
    if let Some(port) = r.count(fields, "port") {
        ports.push(("port".to_owned(), port as u16));
        same_port(r, component, "port", fields.key_span("port"));
    }
    if let Some(node) = fields.get("ports") {
        for entry in r.map(node, "a map of ports by name") {
            let scalar = r.scalar(&entry.value, "a port number");
            let number = scalar.as_ref().and_then(|s| s.text.parse::<u16>().ok()).filter(|n| *n > 0);
            match (number, scalar) {
                (Some(number), _) => ports.push((format!("port.{}", entry.key), number)),
                (None, Some(scalar)) => {
                    r.wrong(&scalar, format!("`{}` is not a port", shorten(&scalar.text)), None);
                }
                (None, None) => {}
            }
            let has = component.get("ports").is_some_and(|n| n.entries().iter().any(|e| e.key == entry.key));
            if !has {
                let message = format!("the component has no port `{}` for this", entry.key);
                r.push(
                    Problem::new(entry.key_span, message)
                        .hint("`auto`, or a number, in the component's `ports`"),
                );
            }
        }
    }
    ports
}

fn same_port(r: &mut Reader<'_>, component: &Fields<'_>, key: &str, at: Span) {
    if component.get(key).is_none() {
        let problem = Problem::new(at, "the component has no `port` for this");
        r.push(problem.hint("`port: auto`, or a number: where it is reached on this machine"));
    }
}

fn read_volumes(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<Template> {
    let Some(node) = fields.get("volumes") else { return Vec::new() };
    let mut volumes = Vec::new();
    for item in r.list(node, "a list such as `[./data:/data]`") {
        let Some(scalar) = r.scalar(item, "`SOURCE:TARGET`") else { continue };
        let parts: Vec<&str> = scalar.text.split(':').collect();
        let is_volume = match parts.as_slice() {
            [source, target] | [source, target, "ro" | "rw"] => !source.is_empty() && target.starts_with('/'),
            _ => false,
        };
        if !is_volume {
            let message = format!("`{}` is not a volume", shorten(&scalar.text));
            r.wrong(&scalar, message, Some("`./folder:/in/container` or `name:/in/container`".to_owned()));
            continue;
        }
        let (source, rest) = scalar.text.split_once(':').unwrap_or_default();
        let text = match source.starts_with(['.', '/']) {
            true => format!("{}:{rest}", in_folder(r.plan_dir, source)),
            false => scalar.text.clone(),
        };
        volumes.push(Template::text(text));
    }
    volumes
}

fn read_build(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<Image> {
    if !matches!(node.value, Value::Map(_)) {
        let folder = r.scalar(node, "a folder, or a map")?;
        let context = in_folder(r.plan_dir, &folder.text);
        return Some(Image::Built { context, dockerfile: None, args: Vec::new(), target: None });
    }
    let fields = r.fields(node, &BUILD, at)?;
    let mut args = Vec::new();
    if let Some(node) = fields.get("args") {
        for entry in r.map(node, "a map of values") {
            args.extend(r.scalar(&entry.value, "a text").map(|s| (entry.key.clone(), s.text)));
        }
    }
    Some(Image::Built {
        context: r.text(&fields, "context").map(|text| in_folder(r.plan_dir, &text))?,
        dockerfile: r.text(&fields, "dockerfile"),
        args,
        target: r.text(&fields, "target"),
    })
}

fn read_health(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<HealthSpec> {
    let fields = r.fields(node, &HEALTH, at)?;
    Some(HealthSpec {
        interval_ns: r.positive_duration(&fields, "interval").unwrap_or(SECOND_NS),
        timeout_ns: r.positive_duration(&fields, "timeout").unwrap_or(5 * SECOND_NS),
        retries: r.count(&fields, "retries").unwrap_or(3) as u32,
        command: read_command(r, fields.get("command")?)?,
    })
}

/// Reads `system.compose`; `differs` is where its services differ between cases.
pub(crate) fn read_compose(
    r: &mut Reader<'_>,
    node: &Node,
    at: Span,
    differs: Option<Span>,
) -> Option<ComposeSpec> {
    let plain = |file: String| ComposeSpec {
        file,
        env: Vec::new(),
        lifetime: Lifetime::Trial,
        timeout_ns: 300 * SECOND_NS,
    };
    if !matches!(node.value, Value::Map(_)) {
        let file = r.scalar(node, "a Compose file, or a map")?;
        return Some(plain(in_folder(r.plan_dir, &file.text)));
    }
    r.used_case = None;
    let fields = r.fields(node, &COMPOSE, at)?;
    let env = read_env(r, &fields);
    let lifetime = match r.choice(&fields, "lifetime") {
        Some("case") => Lifetime::Case,
        Some("experiment") => Lifetime::Experiment,
        _ => Lifetime::Trial,
    };
    let timeout_ns = r.positive_duration(&fields, "timeout").unwrap_or(300 * SECOND_NS);
    let file = r.text(&fields, "file");
    if let (Lifetime::Experiment, Some(used)) = (lifetime, r.used_case.or(differs)) {
        let message = "the Compose file lives for the whole experiment, but this differs between cases";
        let problem = Problem::new(used, message).related("because of this", fields.key_span("lifetime"));
        r.push(problem.hint("use `lifetime: case` or `lifetime: trial`"));
    }
    let file = file?;
    Some(ComposeSpec { env, lifetime, timeout_ns, ..plain(in_folder(r.plan_dir, &file)) })
}

fn read_external(r: &mut Reader<'_>, node: &Node, at: Span) -> Option<External> {
    let fields = r.fields(node, &EXTERNAL, at)?;
    if let Some(node) = fields.get("pid") {
        let scalar = r.scalar(node, "a pid")?;
        let pid = scalar.text.parse::<u32>().ok().filter(|pid| *pid > 0);
        if pid.is_none() {
            r.wrong(&scalar, format!("`{}` is not a pid", shorten(&scalar.text)), None);
        }
        return pid.map(External::Pid);
    }
    if let Some(url) = fields.get("prometheus") {
        let mut labels = Vec::new();
        if let Some(node) = fields.get("match") {
            for entry in r.map(node, "a map of labels") {
                labels.extend(r.scalar(&entry.value, "a text").map(|s| (entry.key.clone(), s.text)));
            }
        }
        return read_url(r, url).map(|url| External::Prometheus { url, labels });
    }
    if let Some(command) = r.text(&fields, "command") {
        return Some(External::Command(command));
    }
    if let Some(path) = r.text(&fields, "cgroup") {
        return Some(External::Cgroup(path));
    }
    r.text(&fields, "container").map(External::Container)
}
