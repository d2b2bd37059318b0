//! Compose files of ordinary projects, brought up unchanged: health checks that other services wait for, one-off
//! services, variables from files, networks, volumes, profiles, extensions, several containers per service.

use crate::common::ports;
use serde_json::Value;

use crate::run_support::Lab;
use crate::run_support::engine::{Engine, context};

/// A shop as in a typical README: a database that others wait for, a migration before the start, a cache, and an
/// optional mail catcher.
const SHOP: &str = r#"
x-logging: &logging
  logging: { driver: json-file, options: { max-size: "1m" } }
services:
  db:
    <<: *logging
    image: postgres:16
    restart: unless-stopped
    environment: { POSTGRES_PASSWORD: "${DB_PASSWORD:?set it in .env}" }
    command: sh -c "sleep 1; touch /data/ready; exec sleep 1000"
    volumes: ["db-data:/data"]
    networks: [back]
    healthcheck: { test: ["CMD-SHELL", "test -e /data/ready"], interval: 1s, timeout: 2s, retries: 30 }
    stop_signal: SIGKILL
  migrate:
    image: postgres:16
    command: sh -c "cat /data/ready && echo migrated"
    volumes: ["db-data:/data"]
    networks: [back]
    depends_on: { db: { condition: service_healthy } }
  web:
    <<: *logging
    build: { context: ./image, args: { GREETING: "built" } }
    image: shop/web:dev
    env_file: [web.env]
    environment: [DATABASE_URL=postgres://db:5432/shop]
    command: ["/bin/sh", "-c", "echo $$GREETING $$FROM_FILE $$DATABASE_URL > /index.html; exec httpd -f -p 8080 -h /"]
    ports: ["127.0.0.1:${WEB_PORT}:8080"]
    volumes: ["./image/Dockerfile:/etc/app.conf:ro"]
    networks: { front: {}, back: { aliases: [app] } }
    depends_on: { db: { condition: service_healthy }, migrate: { condition: service_completed_successfully } }
    healthcheck: { test: wget -q -O - http://localhost:8080/ || exit 1, interval: 1s, retries: 30 }
    stop_signal: SIGKILL
  mail:
    image: postgres:16
    profiles: [debug]
networks: { front: {}, back: { internal: true } }
volumes: { db-data: {} }
"#;

/// As in older projects, with several workers. The queue may not listen yet when they start.
const WORKERS: &str = r#"
version: "2.4"
services:
  queue:
    image: redis:7
    command: ["/bin/sh", "-c", "echo up > /index.html; exec httpd -f -p 6379 -h /"]
    expose: ["6379"]
    tmpfs: /scratch
    stop_signal: SIGKILL
  worker:
    build: image
    scale: 3
    links: [queue]
    depends_on: [queue]
    command: ["/bin/sh", "-c", "until wget -q -O - http://queue:6379/; do sleep 1; done; echo there; while wget -q -O - http://queue:6379/; do sleep 1; done"]
    mem_limit: 64m
    stop_signal: SIGKILL
"#;

fn free_port() -> u16 {
    ports::unused().port()
}

fn plan(engine: &Engine, file: &str, rest: &str) -> String {
    format!("loadlab: 1\nname: test\nsystem:\n  engine: {}\n  compose: {file}\n{rest}", engine.host())
}

#[test]
fn a_shop_with_all_that_projects_have() {
    let (engine, lab) = (Engine::start(), Lab::new());
    let image = context(lab.path());
    engine.docker(&["build", "--tag", "postgres:16", &image.display().to_string()]);
    let port = free_port();
    lab.file("compose.yaml", SHOP);
    lab.file(".env", &format!("DB_PASSWORD=secret\nWEB_PORT={port}\n"));
    lab.file("web.env", "FROM_FILE=beside\n");
    let check = "check: { contains: \"built beside postgres://db:5432/shop\" }";
    let load = format!(
        "load: {{ users: 2, requests: 100, journey: [{{ get: \"http://127.0.0.1:{port}/\", {check} }}] }}\n\
         expect: [\"errors == 0\"]\n"
    );
    lab.run(&plan(&engine, "compose.yaml", &load), &[]).expect(0, &["db ready", "web ready"]);
    let summary = lab.record().summary("default", 1);
    let names: Vec<&String> = summary["components"].as_object().expect("components").keys().collect();
    assert_eq!(names, ["db", "web"], "the others have ended, or nobody asked for them");
    let notes = lab.record().events("default", 1, "note");
    assert!(notes.iter().any(|n| n["text"] == "migrate finished its work and ended"), "{notes:?}");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
    // Compose itself reports which variable it requires.
    lab.file(".env", "WEB_PORT=1\n");
    let _ = std::fs::remove_dir_all(lab.record().dir);
    lab.run(&plan(&engine, "compose.yaml", &load), &[]).expect(3, &["set it in .env"]);
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

#[test]
fn several_workers_of_an_older_file() {
    let (engine, lab) = (Engine::start(), Lab::new());
    let image = context(lab.path());
    engine.docker(&["build", "--tag", "redis:7", &image.display().to_string()]);
    std::fs::create_dir(lab.path().join("deploy")).expect("a folder can be made");
    std::fs::rename(image, lab.path().join("deploy/image")).expect("it can be moved");
    lab.file("deploy/docker-compose.yml", WORKERS);
    let rest = "  components:\n    worker: { compose: worker, limits: { cpu: 20%, memory: 32MiB }, ready: { log: there, timeout: 60s } }\n\
                load: { users: 1, duration: 1500ms, journey: [{ get: \"http://${components.queue.address}:6379/\" }] }\n";
    // The plan can use the address of a service only if that service is one of its components.
    let rest = rest.replace("  components:\n", "  components:\n    queue: { compose: queue }\n");
    lab.run(&plan(&engine, "deploy/docker-compose.yml", &rest), &[]).expect(0, &["worker3 ready"]);
    let summary = lab.record().summary("default", 1);
    for name in ["worker1", "worker2", "worker3"] {
        let worker = &summary["components"][name];
        assert_eq!(worker["limits"]["memory_bytes"], 32 << 20, "{name}: {worker:#}");
        assert_eq!(worker["limits"]["cpu_cores"], 0.2, "{name}: {worker:#}");
    }
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

/// Two web servers, and one that the plan does not mention; each reports in its own way that it is up.
const TWINS: &str = r#"
services:
  web:
    build: image
    command: ["/bin/sh", "-c", "echo first > /index.html; echo serving; exec httpd -f -p 8080 -h /"]
    stop_signal: SIGKILL
  web2:
    build: image
    command: ["/bin/sh", "-c", "echo at your service; exec sleep 1000"]
    stop_signal: SIGKILL
  web3:
    build: image
    command: ["/bin/sh", "-c", "exec sleep 1000"]
    stop_signal: SIGKILL
"#;

/// The plan's lines for the two web servers.
const TWO: &str = "    web: { compose: web, limits: { memory: \"${case.memory}\" }, ready: { log: serving, timeout: 20s } }\n    \
                   web2: { compose: web2, ready: { log: at your service, timeout: 20s } }\n";

#[test]
fn services_with_similar_names_are_distinguished() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    lab.file("compose.yaml", TWINS);
    let two = TWO.replace("\"${case.memory}\"", "48MiB");
    let rest = format!(
        "  components:\n{two}load: {{ users: 1, requests: 20, journey: [{{ get: \"http://${{components.web.address}}:8080/\" }}] }}\n"
    );
    let text = plan(&engine, "compose.yaml", &rest);
    lab.run(&text, &[]).expect(0, &["web ready", "web2 ready", "web3 ready"]);
    // Only the first is limited.
    let summary = lab.record().summary("default", 1);
    let limits = ["web", "web2", "web3"].map(|n| summary["components"][n]["limits"]["memory_bytes"].clone());
    assert_eq!(limits, [serde_json::json!(48 << 20), Value::Null, Value::Null], "{summary:#}");
    // A missing service is not replaced by one with a similar name.
    let _ = std::fs::remove_dir_all(lab.record().dir);
    lab.file("compose.yaml", &TWINS.replacen("  web:\n", "  web:\n    profiles: [other]\n", 1));
    let without = text.replace("limits: { memory: 48MiB }, ", "");
    assert_ne!(without, text);
    lab.run(&without, &[]).expect(3, &["the Compose file brought up no service `web`", "web2"]);
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

/// A service that lives on from case to case gets each case's limits and is resumed if it was paused; a service that an
/// event ended comes back.
#[test]
fn services_live_on() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let unlike = |text: &str| text.replace("web2", "store").replace("web3", "aside");
    lab.file("compose.yaml", &unlike(TWINS));
    // Only what is paused may time out, however busy the machine is; and there are answers before the event.
    let matrix = "matrix:\n  - { name: paused, memory: 48MiB, do: pause web, wait: 300ms }\n  \
                  - { name: killed, memory: 64MiB, do: kill store, wait: 20s }\n  \
                  - { name: whole, memory: none, do: none, wait: 20s }\n";
    let load = "load: { users: 1, duration: 3s, timeout: \"${case.wait}\", journey: [{ get: \"http://${components.web.address}:8080/\" }] }\n\
                events: [{ at: 1500ms, do: \"${case.do}\" }]\n";
    let rest = format!("  components:\n{}{matrix}{load}", unlike(TWO));
    let text = plan(&engine, "{ file: compose.yaml, lifetime: experiment }", &rest);
    lab.run(&text, &[]).expect(0, &["compose.yaml is restarted: an event had ended store"]);
    let record = lab.record();
    for (case, limit, ups) in
        [("paused", Some(48 << 20), 3), ("killed", Some(64 << 20), 0), ("whole", None, 3)]
    {
        let limited = record.events(case, 1, "limited");
        let of_web = limited.iter().rfind(|e| e["component"] == "web").map(|e| &e["limits"]["memory_bytes"]);
        assert_eq!(of_web.and_then(Value::as_u64), limit, "{case}: {limited:?}");
        assert_eq!(record.events(case, 1, "up").len(), ups, "{case}");
        let summary = record.summary(case, 1);
        let ok = summary["requests"]["ok"].as_u64();
        assert!(ok > Some(0), "{case}: {ok:?}");
        assert_eq!(summary["components"]["web"]["restarts"], 0, "{case}");
        let samples = record.lines(case, 1, "samples.jsonl");
        assert!(samples.iter().any(|s| s["component"] == "store"), "{case}");
    }
    assert_eq!(record.summary("killed", 1)["requests"]["failed"], 0, "it goes on");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

/// No engine is needed, since the plan itself is wrong.
#[test]
fn what_lives_through_the_experiment_cannot_differ() {
    let check = |compose: &str, web: &str, code: i32, holds: &[&str]| {
        let text = format!(
            "loadlab: 1\nname: test\nmatrix: {{ axes: {{ x: [1, 2] }} }}\nsystem:\n  components: {{ web: {{ compose: web, {web} }} }}\n  \
             compose: {{ file: compose.yaml, {compose} }}\n\
             load: {{ users: 1, requests: 1, journey: [{{ get: \"http://${{components.web.address}}/\" }}] }}\n"
        );
        let lab = Lab::new();
        lab.file("plan.yaml", &text);
        lab.loadlab(&["run", "plan.yaml", "--dry-run"]).expect(code, holds);
    };
    let wrong = [
        "lives for the whole experiment, but this differs between cases",
        "because of this",
        "lifetime: case",
    ];
    let env = "env: { X: \"${case.x}\" }";
    check("lifetime: experiment", env, 2, &wrong);
    check(&format!("lifetime: experiment, {env}"), "", 2, &wrong);
    check("lifetime: experiment", "ready: { log: \"${case.x}\" }", 2, &wrong);
    // Limits can be changed on a live service, and one that lives for a case may differ in everything.
    check("lifetime: experiment", "limits: { pids: \"${case.x}0\" }", 0, &[]);
    check(&format!("lifetime: case, {env}"), env, 0, &[]);
    check("timeout: 5m", env, 0, &[]);
}

/// A web server with a volume, a network and a container name, substituted for `VOLUME`, `NETWORK` and `CONTAINER`.
const FIXED: &str = r#"
version: "3.5"
services:
  web:
    build: image
    command: ["/bin/sh", "-c", "cat /data/note > /index.html; echo more >> /data/note; exec httpd -f -p 8080 -h /"]
    volumes: ["data:/data"]
    networks: [shared]
    stop_signal: SIGKILL
CONTAINERvolumes: { data: { VOLUME } }
networks: { shared: { NETWORK } }
"#;

fn fixed(volume: &str, network: &str, container: &str) -> String {
    let container = if container.is_empty() { String::new() } else { format!("    {container}\n") };
    FIXED.replace("VOLUME", volume).replace("NETWORK", network).replace("CONTAINER", &container)
}

/// What existed before the run still exists after it, contents included; the run reports what it would have taken over.
#[test]
fn what_others_have_made_is_never_taken() {
    let (engine, lab) = (Engine::start(), Lab::new());
    let image = context(lab.path()).display().to_string();
    engine.docker(&["build", "--tag", "own", &image]);
    let note = |line: &str| {
        engine.docker(&[
            "run",
            "--rm",
            "--network=none",
            "--volume=shop_data:/data",
            "own",
            "/bin/sh",
            "-c",
            line,
        ])
    };
    note("echo precious > /data/note");
    engine.docker(&["network", "create", "shop_net"]);
    engine.docker(&["create", "--name", "shop_web", "--network=none", "own"]);
    let before = engine.left_behind();
    assert_eq!(before, ["container shop_web", "network shop_net", "volume shop_data"]);

    let load = "load: { users: 1, requests: 10, journey: [{ get: \"http://${components.web.address}:8080/\" }] }\n\
                trials: 2\nexpect: [\"errors == 0\"]\n";
    let rest = format!(
        "  components: {{ web: {{ compose: web, ready: {{ tcp: \"${{address}}:8080\" }} }} }}\n{load}"
    );
    let text = plan(&engine, "compose.yaml", &rest);
    let run = |file: &str, code: i32, holds: &[&str]| {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        lab.file("compose.yaml", file);
        lab.run(&text, &[]).expect(code, holds);
        assert_eq!(engine.left_behind(), before, "{file}");
        assert!(note("cat /data/note").starts_with("precious\n"), "{file}");
    };
    let hint = "external: true";
    run(&fixed("name: shop_data", "", ""), 3, &["the volume `shop_data`", "compose.yaml", hint]);
    run(&fixed("", "name: shop_net", ""), 3, &["the network `shop_net`", "compose.yaml", hint]);
    run(&fixed("", "", "container_name: shop_web"), 3, &["the container `shop_web`", "rename it"]);
    assert_eq!(note("cat /data/note"), "precious\n", "none of them has run");
    // Declared as external, it is used, and kept.
    let external = "external: true, name: ";
    run(&fixed(&format!("{external}shop_data"), &format!("{external}shop_net"), ""), 0, &["web ready"]);
    assert_eq!(note("cat /data/note"), "precious\nmore\nmore\n", "both trials have written there");
    // A fixed name that is unused belongs to the run while it lasts, and is created anew for each trial.
    let free = fixed("name: my_data", "name: my_net", "container_name: my_web");
    run(&free.replace("cat /data/note >", "test ! -e /data/note; echo $$? >"), 0, &["web ready"]);
}

/// An image that no registry has is reported before the first trial, not in the middle of it.
#[test]
fn images_are_seen_to_before_the_first_trial() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let web = "  web: { build: image, image: \"built/here:1\" }\n  same: { image: \"built/here:1\", command: [\"/bin/true\"] }\n";
    lab.file("compose.yaml", &format!("services:\n{web}  cache: {{ image: \"127.0.0.1:1/nothing:9\" }}\n"));
    let load = "load: { users: 1, requests: 1, journey: [{ get: \"http://127.0.0.1:1/\" }] }\n";
    let text = plan(&engine, "compose.yaml", load);
    let ran = lab.run(&text, &[]);
    ran.expect(3, &["service `cache`", "cannot pull the image `127.0.0.1:1/nothing:9`", "hint: "]);
    assert!(!ran.err.contains("trial 1"), "no trial had begun: {}", ran.err);
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}
