//! What a Compose file creates, as Compose itself reads it: resources with an explicit name, which may already exist
//! and belong to others, the images that its services run, and which of their limits it sets.
//!
//! Compose treats any existing resource with such a name as its own, whoever made it, and removes it with the rest. So
//! these names are looked up before the first container is made, and if one exists, nothing is brought up. This module
//! must not change anything.

mod extends;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{ComposeSpec, VERSION_TIMEOUT_NS};
use crate::cancel::Cancel;
use crate::engine::leftovers::{PROJECT, PROJECT_LABEL, RUN_LABEL};
use crate::engine::{Call, Engine, encoded};
use crate::error::{Error, Result};
use crate::spec::{BlockLimits, Limits};
use crate::system::System;

/// Hint for a file that cannot be resolved without Compose.
const NEWER: &str = "hint: install podman-compose 1.0.4 or later, which prints the resolved file";

/// Kinds of resource that can have an explicit name in a Compose file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedKind {
    Volume,
    Network,
    Container,
}

impl NamedKind {
    fn word(self) -> &'static str {
        match self {
            NamedKind::Volume => "volume",
            NamedKind::Network => "network",
            NamedKind::Container => "container",
        }
    }

    fn path(self, name: &str) -> String {
        let name = encoded(name);
        match self {
            NamedKind::Volume => format!("/volumes/{name}"),
            NamedKind::Network => format!("/networks/{name}"),
            NamedKind::Container => format!("/containers/{name}/json"),
        }
    }

    /// What to do about a resource that belongs to someone else.
    fn hint(self) -> &'static str {
        match self {
            NamedKind::Volume => {
                "rename it in the file, or set `external: true` there: the load then works on its data, and it \
                 is kept"
            }
            NamedKind::Network => {
                "rename it in the file, or set `external: true` there: it is then used, and kept"
            }
            NamedKind::Container => "rename it in the file (`container_name`), or remove the existing one",
        }
    }
}

/// A Compose file as Compose reads it.
#[derive(Debug)]
pub(super) struct Config(Value);

impl Config {
    fn parse(text: &str) -> std::result::Result<Config, String> {
        // An empty file makes nothing.
        if text.trim().is_empty() {
            return Ok(Config(Value::Null));
        }
        serde_saphyr::from_str(text).map(Config).map_err(|e| e.to_string())
    }

    /// The resources with an explicit name that the file would make, each with the name.
    fn named(&self) -> Vec<(NamedKind, &str)> {
        let all = |key: &str| self.0[key].as_object().into_iter().flat_map(serde_json::Map::values);
        let shared = [("volumes", NamedKind::Volume), ("networks", NamedKind::Network)];
        let shared = shared.into_iter().flat_map(|(key, kind)| {
            all(key).filter(|thing| !is_external(thing)).map(move |thing| (kind, &thing["name"]))
        });
        let containers = all("services").map(|service| (NamedKind::Container, &service["container_name"]));
        shared.chain(containers).filter_map(|(kind, name)| Some((kind, name.as_str()?))).collect()
    }

    /// Services that run an image that is not built, each with the image. In a file read as written, images with a
    /// variable in their name are left out.
    pub fn images(&self) -> Vec<(&str, &str)> {
        let services = self.0["services"].as_object().into_iter().flatten();
        services
            .filter(|(_, service)| service["build"].is_null())
            .filter_map(|(name, service)| Some((name.as_str(), service["image"].as_str()?)))
            .filter(|(_, image)| !image.contains('$'))
            .collect()
    }

    /// Which limits the file sets, by service. Their values are left to Compose.
    pub fn limited(&self) -> BTreeMap<String, LimitKinds> {
        let services = self.0["services"].as_object().into_iter().flatten();
        let kinds = |service: &Value| {
            let deployed = &service["deploy"]["resources"]["limits"];
            let has = |key: &str| !service[key].is_null();
            let block =
                |key: &str| service["blkio_config"][key].as_array().is_some_and(|disks| !disks.is_empty());
            LimitKinds([
                has("cpus") || has("cpu_quota") || !deployed["cpus"].is_null(),
                has("mem_limit") || !deployed["memory"].is_null(),
                has("pids_limit") || !deployed["pids"].is_null(),
                !service["ulimits"]["nofile"].is_null(),
                block("device_read_bps"),
                block("device_write_bps"),
                block("device_read_iops"),
                block("device_write_iops"),
            ])
        };
        services.map(|(name, service)| (name.clone(), kinds(service))).collect()
    }
}

/// Which limits are set: on CPU, memory, processes, open files, and on block I/O as in [`BlockLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitKinds([bool; 8]);

impl LimitKinds {
    pub fn of(limits: &Limits) -> LimitKinds {
        let BlockLimits { read_bytes_per_s, write_bytes_per_s, read_ops_per_s, write_ops_per_s } =
            limits.block;
        LimitKinds([
            limits.cpu_cores.is_some(),
            limits.memory_bytes.is_some(),
            limits.pids.is_some(),
            limits.open_files.is_some(),
            read_bytes_per_s.is_some(),
            write_bytes_per_s.is_some(),
            read_ops_per_s.is_some(),
            write_ops_per_s.is_some(),
        ])
    }

    /// Whether any of these that is among `replaced` is not among `set`.
    pub fn need(self, replaced: LimitKinds, set: LimitKinds) -> bool {
        self.0.iter().zip(replaced.0).zip(set.0).any(|((own, replaced), set)| *own && replaced && !set)
    }
}

/// Whether the file declares the resource as already existing: Compose neither makes nor removes it.
fn is_external(thing: &Value) -> bool {
    match &thing["external"] {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => text != "false",
        _ => true,
    }
}

impl System {
    /// The file as Compose reads it, with variables, but without the second file: `words` name only the first.
    ///
    /// # Errors
    /// Compose's complaints about the file; a name that only Compose can resolve, if it does not print the file.
    pub(super) fn compose_config(
        &self,
        words: &[String],
        spec: &ComposeSpec,
        cancel: &Cancel,
    ) -> Result<Config> {
        let unreadable = |why: String| Error::ComposeConfig { file: spec.file.clone(), why };
        let path = self.scratch().join("compose-config.yml");
        // The output holds the services' variables, so it is private and deleted afterwards.
        let line = "umask 077; exec \"$@\" > \"$0\"";
        let mut command =
            vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned(), path.display().to_string()];
        command.extend(words.iter().cloned());
        command.push("config".to_owned());
        let result = self.compose_command(command, spec, VERSION_TIMEOUT_NS, cancel);
        let text = fs::read_to_string(&path);
        let _ = fs::remove_file(&path);
        let mut result = result?;
        result.command = format!("{} config", words.join(" "));
        // podman-compose has this command only since 1.0.4.
        if !result.is_ok() && words.first().is_some_and(|tool| tool == "podman-compose") {
            return as_written(&spec.file).map_err(unreadable);
        }
        result.checked()?;
        Config::parse(&text.map_err(Error::file("read", &path))?).map_err(unreadable)
    }

    /// Checks that nothing exists under the fixed names that the file would use.
    ///
    /// # Errors
    /// [`Error::Taken`] for the first name that is in use.
    pub(super) fn check_names(
        &self,
        config: &Config,
        spec: &ComposeSpec,
        engine: &Engine,
        project: &str,
    ) -> Result<()> {
        for (kind, name) in config.named() {
            let doing = format!("look for the {} `{name}`", kind.word());
            let response = engine.call(Call::new(doing, "GET", kind.path(name)))?;
            // An engine also finds resources whose id begins with this name.
            let is_it = response.body["Name"].as_str().is_some_and(|n| n.trim_start_matches('/') == name);
            if response.status == 404 || !is_it {
                continue;
            }
            let labels = if kind == NamedKind::Container {
                &response.body["Config"]["Labels"]
            } else {
                &response.body["Labels"]
            };
            let owner = labels[PROJECT_LABEL].as_str().unwrap_or_default();
            if owner == project {
                continue;
            }
            let is_left = owner.starts_with(PROJECT) || labels[RUN_LABEL].is_string();
            return Err(Error::Taken {
                file: spec.file.clone(),
                kind: kind.word(),
                name: name.to_owned(),
                hint: if is_left {
                    "it belongs to another run; `loadlab clean` removes it if that run was killed"
                } else {
                    kind.hint()
                },
            });
        }
        Ok(())
    }
}

/// The file itself, with what its services inherit. Names with variables in them are known only to Compose.
fn as_written(file: &Path) -> std::result::Result<Config, String> {
    let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
    let Config(mut document) = Config::parse(&text)?;
    if !document["include"].is_null() {
        return Err(format!("this podman-compose does not print what `include` adds\n{NEWER}"));
    }
    extends::resolve(&mut document, file.parent().unwrap_or(Path::new(".")))?;
    let config = Config(document);
    match config.named().into_iter().find(|(_, name)| name.contains('$')) {
        Some((kind, name)) => Err(format!(
            "the name `{name}` of a {} contains a variable whose value this podman-compose does not \
             print\nhint: write the name without variables, or install podman-compose 1.0.4 or later",
            kind.word()
        )),
        None => Ok(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docker-compose config` writes it.
    const FILE: &str = "networks:\n  back:\n    external: true\n    name: theirs\n  front: {}\n  mesh:\n    name: mesh_net\n\
                        services:\n  web:\n    build:\n      context: /a\n    container_name: web_1\n    image: ours:1\n  \
                        db:\n    image: postgres:16\n    environment:\n      A: $$x\n  cache:\n    image: redis:7\n\
                        version: '3.8'\nvolumes:\n  data:\n    name: shop_data\n  logs: null\n  old:\n    external:\n      name: theirs\n";

    #[test]
    fn objects_with_explicit_names_are_found() {
        let config = Config::parse(FILE).unwrap();
        let expect = [
            (NamedKind::Volume, "shop_data"),
            (NamedKind::Network, "mesh_net"),
            (NamedKind::Container, "web_1"),
        ];
        assert_eq!(config.named(), expect);
        // In the file's order or sorted by name: either will do.
        let mut images = config.images();
        images.sort_unstable();
        assert_eq!(images, [("cache", "redis:7"), ("db", "postgres:16")]);
        let empty = Config::parse("").unwrap();
        assert!(empty.named().is_empty() && empty.images().is_empty());
        assert!(Config::parse("a: [").is_err());
    }

    /// These kinds of limit, counted from 0.
    fn only(kinds: &[usize]) -> LimitKinds {
        LimitKinds(std::array::from_fn(|i| kinds.contains(&i)))
    }

    #[test]
    fn limits_of_the_file_are_found() {
        let text = "services:\n  web: { cpus: 0.5, mem_limit: \"67108864\" }\n  \
                    db: { deploy: { resources: { limits: { pids: 9 } } }, ulimits: { nofile: { soft: 9, hard: 9 } } }\n  \
                    disks: { blkio_config: { weight: 9, device_read_bps: [ { path: /dev/a, rate: 1mb } ], device_write_iops: [] } }\n  \
                    aside: { image: x, blkio_config: { weight: 300 } }\n";
        let limited = Config::parse(text).unwrap().limited();
        assert_eq!(limited["web"], only(&[0, 1]));
        assert_eq!(limited["db"], only(&[2, 3]));
        assert_eq!(limited["disks"], only(&[4]));
        assert_eq!(limited["aside"], only(&[]));
        let plan = LimitKinds::of(&Limits { cpu_cores: Some(0.1), pids: Some(9), ..Limits::default() });
        // What the plan no longer limits is the file's to limit, unless that says nothing of it.
        assert!(limited["web"].need(plan, LimitKinds::default()));
        assert!(!limited["web"].need(plan, plan) && !limited["aside"].need(plan, LimitKinds::default()));
        assert!(!limited["web"].need(LimitKinds::default(), LimitKinds::default()), "never replaced");
        let block = |block: BlockLimits| LimitKinds::of(&Limits { block, ..Limits::default() });
        let read = block(BlockLimits { read_bytes_per_s: Some(9), ..BlockLimits::default() });
        let write = block(BlockLimits { write_bytes_per_s: Some(9), ..BlockLimits::default() });
        assert!(limited["disks"].need(read, write) && !limited["disks"].need(write, LimitKinds::default()));
        assert!(Config::parse("").unwrap().limited().is_empty());
    }

    #[test]
    fn names_that_only_compose_knows_are_not_guessed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("compose.yaml");
        let read = |name: &str| {
            fs::write(&file, format!("volumes: {{ data: {{ name: \"{name}\" }} }}\n")).unwrap();
            as_written(&file).map(|config| config.named().len())
        };
        assert_eq!(read("shop"), Ok(1));
        let why = read("${SHOP}").unwrap_err();
        assert!(why.contains("`${SHOP}`") && why.contains("hint: "), "{why}");
    }

    /// Names and images of a service `web` with these lines, with other files next to it.
    fn of_web(lines: &str) -> std::result::Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        write("base.yaml", "services: { web: { container_name: theirs, image: a:1 }, built: { build: . } }");
        write("bare.yaml", "{ web: { container_name: bare, image: b:1 } }");
        write(
            "deep/one.yaml",
            "services:\n  one: { extends: { file: two.yaml, service: two }, image: c:1 }\n  again: { extends: one }\n",
        );
        write("deep/two.yaml", "services: { two: { container_name: two_1, image: d:1 } }");
        write("round.yaml", "services: { web: { extends: { file: round.yaml, service: web } } }");
        write("name.yaml", "services: { web: { container_name: \"${NAME}_1\" } }");
        write("broken.yaml", "services: [");
        write(
            "main.yaml",
            &format!("services:\n  web: {{ {lines} }}\n  own: {{ container_name: own_1, image: o:1 }}\n"),
        );
        let config = as_written(&dir.path().join("main.yaml")).map_err(|why| {
            let place = format!("{}/", dir.path().display());
            why.replace(&place, "")
        })?;
        let of_web = |name: &&str| !["own_1", "o:1"].contains(name);
        let names = config.named().into_iter().map(|(_, name)| name).filter(of_web);
        let images =
            config.images().into_iter().filter(|(service, _)| *service == "web").map(|(_, image)| image);
        Ok(names.chain(images).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_a_service_has_from_another_is_found() {
        for (lines, expect) in [
            ("extends: { file: base.yaml, service: web }", "theirs a:1"),
            ("extends: { file: ./base.yaml, service: web }", "theirs a:1"),
            ("extends: { file: bare.yaml, service: web }", "bare b:1"),
            // Its own value takes precedence over an inherited one, key by key.
            ("extends: { file: base.yaml, service: web }, container_name: mine", "mine a:1"),
            ("extends: { file: base.yaml, service: web }, image: x:1", "theirs x:1"),
            ("extends: { file: base.yaml, service: built }, image: x:1", ""),
            // From file to file, each relative to the one that names it.
            ("extends: { file: deep/one.yaml, service: one }", "two_1 c:1"),
            ("extends: { file: deep/one.yaml, service: again }", "two_1 c:1"),
            // In the same file.
            ("extends: own, container_name: mine", "mine o:1"),
            ("extends: { service: own }, image: x:1", "x:1"),
            ("<<: { container_name: merged }, image: x:1", "merged x:1"),
        ] {
            assert_eq!(of_web(lines).as_deref(), Ok(expect), "{lines}");
        }
    }

    #[test]
    fn limits_that_a_service_has_from_another_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("main.yaml");
        let text = "services:\n  base: { mem_limit: 64m, deploy: { resources: { limits: { pids: 9 } } } }\n  \
                    web: { extends: base, cpus: 0.5, deploy: { replicas: 2 } }\n";
        fs::write(&file, text).unwrap();
        let limited = as_written(&file).unwrap().limited();
        assert_eq!(limited["base"], only(&[1, 2]));
        assert_eq!(limited["web"], only(&[0, 1, 2]));
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for (lines, expect) in [
            ("extends: { file: none.yaml, service: web }", "service `web` extends `none.yaml`: No such file"),
            ("extends: { file: broken.yaml, service: web }", "service `web` extends `broken.yaml`: "),
            ("extends: { file: base.yaml, service: shop }", "there is no service `shop` in `base.yaml`"),
            ("extends: shop", "there is no service `shop` in the file"),
            ("extends: { file: round.yaml, service: web }", "extends itself"),
            ("extends: web", "extends itself"),
            (
                "extends: { file: \"${DIR}/base.yaml\", service: web }",
                "`${DIR}/base.yaml` contains a variable",
            ),
            ("extends: { file: base.yaml, service: \"${S}\" }", "`${S}` contains a variable"),
            ("extends: { file: name.yaml, service: web }", "`${NAME}_1` of a container contains a variable"),
            ("extends: { file: base.yaml }", "`extends` that names no service"),
            ("extends: [ web ]", "`extends` that names no service"),
        ] {
            let why = of_web(lines).expect_err(lines);
            assert!(why.contains(expect) && why.contains("\nhint: "), "{lines}: {why}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("main.yaml");
        fs::write(&file, "include: [ other.yaml ]\nservices: {}\n").unwrap();
        let why = as_written(&file).unwrap_err();
        assert!(why.contains("`include`") && why.contains("hint: "), "{why}");
    }
}
