//! A plan for a Compose file: its services as components, and a load on the one that publishes a port. The file is
//! parsed as written; Compose itself is only needed to run the plan.

use std::path::Path;

use loadlab_record::watch::names::RESERVED;
use serde_json::Value;

use crate::commands::url_plan::{absolute, literal};

/// Ports on which web services usually listen, the likeliest first.
const WEB: &[u16] = &[80, 8080, 8000, 3000, 5000, 443, 8443, 8081, 9000];

/// Ports of services that do not speak HTTP.
const OTHERS: &[u16] = &[
    21, 22, 25, 53, 1433, 1521, 1883, 2181, 3306, 4222, 5432, 5671, 5672, 6379, 9042, 9092, 11211, 26257,
    27017,
];

/// The parts of a service that a plan needs.
struct Service {
    name: String,
    /// Its name in the plan.
    component: String,
    /// TCP ports inside the container: published, or else exposed.
    ports: Vec<u16>,
    is_published: bool,
    has_check: bool,
}

/// The plan for a Compose file, to be placed in that folder.
///
/// # Errors
/// The reason in words: it cannot be read, or has nothing to load.
pub fn plan(file: &Path, plan_dir: &Path) -> Result<String, String> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {shown}: {e}"))?;
    let here = plan_dir == Path::new(".") && file.is_relative();
    let path = if here { shown.to_string() } else { absolute(file) };
    plan_of(&text, &path).map_err(|why| format!("{shown}: {why}"))
}

fn plan_of(text: &str, path: &str) -> Result<String, String> {
    let compose: Value = serde_saphyr::from_str(text).map_err(|e| {
        format!("not a Compose file: {e}\nhint: `docker compose config` says what is wrong with it")
    })?;
    let Some(services) = compose["services"].as_object().filter(|s| !s.is_empty()) else {
        let is_plan = !compose["loadlab"].is_null();
        return Err(match is_plan {
            true => "this is already a plan\nhint: `loadlab check` it, or `loadlab run` it".to_owned(),
            false => {
                "not a Compose file: it has no `services`\nhint: `loadlab init URL` writes a plan for a URL"
                    .to_owned()
            }
        });
    };
    // Services with a profile are not brought up unless the profile is asked for.
    let is_up = |service: &Value| service["profiles"].as_array().is_none_or(Vec::is_empty);
    let services = services.iter().filter(|(_, service)| is_up(service));
    let services: Vec<Service> = services.map(|(name, service)| service_of(name, service)).collect();
    let (target, port) = target_of(&services)?;
    let scheme = if matches!(port, 443 | 8443) { "https" } else { "http" };
    let trust = if scheme == "https" { "  tls: { insecure: true }\n" } else { "" };
    let mut out = format!(
        "loadlab: 1
name: {}
# The Compose file is brought up unchanged for each trial, and removed after it.
system:
  compose: {}
  components:
",
        serde_json::Value::from(target.name.as_str()),
        serde_json::Value::from(literal(path)),
    );
    for service in &services {
        out.push_str(&component(service));
    }
    out.push_str(&format!(
        "load:
  users: 10
  duration: 10s
{trust}  journey:
    # The container's own address: nothing is between the load and the service.
    - {{ get: \"{scheme}://${{components.{}.address}}:{port}/\" }}
# trials: 5                           # from five trials on, `loadlab compare` tells differences from chance
expect: [\"errors < 1%\"]
",
        target.component
    ));
    Ok(out)
}

/// A line of `components`.
fn component(service: &Service) -> String {
    let Service { name, component, .. } = service;
    match (service.has_check, service.ports.first()) {
        (true, _) => {
            format!("    {component}: {{ compose: {name} }}  # ready when its health check passes\n")
        }
        (false, Some(port)) => {
            format!("    {component}: {{ compose: {name}, ready: {{ tcp: \"${{address}}:{port}\" }} }}\n")
        }
        (false, None) => {
            format!("    {component}: {{ compose: {name} }}  # ready as soon as it runs\n")
        }
    }
}

/// A service's name in a plan, which knows neither capitals nor dots in it, and has names of its own.
fn component_name(service: &str) -> String {
    let name = service.to_ascii_lowercase().replace('.', "-");
    if RESERVED.contains(&name.as_str()) { format!("{name}-service") } else { name }
}

fn service_of(name: &str, service: &Value) -> Service {
    let listed = |key: &str| service[key].as_array().cloned().unwrap_or_default();
    let published: Vec<u16> = listed("ports").iter().filter_map(container_port).collect();
    let exposed: Vec<u16> = listed("expose").iter().filter_map(container_port).collect();
    let check = &service["healthcheck"];
    let is_off = check["disable"] == true || check["test"] == "NONE" || check["test"][0] == "NONE";
    Service {
        name: name.to_owned(),
        component: component_name(name),
        is_published: !published.is_empty(),
        ports: if published.is_empty() { exposed } else { published },
        has_check: check.is_object() && !is_off,
    }
}

/// The port inside the container in `8080:80`, `127.0.0.1:8080:80/tcp`, `80`, `{target: 80}`; `None` for UDP and for
/// variables.
fn container_port(port: &Value) -> Option<u16> {
    if let Some(target) = port.get("target") {
        let is_tcp = port["protocol"].as_str().is_none_or(|p| p == "tcp");
        let text = target.as_str().map(str::to_owned).unwrap_or_else(|| target.to_string());
        return text.parse().ok().filter(|_| is_tcp);
    }
    let text = port.as_str().map_or_else(|| port.to_string(), str::to_owned);
    let (address, protocol) = text.split_once('/').unwrap_or((&text, "tcp"));
    // A variable's default may have colons before the last port.
    let inside = address.rsplit(':').next().unwrap_or_default();
    let first = inside.split('-').next().unwrap_or_default();
    first.parse().ok().filter(|_| protocol == "tcp")
}

/// The service to load, and its port: a web port before others, published before exposed.
fn target_of(services: &[Service]) -> Result<(&Service, u16), String> {
    let ports = |published: bool| {
        let matching = services.iter().filter(move |s| s.is_published == published);
        matching.flat_map(|s| s.ports.iter().map(move |port| (s, *port)))
    };
    let candidates: Vec<(&Service, u16)> =
        ports(true).chain(ports(false)).filter(|(_, port)| !OTHERS.contains(port)).collect();
    let rank = |port: u16| WEB.iter().position(|web| *web == port).unwrap_or(WEB.len());
    let best = candidates.iter().min_by_key(|(service, port)| (!service.is_published, rank(*port)));
    best.copied().ok_or_else(|| {
        "no service publishes a port that may speak HTTP, so what to load is unknown\nhint: give the service `ports` in \
         the file, or write the plan by hand: docs/how-to/compose.md shows how"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_plan::{Options, Plan};

    fn planned(compose: &str) -> String {
        let text = plan_of(compose, "compose.yaml").unwrap_or_else(|e| panic!("{e}"));
        Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        text
    }

    #[test]
    fn a_file_with_everything() {
        let text = planned(
            "services:
  db: { image: postgres, ports: ['5432:5432'], healthcheck: { test: pg_isready } }
  web: { image: nginx, ports: ['127.0.0.1:9090:80'], depends_on: [db] }
  worker: { image: worker, healthcheck: { disable: true } }
",
        );
        insta::assert_snapshot!(text, @r#"
        loadlab: 1
        name: "web"
        # The Compose file is brought up unchanged for each trial, and removed after it.
        system:
          compose: "compose.yaml"
          components:
            db: { compose: db }  # ready when its health check passes
            web: { compose: web, ready: { tcp: "${address}:80" } }
            worker: { compose: worker }  # ready as soon as it runs
        load:
          users: 10
          duration: 10s
          journey:
            # The container's own address: nothing is between the load and the service.
            - { get: "http://${components.web.address}:80/" }
        # trials: 5                           # from five trials on, `loadlab compare` tells differences from chance
        expect: ["errors < 1%"]
        "#);
    }

    #[test]
    fn ports_in_every_form() {
        for (port, url) in [
            ("'8080:80'", "http://${components.web.address}:80/"),
            ("80", "http://${components.web.address}:80/"),
            ("'80'", "http://${components.web.address}:80/"),
            ("'127.0.0.1:8080:8000/tcp'", "http://${components.web.address}:8000/"),
            ("'[::1]:8080:8000'", "http://${components.web.address}:8000/"),
            ("'8080-8081:3000-3001'", "http://${components.web.address}:3000/"),
            ("{ target: 5000, published: 8080 }", "http://${components.web.address}:5000/"),
            ("{ target: '5000', published: '8080' }", "http://${components.web.address}:5000/"),
            ("'${PORT:-8080}:80'", "http://${components.web.address}:80/"),
            ("'8443:443'", "https://${components.web.address}:443/"),
        ] {
            let text = planned(&format!("services: {{ web: {{ image: x, ports: [{port}] }} }}"));
            assert!(text.contains(&format!("get: \"{url}\"")), "{port}: {text}");
        }
    }

    #[test]
    fn services_that_stay_down_are_left_out() {
        let text = planned(
            "services:
  web: { image: nginx, ports: ['8080:80'], profiles: [] }
  adminer: { image: adminer, ports: ['80:80'], profiles: [debug] }
",
        );
        assert!(text.contains("${components.web.address}:80") && !text.contains("adminer"), "{text}");
    }

    #[test]
    fn services_have_names_that_a_plan_can_have() {
        let text = planned("services: { Shop.Web: { ports: ['80'] }, host: { image: x } }");
        assert!(text.contains("    shop-web: { compose: Shop.Web, ready"), "{text}");
        assert!(text.contains("    host-service: { compose: host }"), "{text}");
        assert!(text.contains("${components.shop-web.address}:80"), "{text}");
    }

    #[test]
    fn what_cannot_be_loaded_is_said() {
        for (compose, why) in [
            ("services: { db: { image: redis, ports: ['6379:6379'] } }", "no service publishes a port"),
            ("services: { dns: { image: x, ports: ['53:5353/udp'] } }", "no service publishes a port"),
            ("services: {}", "it has no `services`"),
            ("name: x", "it has no `services`"),
            ("loadlab: 1", "this is already a plan"),
            ("a: [", "not a Compose file"),
        ] {
            let said = plan_of(compose, "compose.yaml").unwrap_err();
            assert!(said.contains(why) && said.contains("hint: "), "{compose}: {said}");
        }
    }
}
