//! Images under the names that the labs' Compose files use, made from this machine's files: Debian's packages, and the
//! labs' own stand-ins for MongoDB and Elasticsearch. They do what the official images do as far as the labs need it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::command::{captured, program};
use crate::engine::Engine;
use crate::root::root;

/// Debian packages in all images; the packages they depend on are added.
const PACKAGES: [&str; 17] = [
    "base-files",
    "bash",
    "coreutils",
    "curl",
    "dash",
    "default-jre-headless",
    "gettext-base",
    "grep",
    "hostname",
    "libc-bin",
    "mawk",
    "nginx-light",
    "nodejs",
    "rabbitmq-server",
    "redis-tools",
    "redis-server",
    "sed",
];
/// Folders that no program reads at run time.
const LEFT_OUT: [&str; 5] =
    ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/include"];
/// Files that belong to no package.
const OTHERS: [&str; 5] = ["usr/bin/sh", "etc/passwd", "etc/group", "etc/alternatives", "etc/ssl/certs/java"];
/// Arguments of `find` for the links to programs that several packages provide, such as `java`; the links belong to
/// none of them.
const ALTERNATIVES: [&str; 3] = ["usr/bin", "-lname", "/etc/alternatives/*"];
/// The base of all other images.
const BASE: &str = "debian:stable-slim";
/// Time limit of a query of the package database.
const QUERY: Duration = Duration::from_secs(60);

/// An image that replaces an official one.
struct Image {
    name: &'static str,
    /// Lines of its Dockerfile after `FROM`.
    lines: &'static str,
    /// Our files, by name, which anyone may read and run.
    files: &'static [(&'static str, &'static str)],
    /// The folder in `labs/parts` of the server that it runs.
    part: Option<&'static str>,
}

const IMAGES: [Image; 6] = [
    Image { name: "node:20-slim", lines: "", files: &[], part: None },
    Image {
        name: "nginx:stable",
        lines: "COPY enter /usr/bin/\nENTRYPOINT [\"enter\"]\n",
        // Like the official image's entry point: variables that are not in the environment are left to nginx.
        files: &[(
            "enter",
            "#!/bin/sh\nset -eu\nnames=$(env | sed -n 's/^\\([A-Z0-9_]*\\)=.*/${\\1}/p')\n\
             for template in /etc/nginx/templates/*.template; do\n    \
             to=$NGINX_ENVSUBST_OUTPUT_DIR/$(basename \"$template\" .template)\n    \
             envsubst \"$names\" <\"$template\" >\"$to\"\ndone\nexec \"$@\"\n",
        )],
        part: None,
    },
    Image {
        name: "redis:7",
        lines: "COPY enter /usr/bin/\nWORKDIR /data\nENTRYPOINT [\"enter\"]\n",
        // The official image also answers clients that are not on loopback.
        files: &[("enter", "#!/bin/sh\nexec \"$@\" --protected-mode no\n")],
        part: None,
    },
    Image {
        name: "rabbitmq:3",
        // Debian's own scripts would switch to another user, which needs more of a system than there is here.
        lines: "COPY enabled_plugins /etc/rabbitmq/\nENV HOME=/var/lib/rabbitmq\nENV PATH=/usr/lib/rabbitmq/bin:$PATH\n\
                CMD [\"rabbitmq-server\"]\n",
        files: &[("enabled_plugins", "[rabbitmq_prometheus].\n")],
        part: None,
    },
    Image {
        name: "mongo:7",
        lines: "COPY mongosh /usr/bin/\nCOPY part /part\nENV ADDRESS=0.0.0.0\n\
                CMD [\"/part/run.sh\", \"27017\", \"/tmp/mongo.db\"]\n",
        // The Compose files' health checks run `mongosh`; the stand-in has no shell, so this only connects.
        files: &[("mongosh", "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/27017\n")],
        part: Some("mongo"),
    },
    Image {
        name: "docker.elastic.co/elasticsearch/elasticsearch:7.17.28",
        lines: "COPY part /part\nENV ADDRESS=0.0.0.0\nCMD [\"/part/run.sh\", \"9200\", \"/tmp/elasticsearch\"]\n",
        files: &[],
        part: Some("elasticsearch"),
    },
];

/// Makes all images.
///
/// # Errors
/// A package is missing, a part does not build, or the engine rejects an image.
pub fn make(engine: &Engine) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let list = dir.path().join("list");
    fs::write(&list, files()?.join("\0"))?;
    let path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    engine.import(Path::new("/"), &list, BASE, &[path, "ENV LANG=C.UTF-8"])?;
    for image in &IMAGES {
        let context = dir.path().join("context");
        image.fill(&context)?;
        engine.build(&context, image.name)?;
        fs::remove_dir_all(&context)?;
    }
    Ok(())
}

impl Image {
    /// Writes the build context of the image.
    fn fill(&self, context: &Path) -> Result<()> {
        fs::create_dir(context)?;
        fs::write(context.join("Dockerfile"), format!("FROM {BASE}\n{}", self.lines))?;
        for (name, text) in self.files {
            fs::write(context.join(name), text)?;
            fs::set_permissions(context.join(name), fs::Permissions::from_mode(0o755))?;
        }
        let Some(part) = self.part else { return Ok(()) };
        let parts = root().join("labs/parts");
        captured(program(parts.join("build.sh")).arg(part), crate::command::LONGEST)?.ok("build.sh")?;
        fs::create_dir_all(context.join("part/target"))?;
        for (from, to) in [("run.sh", "part"), ("target/server", "part/target")] {
            let mut copy = program("cp");
            copy.arg("--archive").arg(parts.join(part).join(from)).arg(context.join(to));
            captured(&mut copy, QUERY)?.ok("cp")?;
        }
        Ok(())
    }
}

/// Files of the packages and of their dependencies, relative to the root of this machine.
fn files() -> Result<Vec<String>> {
    let kinds = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
    let mut ask = program("apt-cache");
    ask.args(["depends", "--recurse", "--installed"]).args(kinds.map(|kind| format!("--no-{kind}")));
    let said = captured(ask.args(PACKAGES), QUERY)?.ok("apt-cache depends")?.stdout;
    let is_package = |line: &&str| line.starts_with(|c: char| c.is_ascii_alphanumeric());
    let packages: BTreeSet<&str> = said.lines().filter(is_package).collect();
    let listed = captured(program("dpkg-query").arg("--listfiles").args(&packages), QUERY)?;
    // `dpkg-query` fails for packages that are only removed, which does not matter: they have no files.
    let mut found: BTreeSet<String> = listed.stdout.lines().filter_map(relative).collect();
    for which in [&OTHERS[..], &ALTERNATIVES] {
        let mut find = program("find");
        found.extend(captured(find.current_dir("/").args(which), QUERY)?.stdout.lines().map(str::to_owned));
    }
    for needed in
        ["usr/bin/node", "usr/bin/java", "usr/sbin/nginx", "usr/bin/redis-server", "usr/bin/envsubst"]
    {
        ensure!(found.contains(needed), "/{needed} is in no package");
    }
    Ok(found.into_iter().filter(|file| !LEFT_OUT.iter().any(|left| file.starts_with(left))).collect())
}

/// The real path of a listed file that exists, relative to the root: `/bin` or `/lib` may be links.
fn relative(file: &str) -> Option<String> {
    let path = PathBuf::from(file);
    path.symlink_metadata().ok()?;
    let folder = path.parent()?.canonicalize().ok()?;
    let relative = folder.join(path.file_name()?).strip_prefix("/").ok()?.display().to_string();
    (!relative.is_empty()).then_some(relative)
}
