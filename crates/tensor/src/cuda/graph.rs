//! A captured step: the launches of a whole program as one object that is started by one call.

use super::context::Cuda;
use crate::error::Error;
use cudarc::driver::{result, sys};

/// A program's launches, recorded.
#[derive(Debug)]
pub struct Graph {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    nodes: usize,
}

unsafe impl Send for Graph {}

impl Graph {
    /// Records what `queue` queues on the device's stream, without running it.
    pub fn capture(cuda: &Cuda, queue: impl FnOnce() -> Result<(), Error>) -> Result<Graph, Error> {
        let stream = cuda.stream();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is open and not being captured: captures are made and ended here alone.
        unsafe { result::stream::begin_capture(stream, mode) }
            .map_err(|e| Error::driver("record a step", e))?;
        let queued = queue();
        // SAFETY: as above. A failed recording is ended too, or the stream would be unusable.
        let graph = unsafe { result::stream::end_capture(stream) };
        queued?;
        let graph = graph.map_err(|e| Error::driver("end the recording of a step", e))?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: `graph` was just made. No flag is needed: nothing is allocated inside a step.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) }
            .result()
            .map_err(|e| Error::driver("make a recorded step ready", e))?;
        let mut nodes = 0;
        // SAFETY: a null list asks for the number alone.
        let counted = unsafe { sys::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut nodes) };
        if counted != sys::CUresult::CUDA_SUCCESS {
            nodes = 0;
        }
        // SAFETY: both are valid; the upload keeps the first replay as short as the rest.
        unsafe { result::graph::upload(executable, stream) }
            .map_err(|e| Error::driver("upload a step", e))?;
        Ok(Graph { graph, executable, nodes })
    }

    /// How many kernels and copies it holds.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Queues it.
    pub fn launch(&self, cuda: &Cuda) -> Result<(), Error> {
        // SAFETY: the executable lives as long as `self`.
        unsafe { result::graph::launch(self.executable, cuda.stream()) }
            .map_err(|e| Error::driver("start a recorded step", e))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `capture`, destroyed once.
        let _ = unsafe { result::graph::exec_destroy(self.executable) };
        let _ = unsafe { result::graph::destroy(self.graph) };
    }
}
