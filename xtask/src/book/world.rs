//! The environment in which the book's commands run: a server standing in for `127.0.0.1:8080` (on a free port,
//! substituted in commands), `loadlab` in `PATH`, and folders with what the pages mention: `plan.yaml`, `item.json`,
//! `urls.txt`, and the records `loadlab-runs/edges`, `before` and `after`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::command::{LONGEST, captured, path_with, program, shown};
use crate::peers::measure::Cores;
use crate::peers::server::Server;
use crate::root::target;

/// The address that the book mentions.
const WRITTEN: &str = "127.0.0.1:8080";
const SHORT: &str = include_str!("short.sh");

const PLAN: &str = "loadlab: 1\nname: edges\nsystem: { components: { edge: { run: exec sleep 60 } } }\nload:\n  users: 2\n  duration: 300ms\n  \
    journey: [{ get: \"http://127.0.0.1:8080/\", tags: [page] }]\n\
    matrix:\n  - { name: control, edge_cpu: none }\n  - { name: 1% CPU, edge_cpu: 1% }\nexpect: [\"errors == 0\"]\n";

/// The whole environment.
pub struct World {
    dir: PathBuf,
    server: Server,
}

impl World {
    /// Creates the environment and starts its server.
    ///
    /// # Errors
    /// The binary is missing, or the records cannot be made.
    pub fn make(loadlab: &Path) -> Result<World> {
        ensure!(loadlab.is_file(), "no binary at {}\nhint: cargo build --release", loadlab.display());
        let dir = target().join("xtask/book-commands");
        let _ = fs::remove_dir_all(&dir);
        let (bin, first) = (dir.join("bin"), dir.join("first"));
        fs::create_dir_all(&bin)?;
        fs::create_dir_all(&first)?;
        let quoted = loadlab.display().to_string().replace('\'', "'\\''");
        let short = SHORT.replacen("set -u\n", &format!("set -u\nLOADLAB='{quoted}'\n"), 1);
        fs::write(bin.join("loadlab"), short)?;
        fs::set_permissions(bin.join("loadlab"), fs::Permissions::from_mode(0o755))?;
        let server = Server::start(&Cores::choose()?, &dir.join("server"))?;
        let world = World { dir, server };
        world.furnish(&first)?;
        Ok(world)
    }

    /// Writes the files that every page finds. The records are made once.
    fn furnish(&self, first: &Path) -> Result<()> {
        fs::write(first.join("plan.yaml"), self.here(PLAN))?;
        fs::write(first.join("item.json"), "{\"item\": 7, \"count\": 1}\n")?;
        fs::write(first.join("urls.txt"), self.here("http://127.0.0.1:8080/a\nhttp://127.0.0.1:8080/b\n"))?;
        let mut run = program("loadlab");
        run.args(["run", "plan.yaml", "--quiet", "--out", "loadlab-runs/edges"]);
        run.current_dir(first).env("PATH", self.path()?);
        shown(&mut run)?.ok("a record for the book's commands")?;
        for name in ["before", "after"] {
            copy(&first.join("loadlab-runs/edges"), &first.join("loadlab-runs").join(name))?;
        }
        Ok(())
    }

    /// A folder for a page, with a copy of those files.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn folder(&self, page: &str) -> Result<PathBuf> {
        let folder = self.dir.join(page.replace(['/', '.'], "-"));
        copy(&self.dir.join("first"), &folder)?;
        Ok(folder)
    }

    /// A text with the server's real address.
    pub fn here(&self, text: &str) -> String {
        text.replace(WRITTEN, &self.server.any.to_string())
    }

    /// `PATH` with the folder of `loadlab` in front.
    ///
    /// # Errors
    /// A folder's name is not allowed in `PATH`.
    pub fn path(&self) -> Result<OsString> {
        path_with(&[self.dir.join("bin")])
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    captured(program("cp").arg("-a").arg(from).arg(to), LONGEST)?.ok("cp")?;
    Ok(())
}
