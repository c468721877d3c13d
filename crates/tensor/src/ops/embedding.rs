//! Embedding lookup, and adding a position table to a sequence.

use crate::args;
use crate::cpu::vector;
use crate::cuda::launch::Launch;
use crate::error::Error;
use crate::op::{CpuIo, CudaIo, Op, float};
use crate::shape::DType;
use crate::tape::{Gradients, Spec, Tape, Value};

/// Inputs: table `[v, c]`, ids `[..]` i32. Output: `[.., c]`.
#[derive(Debug)]
struct Embedding;

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (table, ids, rows, c) = (io.f32(0), io.i32(1), io.shape(0).dim(0), io.shape(0).last());
        if let Some(id) = ids.iter().find(|&&id| usize::try_from(id).map_or(true, |id| id >= rows)) {
            return Err(Error::Unsupported(format!("id {id} is outside an embedding table of {rows} rows")));
        }
        vector::each_row(io.take(0), c, |i, y| y.copy_from_slice(&table[ids[i] as usize * c..][..c]));
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, rows, c) = (io.output_shape(0).len(), io.shape(0).dim(0), io.shape(0).last());
        let (from, to) = (float(io.dtype(0)).suffix(), float(io.output_dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), io.input(1), n as i64, c, rows];
        io.launch(&format!("embedding_forward_{from}_{to}"), Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let (dy, ids) = (g.result_gradient(), g.input(1));
        let (rows, places) = (g.input_shape(0).dim(0), g.input_shape(1).len());
        let target = g.target(0);
        let space = [Spec::constant([places], DType::I32), Spec::constant([2 * rows], DType::I32)];
        g.push_with_workspace(EmbeddingTable, &[ids, dy], &[target], &space);
    }
}

/// Inputs: ids, dy. Outputs: dtable, the positions of each id grouped by id, and the start and end of each group.
#[derive(Debug)]
struct EmbeddingTable;

impl Op for EmbeddingTable {
    fn name(&self) -> &'static str {
        "embedding'table"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (ids, dy, c) = (io.i32(0), io.f32(1), io.output_shape(0).last());
        let (dtable, places, starts) = (io.accumulate(0), io.take_i32(1), io.take_i32(2));
        for (at, place) in (0..).zip(places.iter_mut()) {
            *place = at;
        }
        // Stable: the positions of an id stay in order, so that its sum has a fixed order.
        places.sort_by_key(|&at| ids[at as usize]);
        starts.fill(0);
        for (at, &place) in (0..).zip(places.iter()) {
            let row = ids[place as usize] as usize;
            if starts[2 * row + 1] == 0 {
                starts[2 * row] = at;
            }
            starts[2 * row + 1] = at + 1;
        }
        let (places, starts) = (&*places, &*starts);
        vector::each_row(dtable, c, |row, sums| {
            for &place in &places[starts[2 * row] as usize..starts[2 * row + 1] as usize] {
                for (s, dy) in sums.iter_mut().zip(&dy[place as usize * c..]) {
                    *s += dy;
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, rows, c) = (io.shape(0).len(), io.output_shape(0).dim(0), io.output_shape(0).last());
        let (places, starts) = (io.output(1), io.output(2));
        let find = args![places, starts, io.input(0), n, rows];
        io.launch("embedding_places", Launch::line(rows.div_ceil(32), 256), &find)?;
        let name = format!("embedding_table_{}", float(io.dtype(1)).suffix());
        let sum = args![io.output(0), io.base(0), io.input(1), places, starts, c, rows];
        io.launch(&name, Launch::grid(c.div_ceil(256), rows.div_ceil(8), 1, 256), &sum)
    }
}

/// Inputs: x `[b, t, c]`, table `[at least t, c]`. Output: x with row t of the table added at time t.
#[derive(Debug)]
struct AddPositions;

impl Op for AddPositions {
    fn name(&self) -> &'static str {
        "add_positions"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (x, table, time, c) = (io.f32(0), io.f32(1), io.shape(0).dim(1), io.shape(0).last());
        vector::each_row(io.take(0), c, |i, y| {
            for ((y, x), p) in y.iter_mut().zip(&x[i * c..]).zip(&table[i % time * c..]) {
                *y = x + p;
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (n, period) = (io.shape(0).len(), io.shape(0).dim(1) * io.shape(0).last());
        let (from, to) = (float(io.dtype(1)).suffix(), float(io.dtype(0)).suffix());
        let args = args![io.output(0), io.input(0), io.input(1), n as i64, period];
        io.launch(&format!("add_positions_forward_{from}_{to}"), Launch::each(n.div_ceil(8)), &args)
    }

    fn backward(&self, g: &mut Gradients<'_>) {
        let dy = g.result_gradient();
        if g.wants(1) {
            let target = g.target(1);
            let time = g.input_shape(0).dim(1);
            g.push(AddPositionsTable { time }, &[dy], &[target]);
        }
        g.pass(0, dy);
    }
}

/// Input: dy `[b, t, c]`. Output: dtable, the sum over the batch; unused rows get only their base.
#[derive(Debug)]
struct AddPositionsTable {
    time: usize,
}

impl Op for AddPositionsTable {
    fn name(&self) -> &'static str {
        "add_positions'table"
    }

    fn cpu(&self, io: &mut CpuIo<'_>) -> Result<(), Error> {
        let (dy, time, c) = (io.f32(0), self.time, io.output_shape(0).last());
        let dtable = &mut io.accumulate(0)[..time * c];
        vector::each_row(dtable, c, |t, sums| {
            for dy in dy.chunks_exact(time * c) {
                for (s, dy) in sums.iter_mut().zip(&dy[t * c..]) {
                    *s += dy;
                }
            }
        });
        Ok(())
    }

    fn cuda(&self, io: &CudaIo<'_>) -> Result<(), Error> {
        let (size, period) = (io.output_shape(0).len(), self.time * io.output_shape(0).last());
        let name = format!("add_positions_table_{}", float(io.dtype(0)).suffix());
        let batch = io.shape(0).len() / period;
        let args = args![io.output(0), io.base(0), io.input(0), batch, period, size as i64];
        io.launch(&name, Launch::each(size.div_ceil(4)), &args)
    }
}

impl Tape {
    /// Rows `ids[..]` of a table `[v, c]`, as `[.., c]` in the activation type; ids are i32 with at most three
    /// dimensions.
    ///
    /// An id outside the table is an error on the CPU. On CUDA a running step cannot report errors, so the result is a
    /// row of NaN, which makes the step bad; it is never another row of the table.
    pub fn embedding(&mut self, table: Value, ids: Value) -> Value {
        let (rows, places) = (self.shape(table), self.shape(ids));
        assert_eq!(rows.rank(), 2, "an embedding table must be a matrix, not {rows}");
        assert_eq!(self.info(ids).dtype, DType::I32, "ids must be i32");
        assert!(places.rank() < 4, "ids of shape {places} have too many dimensions");
        self.check_table(table);
        let shape: Vec<usize> = places.dims().iter().copied().chain([rows.last()]).collect();
        let spec = Spec::new(&shape[..], self.dtype());
        self.push_one(Embedding, &[table, ids], spec)
    }

    /// `x [b, t, c]` with row t of `table [at least t, c]` added at time t.
    pub fn add_positions(&mut self, x: Value, table: Value) -> Value {
        let (shape, rows) = (self.shape(x), self.shape(table));
        assert_eq!(shape.rank(), 3, "positions are added to [batch, time, channel], not to {shape}");
        assert_eq!(rows.rank(), 2, "a position table must be a matrix, not {rows}");
        assert_eq!(shape.last(), rows.last(), "x {shape} and the positions {rows} do not match");
        assert!(shape.dim(1) <= rows.dim(0), "x {shape} is longer than the {} positions", rows.dim(0));
        self.check_table(table);
        let spec = Spec::new(shape, self.info(x).dtype);
        self.push_one(AddPositions, &[x, table], spec)
    }

    fn check_table(&self, table: Value) {
        let info = self.info(table);
        let fits = info.dtype == DType::F32 || info.dtype == self.dtype();
        assert!(fits, "a table must be f32 or have the activation type");
        let sums = !info.differentiable || info.gradient_dtype == DType::F32;
        assert!(sums, "a table must be a weight with an f32 gradient, not an activation");
    }
}
