//! Connections: limited in number, each with time limits, and closed gracefully when the server stops.

use crate::limits::{CONNECTIONS, HEAD_TIME, STALLED_TIME};
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep};

/// Maximum bytes of the head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// Pause after a failed accept, for example when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(50);

/// Address of the client.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Resolves when the server stops.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone: the server has stopped.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves connections until `stop` is set, then waits for the active ones.
pub async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    let service = TowerToHyperService::new(router);
    loop {
        let accepted = tokio::select! {
            () = stopped(&mut stop) => break,
            accepted = accept(&listener, &free) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else { continue };
        let service = service.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(Limited::new(stream)), service)
            .with_upgrades();
        let mut stop = stop.clone();
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            // A connection broken by the client is not an error.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    // The semaphore is never closed, so all permits are returned.
    let _ = free.acquire_many(CONNECTIONS as u32).await;
}

async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> Option<(TcpStream, IpAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = free.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Small pieces of audio are sent immediately. A failure to set this is harmless.
            let _ = stream.set_nodelay(true);
            Some((stream, peer.ip(), permit))
        }
        Err(_) => {
            sleep(PAUSE).await;
            None
        }
    }
}

/// A connection that times out when the client does not accept data.
struct Limited {
    stream: TcpStream,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Limited {
    fn new(stream: TcpStream) -> Limited {
        Limited { stream, stalled: None }
    }

    fn limit<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let sleep = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALLED_TIME)));
        sleep.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Limited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Limited {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limit(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
