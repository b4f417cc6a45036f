//! The port of a server: it can be shut so that connections are refused, and its connections can be reset.
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The outside of a [`Door`].
#[derive(Debug)]
pub(super) struct Latch {
    open: watch::Sender<bool>,
    is_open: watch::Receiver<bool>,
    /// Counts the times that all connections were reset.
    resets: watch::Sender<u64>,
}

impl Latch {
    /// Opens or shuts the port, and returns when that is done. Shutting resets the connections there are.
    pub(super) async fn set(&self, open: bool) {
        self.open.send_replace(open);
        if !open {
            self.reset_all();
        }
        let mut is_open = self.is_open.clone();
        // An error means that the server has ended, whose port is shut.
        _ = is_open.wait_for(|is| *is == open).await;
    }

    /// Resets the connections there are.
    pub(super) fn reset_all(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }
}

/// A listener that can be shut and opened again, on the same port.
pub(super) struct Door {
    address: SocketAddr,
    listener: Option<TcpListener>,
    open: watch::Receiver<bool>,
    is_open: watch::Sender<bool>,
    resets: watch::Receiver<u64>,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> io::Result<(Self, Latch)> {
        let address = listener.local_addr()?;
        let (open, open_changes) = watch::channel(true);
        let (is_open, is_open_changes) = watch::channel(true);
        let (resets, reset_changes) = watch::channel(0);
        let door = Self { address, listener: Some(listener), open: open_changes, is_open, resets: reset_changes };
        Ok((door, Latch { open, is_open: is_open_changes, resets }))
    }

    /// Brings the listener in line with what is wanted. False when that has to be tried again.
    async fn obey(&mut self) -> bool {
        let wanted = *self.open.borrow_and_update();
        match (wanted, &self.listener) {
            (true, None) => match TcpListener::bind(self.address).await {
                Ok(listener) => self.listener = Some(listener),
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    return false;
                }
            },
            (false, Some(_)) => self.listener = None,
            (true, Some(_)) | (false, None) => {}
        }
        self.is_open.send_replace(wanted);
        true
    }
}

impl Listener for Door {
    type Io = Connection;
    type Addr = Fuse;

    async fn accept(&mut self) -> (Connection, Fuse) {
        loop {
            if !self.obey().await {
                continue;
            }
            let Some(listener) = &self.listener else {
                if self.open.changed().await.is_err() {
                    // Nobody can open it any more.
                    std::future::pending::<()>().await;
                }
                continue;
            };
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    // Only a matter of latency.
                    _ = stream.set_nodelay(true);
                    let fuse = Fuse::default();
                    return (Connection::new(stream, fuse.clone(), self.resets.clone()), fuse);
                },
                changed = self.open.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Fuse> {
        Ok(Fuse::default())
    }
}

/// Resets one connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Fuse(Arc<AtomicBool>);

impl Fuse {
    /// From now on nothing is read from nor written to the connection, and it ends with a reset.
    pub(super) fn blow(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_blown(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connected<IncomingStream<'_, Door>> for Fuse {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.remote_addr().clone()
    }
}

/// A connection that a [`Fuse`] or its [`Latch`] can reset.
pub(super) struct Connection {
    stream: TcpStream,
    fuse: Fuse,
    reset: BoxFuture<'static, ()>,
}

impl Connection {
    fn new(stream: TcpStream, fuse: Fuse, mut resets: watch::Receiver<u64>) -> Self {
        let before = *resets.borrow_and_update();
        let reset = Box::pin(async move {
            // The sender outlives the server; without it there is nobody to reset anything.
            if resets.wait_for(|now| *now != before).await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        Self { stream, fuse, reset }
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.fuse.is_blown() && self.reset.as_mut().poll(context).is_ready() {
            self.fuse.blow();
            // A completed future must not be polled again.
            self.reset = Box::pin(std::future::pending());
        }
        if self.fuse.is_blown() { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.fuse.is_blown() {
            // Where that fails, the client sees a close in place of a reset.
            _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
