//! The consumer of `backfill run`: one JSON line a change, in a file or on standard output.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;

use tokio::sync::{mpsc, oneshot};

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
}

struct Job {
    lines: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Lines {
    /// To a file, behind what it holds. A line that a killed process has left unfinished was not acknowledged: it is cut off and comes again.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            let end = end_of_lines(&mut file)?;
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
        }
        Self::start(Out::File(file))
    }

    /// To standard output.
    pub(super) fn standard() -> io::Result<Self> {
        Self::start(Out::Standard(io::stdout()))
    }

    fn start(mut out: Out) -> io::Result<Self> {
        let (writer, mut jobs) = mpsc::channel::<Job>(WAITING);
        // A thread of its own: whoever reads a pipe may be slow.
        thread::Builder::new().name("json-lines".to_owned()).spawn(move || {
            while let Some(Job { lines, written }) = jobs.blocking_recv() {
                // Whoever asked may have gone; then it comes again.
                let _ = written.send(out.write(&lines));
            }
        })?;
        Ok(Self { writer })
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

enum Out {
    Standard(io::Stdout),
    File(File),
}

impl Out {
    /// Writes whole lines, or, to a file, none.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Standard(out) => {
                let mut out = out.lock();
                out.write_all(lines)?;
                out.flush()
            }
            Self::File(file) => {
                let before = file.stream_position().ok();
                let written = file.write_all(lines);
                if let (Err(_), Some(before)) = (&written, before) {
                    // What was written of it comes again. If even that fails, the next start cuts the last line off.
                    let _ = file.set_len(before).and_then(|()| file.seek(SeekFrom::Start(before)));
                }
                written
            }
        }
    }
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
