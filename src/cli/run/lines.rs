//! The consumer of `backfill run`: one JSON line a change, in a file or on standard output.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::consumer::{Change, Delivery, Handler, HandlerError, Origin, Record};
use crate::job::Account;
use crate::repo::json;
use crate::syntax::{Did, RecordPathRef, Rev};

/// Deliveries that wait for the thread that writes; each is acknowledged only once it is written.
const WAITING: usize = 16;
/// Bytes that are read at once when the end of the last whole line is looked for.
const STEP: u64 = 64 << 10;

/// Writes every change as a line, and acknowledges it once the system has it.
#[derive(Debug)]
pub(super) struct Lines {
    writer: mpsc::Sender<Job>,
    unread: CancellationToken,
}

struct Job {
    lines: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Lines {
    /// To a file, behind what it holds, as long as no other program of this kind writes there. A line that a killed process has left unfinished was not acknowledged: it is
    /// cut off and comes again.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).append(true).create(true).open(path)?;
        if file.metadata()?.is_file() {
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::Error::other("another process writes to it")),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let end = end_of_lines(&mut file)?;
            file.set_len(end)?;
        }
        Self::start(file)
    }

    /// To standard output.
    pub(super) fn standard() -> io::Result<Self> {
        Self::start(standard()?)
    }

    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (writer, mut jobs) = mpsc::channel::<Job>(WAITING);
        let unread = CancellationToken::new();
        let (mut out, ends) = (WholeLines { out, rest: Vec::new() }, unread.clone());
        // A thread of its own: whoever reads a pipe may be slow.
        thread::Builder::new().name("json-lines".to_owned()).spawn(move || {
            while let Some(Job { lines, written }) = jobs.blocking_recv() {
                let outcome = out.write(&lines);
                if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
                    ends.cancel();
                }
                // Whoever asked may have gone; then it comes again.
                let _ = written.send(outcome);
            }
        })?;
        Ok(Self { writer, unread })
    }

    /// Cancelled when nobody reads the lines any more, and nobody ever will.
    pub(super) fn unread(&self) -> CancellationToken {
        self.unread.clone()
    }

    async fn write(&self, lines: Vec<u8>) -> Result<(), HandlerError> {
        let (written, answer) = oneshot::channel();
        let gone = || io::Error::other("the thread that writes has ended");
        self.writer.send(Job { lines, written }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())??;
        Ok(())
    }

    async fn one(&self, did: &Did, rev: Rev, change: Change<'_>) -> Result<(), HandlerError> {
        let mut lines = Vec::new();
        line(&mut lines, did, rev, true, &change)?;
        self.write(lines).await
    }
}

/// Standard output without a buffer of ours, so that it is known how much of a line the system has taken.
#[cfg(unix)]
fn standard() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

#[cfg(not(unix))]
fn standard() -> io::Result<io::Stdout> {
    Ok(io::stdout())
}

/// Writes lines such that every one is whole in the end: where a write failed midway, the rest of that line goes before whatever comes next.
struct WholeLines<W> {
    out: W,
    /// What is missing of the last line.
    rest: Vec<u8>,
}

impl<W: Write> WholeLines<W> {
    /// Writes whole lines. After an error some of them may have been written, and will come again.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let (written, finished) = write_some(&mut self.out, &self.rest);
        self.rest.drain(..written);
        finished?;
        let (written, finished) = write_some(&mut self.out, lines);
        let behind = lines.get(written..).unwrap_or_default();
        if written > 0 && lines.get(written - 1) != Some(&b'\n') {
            let end = behind.iter().position(|&byte| byte == b'\n').map_or(behind.len(), |at| at + 1);
            self.rest = behind.get(..end).unwrap_or_default().to_vec();
        }
        finished?;
        self.out.flush()
    }
}

/// Writes bytes, and tells how many of them were taken.
fn write_some(out: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(left) = bytes.get(written..).filter(|left| !left.is_empty()) {
        match out.write(left) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, Ok(()))
}

/// Where the last whole line of a file ends.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    let mut bytes = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(start))?;
        bytes.clear();
        Read::by_ref(file).take(end - start).read_to_end(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn line(out: &mut Vec<u8>, did: &Did, rev: Rev, live: bool, change: &Change<'_>) -> Result<(), HandlerError> {
    let (action, record) = match change {
        Change::Create(record) => ("create", Some(record)),
        Change::Update(record) => ("update", Some(record)),
        Change::Delete(_) => ("delete", None),
    };
    // DIDs, revs and paths hold nothing that JSON would escape.
    write!(out, r#"{{"type":"record","action":"{action}","live":{live},"did":"{did}","rev":"{rev}","path":"{}""#, change.path())?;
    if let Some(record) = record {
        write!(out, r#","cid":"{}","record":"#, record.cid)?;
        json::write(record.bytes, out)?;
    }
    out.extend_from_slice(b"}\n");
    Ok(())
}

impl Handler for Lines {
    async fn create(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, Change::Create(record)).await
    }

    async fn update(&self, did: &Did, rev: Rev, record: Record<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, Change::Update(record)).await
    }

    async fn delete(&self, did: &Did, rev: Rev, path: RecordPathRef<'_>) -> Result<(), HandlerError> {
        self.one(did, rev, Change::Delete(path)).await
    }

    async fn account(&self, did: &Did, account: Account) -> Result<(), HandlerError> {
        let mut lines = Vec::new();
        writeln!(lines, r#"{{"type":"account","did":"{did}","active":{},"status":"{account}"}}"#, account.is_active())?;
        self.write(lines).await
    }

    async fn batch(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        let mut lines = Vec::with_capacity(2 * delivery.weight() + 256 * delivery.len());
        for change in delivery.changes() {
            line(&mut lines, delivery.did(), delivery.rev(), delivery.origin() == Origin::Live, &change)?;
        }
        self.write(lines).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_is_found_however_long_the_rest_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        for (text, whole) in [
            (String::new(), 0),
            ("abc".to_owned(), 0),
            ("abc\n".to_owned(), 4),
            ("abc\nde".to_owned(), 4),
            (format!("a\n{}", "x".repeat(200_000)), 2),
            ("x".repeat(200_000), 0),
        ] {
            std::fs::write(&path, &text).unwrap();
            let mut file = File::open(&path).unwrap();
            assert_eq!(end_of_lines(&mut file).unwrap(), whole, "of {} bytes", text.len());
        }
    }

    /// Takes so many bytes at each call, then fails.
    struct Takes(Vec<usize>, Vec<u8>);

    impl Write for Takes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.0.pop() {
                Some(0) => Err(io::ErrorKind::StorageFull.into()),
                room => {
                    let taken = room.unwrap_or(usize::MAX).min(bytes.len());
                    self.1.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_fails_midway_leaves_no_half_line_in_the_end() {
        // After so many bytes it fails, with the rest of a line it fails again after one byte more, then there is room.
        for room in 0..=12 {
            let mut out = WholeLines { out: Takes(vec![0, 1, 0, room], Vec::new()), rest: Vec::new() };
            let mut acknowledged = Vec::new();
            for lines in ["abc\ndef\nghi\n", "jkl\n", "mno\n", "pqr\n"] {
                if out.write(lines.as_bytes()).is_ok() {
                    acknowledged.extend(lines.lines());
                }
            }
            let text = String::from_utf8(out.out.1).unwrap();
            assert!(text.ends_with('\n') && text.lines().all(|line| line.len() == 3), "after {room}: {text:?}");
            assert!(acknowledged.iter().all(|line| text.lines().any(|written| written == *line)), "after {room}: {text:?}");
            assert!(acknowledged.contains(&"pqr"));
        }
    }

    #[tokio::test]
    async fn a_file_that_another_process_writes_to_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        let first = Lines::append(&path).unwrap();
        std::fs::write(&path, "{\"b\":").unwrap();
        assert_eq!(Lines::append(&path).unwrap_err().to_string(), "another process writes to it");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"b\":");
        drop(first);
    }

    #[tokio::test]
    async fn an_unfinished_line_is_cut_off_and_what_comes_follows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        std::fs::write(&path, "{\"a\":1}\n{\"b\":").unwrap();
        let lines = Lines::append(&path).unwrap();
        let did = Did::new("did:plc:abc").unwrap();
        lines.account(&did, Account::Active).await.unwrap();
        let deleted = RecordPathRef::new(b"a.b.c/1").unwrap();
        lines.delete(&did, Rev::ZERO, deleted).await.unwrap();
        let expected = concat!(
            "{\"a\":1}\n",
            "{\"type\":\"account\",\"did\":\"did:plc:abc\",\"active\":true,\"status\":\"active\"}\n",
            "{\"type\":\"record\",\"action\":\"delete\",\"live\":true,\"did\":\"did:plc:abc\",\"rev\":\"2222222222222\",\"path\":\"a.b.c/1\"}\n",
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }
}
