//! A captured step: all launches of a program as one CUDA graph, started by one call.

use super::context::Cuda;
use crate::error::Error;
use cudarc::driver::{result, sys};

/// A program's launches as a CUDA graph.
#[derive(Debug)]
pub(crate) struct Graph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    nodes: usize,
}

// SAFETY: the handles have no thread affinity and are used by one thread at a time, the owner of the program.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures what `queue` queues on the device's stream, without running it.
    pub fn capture(cuda: &Cuda, queue: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let stream = cuda.stream();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is open and not being captured: only this function begins and ends captures.
        unsafe { result::stream::begin_capture(stream, mode) }
            .map_err(|e| Error::driver("begin capturing a step", e))?;
        let queued = queue();
        // SAFETY: as above. A failed capture is ended too, otherwise the stream would be unusable.
        let graph = unsafe { result::stream::end_capture(stream) };
        queued?;
        let graph = graph.map_err(|e| Error::driver("end capturing a step", e))?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: `graph` was just created. No flag is needed, because a step allocates nothing.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) }
            .result()
            .map_err(|e| Error::driver("instantiate a captured step", e))?;
        let mut nodes = 0;
        // SAFETY: a null list queries the count only.
        let counted = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes) };
        if counted != sys::CUresult::CUDA_SUCCESS {
            nodes = 0;
        }
        // SAFETY: both are valid. Uploading now keeps the first replay as short as the others.
        unsafe { result::graph::upload(executable, stream) }
            .map_err(|e| Error::driver("upload a step", e))?;
        Ok(Graph { graph, executable, nodes })
    }

    /// Number of kernels and copies in the graph.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Queues the graph.
    pub fn launch(&self, cuda: &Cuda) -> Result<(), Error> {
        // SAFETY: the executable lives as long as `self`.
        unsafe { result::graph::launch(self.executable, cuda.stream()) }
            .map_err(|e| Error::driver("launch a captured step", e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created in `capture`, destroyed once.
        unsafe {
            let _ = result::graph::exec_destroy(self.executable);
            let _ = result::graph::destroy(self.graph);
        }
    }
}
