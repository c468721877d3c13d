//! Descriptors of a product and its chosen algorithm: everything `cublasLtMatmul` needs besides the addresses.

use std::sync::Arc;

use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;

use super::lt::{Heuristic, Lt, Owned};
use super::{Element, Epilogue, Gemm, GemmError, Key, Operands, StoredMatrix};

/// A library handle with the workspace its kernels may use.
pub(super) struct Handle {
    pub lt: Arc<Lt>,
    pub raw: *mut std::ffi::c_void,
    pub workspace: u64,
    pub workspace_bytes: usize,
}

// SAFETY: the library's handle has no thread-local state and may be used by several threads at once.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `Lt::handle`, destroyed once.
        unsafe { self.lt.destroy(self.raw) };
    }
}

/// Everything about one product except the algorithm.
pub(super) struct Plan {
    // Dropped before `handle`, which keeps the library's destroy functions loaded.
    desc: Owned,
    first: Owned,
    second: Owned,
    out: Owned,
    handle: Arc<Handle>,
    key: Key,
}

fn data_type(element: Element) -> u32 {
    match element {
        Element::F32 => sys::cudaDataType_t::CUDA_R_32F as u32,
        Element::Bf16 => sys::cudaDataType_t::CUDA_R_16BF as u32,
    }
}

fn epilogue(epilogue: Epilogue) -> u32 {
    use sys::cublasLtEpilogue_t as E;
    let value = match epilogue {
        Epilogue::None => E::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Bias => E::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::GeluBias => E::CUBLASLT_EPILOGUE_GELU_BIAS,
        Epilogue::GeluAux => E::CUBLASLT_EPILOGUE_GELU_AUX,
        Epilogue::GeluAuxBias => E::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        Epilogue::DGelu => E::CUBLASLT_EPILOGUE_DGELU,
        Epilogue::DGeluBiasGrad => E::CUBLASLT_EPILOGUE_DGELU_BGRAD,
        // The operands are swapped, and so are the names.
        Epilogue::BiasGradA => E::CUBLASLT_EPILOGUE_BGRADB,
        Epilogue::BiasGradB => E::CUBLASLT_EPILOGUE_BGRADA,
    };
    value as u32
}

/// Partial sums of a split k must not be added in place: the counters used there serialise the additions but do not
/// fix their order, so two runs could differ. They must not be stored in bf16 either, which would lose the
/// precision of f32 accumulation.
fn reduction_mask(gemm: &Gemm) -> u32 {
    use sys::cublasLtReductionScheme_t as R;
    let compute = R::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
    match gemm.output {
        Element::F32 => compute | R::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32,
        Element::Bf16 => compute,
    }
}

impl Plan {
    pub fn new(handle: &Arc<Handle>, key: &Key) -> Result<Plan, GemmError> {
        use sys::cublasComputeType_t as C;
        use sys::cublasLtMatmulDescAttributes_t as D;
        let gemm = &key.gemm;
        let lt = &handle.lt;
        let compute = match gemm.input {
            Element::F32 if gemm.tf32 => C::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => C::CUBLAS_COMPUTE_32F,
        };
        let columns = gemm.column_major();
        let desc = lt.desc(compute)?;
        // CUBLAS_OP_N and CUBLAS_OP_T are 0 and 1.
        desc.set(D::CUBLASLT_MATMUL_DESC_TRANSA as u32, i32::from(columns.first.transposed))?;
        desc.set(D::CUBLASLT_MATMUL_DESC_TRANSB as u32, i32::from(columns.second.transposed))?;
        desc.set(D::CUBLASLT_MATMUL_DESC_EPILOGUE as u32, epilogue(gemm.epilogue))?;
        if gemm.epilogue.has_bias() {
            desc.set(D::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE as u32, data_type(gemm.output))?;
        }
        if gemm.epilogue.has_aux() {
            desc.set(D::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD as u32, gemm.c_ld as i64)?;
            if gemm.batch > 1 {
                desc.set(D::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE as u32, gemm.c_batch_stride)?;
            }
        }
        let layout = |side: &StoredMatrix, element: Element| -> Result<Owned, GemmError> {
            use sys::cublasLtMatrixLayoutAttribute_t as L;
            let layout = lt.layout(data_type(element), side.rows, side.columns, side.ld)?;
            if gemm.batch > 1 {
                layout.set(L::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as u32, gemm.batch as i32)?;
                layout.set(L::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as u32, side.stride)?;
            }
            Ok(layout)
        };
        Ok(Plan {
            desc,
            first: layout(&columns.first, gemm.input)?,
            second: layout(&columns.second, gemm.input)?,
            out: layout(&columns.out, gemm.output)?,
            handle: handle.clone(),
            key: *key,
        })
    }

    fn layouts(&self) -> [&Owned; 4] {
        [&self.first, &self.second, &self.out, &self.out]
    }

    /// Sets the addresses stored in the descriptor. Also called before requesting algorithms, because the library
    /// derives the alignment from them.
    fn set_addresses(&self, operands: &Operands) -> Result<(), GemmError> {
        use sys::cublasLtMatmulDescAttributes_t as D;
        if let (true, Some(bias)) = (self.key.gemm.epilogue.has_bias(), operands.bias) {
            self.desc.set(D::CUBLASLT_MATMUL_DESC_BIAS_POINTER as u32, bias)?;
        }
        if let (true, Some(aux)) = (self.key.gemm.epilogue.has_aux(), operands.aux) {
            self.desc.set(D::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER as u32, aux)?;
        }
        Ok(())
    }

    fn preference(&self) -> Result<Owned, GemmError> {
        use sys::cublasLtMatmulPreferenceAttributes_t as P;
        let alignment = &self.key.alignment;
        let preference = self.handle.lt.preference()?;
        let bytes = self.handle.workspace_bytes as u64;
        preference.set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32, bytes)?;
        let mask = reduction_mask(&self.key.gemm);
        preference.set(P::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK as u32, mask)?;
        for (attribute, bytes) in [
            (P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b),
            (P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a),
            (P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c.min(alignment.d)),
            (P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.d),
        ] {
            preference.set(attribute as u32, u32::from(bytes))?;
        }
        Ok(preference)
    }

    /// The library's algorithms in its order of preference.
    pub fn algorithms(&self, operands: &Operands, most: usize) -> Result<Vec<Heuristic>, GemmError> {
        self.set_addresses(operands)?;
        let preference = self.preference()?;
        // SAFETY: every handle is owned by this plan and alive.
        let mut found = unsafe {
            self.handle.lt.heuristics(self.handle.raw, &self.desc, self.layouts(), &preference, most)?
        };
        found.retain(|h| h.workspace <= self.handle.workspace_bytes);
        Ok(found)
    }

    /// Whether a stored algorithm is still valid with this library and workspace.
    pub fn accepts(&self, operands: &Operands, algo: &[u64; 8]) -> Result<bool, GemmError> {
        self.set_addresses(operands)?;
        // SAFETY: every handle is owned by this plan and alive.
        let workspace = unsafe { self.handle.lt.check(self.handle.raw, &self.desc, self.layouts(), algo) };
        Ok(workspace.is_some_and(|bytes| bytes <= self.handle.workspace_bytes))
    }

    /// # Safety
    /// The addresses must hold what the product says, on the device of the handle and the stream.
    pub unsafe fn launch(
        &self,
        operands: &Operands,
        algo: &[u64; 8],
        stream: CUstream,
    ) -> Result<(), GemmError> {
        self.set_addresses(operands)?;
        let accumulate = self.key.gemm.accumulate;
        // With beta 0, c is not read, but its address is still validated.
        let c = if accumulate { operands.c } else { operands.d };
        // SAFETY: the handles are alive; the addresses are guaranteed by the caller.
        unsafe {
            self.handle.lt.matmul(
                self.handle.raw,
                &self.desc,
                [operands.alpha, if accumulate { 1.0 } else { 0.0 }],
                [operands.b, operands.a, c, operands.d],
                self.layouts(),
                algo,
                (self.handle.workspace, self.handle.workspace_bytes),
                stream,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Matrix;
    use super::*;

    /// The library validates the size of every attribute when it is set, and needs no GPU for that.
    #[test]
    fn the_library_accepts_every_descriptor() {
        let Ok(lt) = Lt::load() else {
            println!("skipped: no cuBLASLt");
            return;
        };
        println!("cuBLASLt {}", lt.version());
        let lt = Arc::new(lt);
        let handle = Handle { lt, raw: std::ptr::null_mut(), workspace: 0, workspace_bytes: 0 };
        let handle = Arc::new(handle);
        for epilogue in [
            Epilogue::None,
            Epilogue::Bias,
            Epilogue::GeluBias,
            Epilogue::GeluAux,
            Epilogue::GeluAuxBias,
            Epilogue::DGelu,
            Epilogue::DGeluBiasGrad,
            Epilogue::BiasGradA,
            Epilogue::BiasGradB,
        ] {
            for (input, output) in
                [(Element::Bf16, Element::Bf16), (Element::Bf16, Element::F32), (Element::F32, Element::F32)]
            {
                let gemm = Gemm {
                    batch: 2,
                    a: Matrix::packed(24).every(8 * 24),
                    b: Matrix::packed(24).transpose(),
                    c_batch_stride: 8 * 16,
                    output,
                    tf32: true,
                    epilogue,
                    ..Gemm::packed(8, 16, 24, input)
                };
                let operands = Operands::new(256, 512, 1024).bias(2048).aux(4096);
                let plan = Plan::new(&handle, &Key::new(&gemm, &operands)).unwrap();
                plan.set_addresses(&operands).unwrap();
                plan.preference().unwrap();
            }
        }
    }
}
