//! Where the book's commands are run: a server for `127.0.0.1:8080` (on a free port, put in its place), `loadlab` in the path,
//! and folders that hold what the pages speak of: `plan.yaml`, `item.json`, `urls.txt`, and the records
//! `loadlab-runs/edges`, `before` and `after`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};

use crate::command::{LONGEST, captured, path_with, program, shown};
use crate::root::target;

/// The port the book speaks of.
const WRITTEN: &str = "127.0.0.1:8080";
const SHORT: &str = include_str!("short.sh");

const PLAN: &str = "loadlab: 1\nname: edges\nload:\n  users: 2\n  duration: 300ms\n  \
    journey: [{ get: \"http://127.0.0.1:8080/\", tags: [page] }]\n\
    matrix:\n  - { name: control, edge_cpu: none }\n  - { name: 1% CPU, edge_cpu: 1% }\nexpect: [\"errors == 0\"]\n";

/// All of it.
pub struct World {
    dir: PathBuf,
    server: String,
}

impl World {
    /// Makes it.
    ///
    /// # Errors
    /// There is no binary, or the records cannot be made.
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
        let listener = TcpListener::bind("127.0.0.1:0").context("a port for the server")?;
        let server = listener.local_addr()?.to_string();
        thread::spawn(move || serve(&listener));
        let world = World { dir, server };
        world.furnish(&first)?;
        Ok(world)
    }

    /// What every page finds. The records are made once.
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

    /// A folder for a page, furnished.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self, page: &str) -> Result<PathBuf> {
        let folder = self.dir.join(page.replace(['/', '.'], "-"));
        copy(&self.dir.join("first"), &folder)?;
        Ok(folder)
    }

    /// A text with the server's real address.
    pub fn here(&self, text: &str) -> String {
        text.replace(WRITTEN, &self.server)
    }

    /// The path with `loadlab` in front.
    ///
    /// # Errors
    /// A folder's name cannot be in a path.
    pub fn path(&self) -> Result<OsString> {
        path_with(&[self.dir.join("bin")])
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    captured(program("cp").arg("-a").arg(from).arg(to), LONGEST)?.ok("cp")?;
    Ok(())
}

/// Answers every request with 200, for as long as this program lives.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // Whoever goes away is not missed.
            let _ = answer_all(&stream);
        });
    }
}

fn answer_all(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut requests = BufReader::new(stream);
    let mut answers = stream;
    loop {
        let (mut length, mut closes, mut line) = (0, false, String::new());
        loop {
            line.clear();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let text = line.trim_end().to_ascii_lowercase();
            if let Some(n) = text.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
            closes |= text == "connection: close";
            if text.is_empty() {
                break;
            }
        }
        std::io::copy(&mut requests.by_ref().take(length), &mut std::io::sink())?;
        let ends = if closes { "Connection: close\r\n" } else { "" };
        let body = "{\"token\":\"t\",\"stored\":1,\"status\":\"ok\"}";
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        );
        answers.write_all(format!("{head}{ends}\r\n{body}").as_bytes())?;
        if closes {
            return Ok(());
        }
    }
}
