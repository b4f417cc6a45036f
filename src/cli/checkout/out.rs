//! Where the lines go: standard output, a file that is replaced at the end, or something that is written in place.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// More links in a row than any system follows lead nowhere.
const MAX_LINKS: usize = 40;

/// What takes the lines.
pub(super) type Writer = Box<dyn Write + Send>;

/// A file beside the one that was asked for, which it takes the place of at the end: until then, and if all fails, that one is as it was.
/// Dropping it removes the file, whoever still writes to it.
pub(super) struct Replacement {
    beside: TempPath,
    target: PathBuf,
}

impl Replacement {
    /// Has the file take its place.
    ///
    /// # Errors
    /// In words, with the path.
    pub(super) fn keep(self) -> Result<(), String> {
        let Self { beside, target } = self;
        beside.persist(&target).map_err(|error| format!("{}: {}", target.display(), error.error))
    }
}

/// Opens what was asked for; nothing is standard output. May wait for the reader of a pipe.
///
/// # Errors
/// In words, with the path.
pub(super) fn open(path: Option<&Path>) -> Result<(Writer, Option<Replacement>), String> {
    let Some(path) = path else { return Ok((Box::new(io::stdout()), None)) };
    let in_place = |file: File| (Box::new(file) as Writer, None);
    let opened = place(path).and_then(|place| match place {
        Place::StandardOutput => Ok((Box::new(io::stdout()) as Writer, None)),
        // Its position is not shared, so that only appending spares what others write to the same file.
        Place::Descriptor => File::options().append(true).open(path).map(in_place),
        Place::Special => File::options().write(true).open(path).map(in_place),
        Place::Regular(target) => replace(target).map(|(file, replacement)| (Box::new(file) as Writer, Some(replacement))),
    });
    opened.map_err(|error| format!("{}: {}", path.display(), cause(&error)))
}

/// What a path leads to.
enum Place {
    StandardOutput,
    /// A file that this process has open, which is named by its number.
    Descriptor,
    /// No regular file: it cannot be replaced.
    Special,
    /// A regular file, or nothing yet, behind all links.
    Regular(PathBuf),
}

fn place(path: &Path) -> io::Result<Place> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if let Some(descriptor) = descriptor(&path) {
            return Ok(descriptor);
        }
        match path.read_link() {
            Ok(next) => path = folder(&path).join(next),
            Err(_) if path.metadata().is_ok_and(|found| !found.is_file()) => return Ok(Place::Special),
            Err(_) => return Ok(Place::Regular(path)),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Whether a path is in a folder of open files: `/dev/fd`, or where that leads to on Linux.
fn descriptor(path: &Path) -> Option<Place> {
    let folder = folder(path).canonicalize().ok()?;
    let own = folder == Path::new("/dev/fd") || Path::new("/proc/self/fd").canonicalize().is_ok_and(|own| folder == own);
    match path.file_name() {
        Some(name) if own && name == "1" => Some(Place::StandardOutput),
        _ if own || folder.starts_with("/proc") && folder.ends_with("fd") => Some(Place::Descriptor),
        _ => None,
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn replace(target: PathBuf) -> io::Result<(File, Replacement)> {
    let kept = target.metadata().ok().map(|found| found.permissions());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".backfill-");
    if let (None, Some(usual)) = (&kept, usual_permissions()) {
        builder.permissions(usual);
    }
    let (file, beside) = builder.tempfile_in(folder(&target))?.into_parts();
    if let Some(kept) = kept {
        file.set_permissions(kept)?;
    }
    Ok((file, Replacement { beside, target }))
}

/// Those of a file that is simply created, where temporary files are otherwise for their owner alone.
fn usual_permissions() -> Option<Permissions> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    #[cfg(not(unix))]
    return None;
}

/// What went wrong, without the name of the temporary file.
fn cause(error: &io::Error) -> String {
    let within = error.get_ref().and_then(|within| within.source());
    within.map_or_else(|| error.to_string(), ToString::to_string)
}
