//! A Unix socket before that of a server, which can cut a connection at a chosen place of its protocol.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where the next commit loses its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nowhere.
    No = 0,
    /// On its way to the server.
    Request = 1,
    /// On the way back: it is done, and nobody is told.
    Answer = 2,
}

/// Ends with the process; so do its threads.
pub(crate) struct Relay {
    pub(crate) url: String,
    cut: Arc<AtomicU8>,
    _directory: tempfile::TempDir,
}

/// The file of a server's socket, and the same URL by way of another folder.
fn parts(url: &str) -> (PathBuf, String) {
    let (before, query) = url.split_once('?').expect("a URL with parameters");
    let folder = query.split('&').find_map(|parameter| parameter.strip_prefix("host=")).expect("the folder of a socket");
    (PathBuf::from(folder).join(SOCKET), before.to_owned())
}

const SOCKET: &str = ".s.PGSQL.5432";

impl Relay {
    pub(crate) fn to(url: &str) -> Self {
        let (server, before) = parts(url);
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(SOCKET)).unwrap();
        let cut = Arc::new(AtomicU8::new(Cut::No as u8));
        let shared = Arc::clone(&cut);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
                let armed = Arc::new(AtomicU8::new(Cut::No as u8));
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap(), Arc::clone(&armed));
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || requests(client, server, &shared, &armed));
                std::thread::spawn(move || answers(back.0, back.1, &back.2));
            }
        });
        Self { url: format!("{before}?host={}", directory.path().display()), cut, _directory: directory }
    }

    pub(crate) fn cut(&self, at: Cut) {
        self.cut.store(at as u8, Ordering::SeqCst);
    }

    /// Whether the cut was made.
    pub(crate) fn has_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == Cut::No as u8
    }
}

fn both_ways(a: &UnixStream, b: &UnixStream) {
    // One that is closed already is as good.
    let _ = (a.shutdown(Shutdown::Both), b.shutdown(Shutdown::Both));
}

/// A simple query is small, and comes in one piece through a socket of the same machine.
fn requests(mut client: UnixStream, mut server: UnixStream, cut: &AtomicU8, armed: &AtomicU8) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let commit = buffer[..length].windows(7).any(|window| window == b"COMMIT\0");
        let at = if commit { cut.swap(Cut::No as u8, Ordering::SeqCst) } else { Cut::No as u8 };
        if at == Cut::Request as u8 {
            break;
        }
        armed.store(at, Ordering::SeqCst);
        if server.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    both_ways(&client, &server);
}

fn answers(mut server: UnixStream, mut client: UnixStream, armed: &AtomicU8) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        if armed.load(Ordering::SeqCst) == Cut::Answer as u8 || client.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    both_ways(&client, &server);
}
