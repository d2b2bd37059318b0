//! Mistakes in components that are not processes: each at its place, with a remedy.

use loadlab_plan::{ComponentKind, External, Image, Isolation, Options, Plan};

use crate::common;
use crate::common::{HEAD, LOAD, briefly};

fn of(system: &str) -> String {
    briefly(&format!("{HEAD}{LOAD}system:\n  {system}\n"), &Options::default())
}

#[test]
fn mistakes_in_containers_services_and_externals() {
    for (system, expect) in [
        ("components: { a: {} }", "a component needs one of `run`, `container`, `compose`, `external`"),
        (
            "components: { a: { run: x, container: { image: y } } }",
            "`run` and `container` cannot be combined",
        ),
        ("components: { a: { container: { user: root } } }", "`container` needs one of `image`, `build`"),
        ("components: { a: { container: { image: x, port: 80 } } }", "the component has no `port` for this"),
        (
            "components: { a: { container: { image: x, ports: { admin: 80 } } } }",
            "the component has no port `admin` for this",
        ),
        ("components: { a: { container: { image: x, volumes: [data] } } }", "`data` is not a volume"),
        ("components: { a: { compose: web } }", "the system has no Compose file for this service"),
        (
            "{ compose: c.yml, components: { a: { compose: web, lifetime: case } } }",
            "`lifetime` cannot be used here: the Compose file sets it",
        ),
        ("components: { a: { external: { pid: first } } }", "`first` is not a pid"),
        (
            "components: { a: { external: { pid: 7 }, limits: { cpu: 1% } } }",
            "`limits` cannot be used here: it runs already",
        ),
        (
            "components: { a: { external: { pid: 7 }, ready: { log: up } } }",
            "so loadlab cannot read its output",
        ),
        ("components: { a: { run: x, ready: { health: true } } }", "a process has no health check"),
    ] {
        let all = of(system);
        assert!(all.contains(expect), "{system}: {all}");
        assert_eq!(all.matches("plan.yaml:").count(), 1, "only this: {all}");
    }
    let all = briefly(&format!("{HEAD}{LOAD}isolate: maybe\n"), &Options::default());
    let container = "system: { components: { a: { container: { image: x } } } }\n";
    let both = briefly(&format!("{HEAD}{LOAD}isolate: shared\n{container}"), &Options::default());
    assert!(both.contains("`a` cannot join the networks of the run"), "{both}");
    assert!(all.contains("`maybe` is not `true`, `false` or `shared`"), "{all}");
}

#[test]
fn containers_services_and_externals_are_read() {
    let plan = common::plan("containers", &Options::default());
    let system = &plan.cases()[0].system;
    let kind = |name: &str| &system.components.iter().find(|c| c.name == name).expect("a component").kind;
    assert_eq!(kind("cart"), &ComponentKind::Service("cart".into()));
    assert_eq!(kind("queue"), &ComponentKind::External(External::Command("rabbitmq-server".into())));
    let ComponentKind::Container(web) = kind("web2") else { panic!("a container") };
    assert!(matches!(&web.image, Image::Built { context, .. } if context == "lab/web"), "{:?}", web.image);
    let ComponentKind::Container(db) = kind("db") else { panic!("a container") };
    let volumes: Vec<String> = db.volumes.iter().map(ToString::to_string).collect();
    assert_eq!(volumes, ["data:/data", "lab/redis.conf:/etc/redis.conf:ro"]);
    assert_eq!(db.ports, [("port".to_owned(), 6379)]);
    assert_eq!(system.compose.as_ref().map(|c| c.file.as_str()), Some("lab/shop/docker-compose.yml"));
    for (text, expect) in
        [("true", Isolation::Each), ("shared", Isolation::Shared), ("false", Isolation::None)]
    {
        let text = format!("{HEAD}{LOAD}isolate: {text}\n");
        assert_eq!(Plan::parse("p.yaml", &text, &Options::default()).expect("a plan").isolate, expect);
    }
}
