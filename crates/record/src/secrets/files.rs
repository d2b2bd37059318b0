//! Masks files that other processes have written: logs of components, which write into them directly.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Secrets;

impl Secrets {
    /// Masks a file that nothing writes to any more. The file is replaced as a whole, or stays as it is.
    ///
    /// # Errors
    /// The error of reading or writing; the file is then unchanged.
    pub fn mask_file(&self, path: &Path) -> io::Result<()> {
        // A pipe or a device would never end, and a link may lead to another user's file.
        if self.is_empty() || !fs::symlink_metadata(path)?.is_file() {
            return Ok(());
        }
        if !self.mask_stream(&mut BufReader::new(File::open(path)?), &mut io::sink())? {
            return Ok(());
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".masked");
        let beside = PathBuf::from(beside);
        let masked = self.mask_beside(path, &beside).and_then(|()| fs::rename(&beside, path));
        if masked.is_err() {
            // Best effort: its content is masked.
            let _ = fs::remove_file(&beside);
        }
        masked
    }

    fn mask_beside(&self, path: &Path, beside: &Path) -> io::Result<()> {
        let from = File::open(path)?;
        let _ = fs::remove_file(beside);
        let to = File::create_new(beside)?;
        to.set_permissions(from.metadata()?.permissions())?;
        let mut to = BufWriter::new(to);
        self.mask_stream(&mut BufReader::new(from), &mut to)?;
        to.flush()?;
        to.get_ref().sync_all()
    }
}
