//! What is planted where: the truth that answers are compared with. The systems themselves are plans in
//! `xtask/planted/systems`; a row here without a plan, or a plan without a row, is an error.

/// A system with one known weakness.
#[derive(Debug)]
pub struct System {
    /// Its plan's file name, without `.yaml`.
    pub name: &'static str,
    /// The component with the bottleneck, a link (`web→store`), `loadlab` or `host`; `None` if there is none.
    pub component: Option<&'static str>,
    /// Kind of the bottleneck; several if more than one describes the same weakness.
    pub kinds: &'static [&'static str],
    /// Components that are busy or have many connections, but are no bottleneck.
    pub innocents: &'static [&'static str],
    /// Whether every change is checked with it: its result depends neither on the machine's speed nor on other work
    /// there.
    pub is_quick: bool,
    /// Whether it is a Compose project, which needs a container engine.
    pub is_compose: bool,
}

const fn planted(name: &'static str, component: &'static str, kinds: &'static [&'static str]) -> System {
    System { name, component: Some(component), kinds, innocents: &[], is_quick: false, is_compose: false }
}

impl System {
    const fn beside(self, innocents: &'static [&'static str]) -> System {
        System { innocents, ..self }
    }

    const fn in_compose(self) -> System {
        System { is_compose: true, ..self }
    }

    const fn quick(self) -> System {
        System { is_quick: true, ..self }
    }
}

const FEW: &[&str] = &["limited_concurrency"];
const POOL: &[&str] = &["pool"];
const LINK: &[&str] = &["link"];
const CPU_LIMIT: &[&str] = &["cpu_limit"];

/// All systems.
pub const SYSTEMS: &[System] = &[
    planted("lock-in-mid", "mid", FEW).quick(),
    planted("semaphore-in-mid", "mid", FEW),
    planted("rate-limiter", "store", FEW),
    planted("lock-in-only-tier", "web", FEW),
    planted("compose-lock", "store", FEW).beside(&["web"]).in_compose(),
    planted("pool-in-web", "web", POOL),
    planted("pool-in-mid", "mid", POOL).quick(),
    planted("pool-on-unix-socket", "web", POOL),
    planted("fsync", "store", &["disk"]).quick(),
    planted("disk-limit", "store", &["disk"]),
    planted("cpu-quota-store", "store", CPU_LIMIT).beside(&["queue", "worker"]).quick(),
    planted("cpu-quota-web", "web", CPU_LIMIT),
    planted("one-core", "store", &["one_core"]),
    planted("garbage", "store", &["one_core"]),
    planted("memory-pressure", "store", &["memory"]),
    planted("page-cache", "store", &["memory"]),
    planted("out-of-memory", "store", &["memory"]),
    planted("open-files", "mid", &["open_files"]),
    planted("ports", "web", &["ports"]).beside(&["store"]),
    planted("accept-queue", "store", &["accept_queue"]),
    planted("link-delay", "web→store", LINK).quick(),
    planted("link-bandwidth", "web→store", LINK),
    planted("link-loss", "web→store", LINK),
    // Slow queries, one after the other: either kind is right.
    planted("names", "dns", &["limited_concurrency", "latency"]),
    planted("uneven-balance", "api2", CPU_LIMIT),
    planted("hot-shard", "shard3", FEW),
    planted("slow-third-party", "payment", &["latency"]).beside(&["shop", "catalogue"]),
    planted("generator", "loadlab", &["generator"]),
    planted("both-cores", "host", &["host_cpu"]),
    System {
        name: "nothing",
        component: None,
        kinds: &["nothing"],
        innocents: &["web", "store"],
        is_quick: false,
        is_compose: false,
    },
    planted("idle-pool", "store", FEW).beside(&["cache"]).quick(),
    planted("streamed-download", "web", POOL).beside(&["files", "mirror"]),
    planted("server-push", "store", FEW).beside(&["events"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::root::{files, root};

    #[test]
    fn every_system_has_a_plan_that_names_its_components() {
        let dir = root().join("xtask/planted/systems");
        let plans = files(&dir).unwrap();
        let names: BTreeSet<String> = SYSTEMS.iter().map(|system| format!("{}.yaml", system.name)).collect();
        assert_eq!(plans, names);
        assert_eq!(SYSTEMS.len(), 33);
        for system in SYSTEMS {
            let plan = std::fs::read_to_string(dir.join(format!("{}.yaml", system.name))).unwrap();
            let ends = system.component.iter().flat_map(|name| name.split('→'));
            for name in ends.chain(system.innocents.iter().copied()) {
                let of_replicas = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let is_there = plan.contains(&format!("\n    {name}:\n"))
                    || plan.contains(&format!("\n    {of_replicas}:\n")) && plan.contains("replicas:")
                    || ["loadlab", "host"].contains(&name);
                assert!(is_there, "{}: no component {name}", system.name);
            }
        }
    }
}
