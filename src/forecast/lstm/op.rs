//! The network as one operation of candle, with a backward pass of its own.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp2, Device, Layout, Result, Shape, Tensor, bail};

use super::block::Block;
use super::passes::{Pass, Pool, Threads};
use super::sizes::{GROUP, Sizes};

/// The network, applied to sequences `[batch, steps, features]` and weights `[Sizes::weights]`; gives
/// `[batch, horizon, GROUP]`.
#[derive(Clone, Debug)]
pub struct Network {
    sizes: Sizes,
    threads: Threads,
    pool: Arc<Pool>,
}

/// One application of a [`Network`] that may be followed by its backward pass.
#[derive(Debug)]
struct Recorded {
    network: Network,
    tapes: Mutex<Option<Vec<Block>>>,
}

/// One application of which no gradient will be asked.
#[derive(Debug)]
struct Inferred<'a>(&'a Network);

impl Network {
    /// A network of these sizes.
    pub fn new(sizes: Sizes, threads: Threads) -> Network {
        Network { sizes, threads, pool: Arc::default() }
    }

    /// How many threads a pass may keep busy.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// Its sizes.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Applies it so that candle can go back through it.
    pub fn record(&self, sequences: &Tensor, weights: &Tensor) -> Result<Tensor> {
        sequences.apply_op2(weights, Recorded { network: self.clone(), tapes: Mutex::default() })
    }

    /// Applies it without keeping anything for a backward pass.
    pub fn infer(&self, sequences: &Tensor, weights: &Tensor) -> Result<Tensor> {
        sequences.apply_op2_no_bwd(weights, &Inferred(self))
    }

    fn pass<'a>(&'a self, weights: &'a [f32]) -> Pass<'a> {
        Pass { sizes: &self.sizes, weights, threads: self.threads, pool: &self.pool }
    }

    /// The batch and the numbers behind both arguments, if they fit.
    fn arguments<'a>(
        &self,
        sequences: (&'a CpuStorage, &Layout),
        weights: (&'a CpuStorage, &Layout),
    ) -> Result<(usize, &'a [f32], &'a [f32])> {
        let Sizes { steps, features, hidden, layers, horizon } = self.sizes;
        if [steps, features, hidden, layers, horizon].contains(&0) {
            bail!("a network of {:?} is none; every size must be 1 at least", self.sizes);
        }
        let batch = match sequences.1.dims() {
            [batch, s, f] if (*s, *f) == (steps, features) => *batch,
            other => bail!("the sequences are {other:?}; the network takes [batch, {steps}, {features}]"),
        };
        if weights.1.dims() != [self.sizes.weights()] {
            bail!("the weights are {:?}; the network has [{}]", weights.1.dims(), self.sizes.weights());
        }
        Ok((batch, numbers(sequences)?, numbers(weights)?))
    }

    fn output_shape(&self, batch: usize) -> Shape {
        (batch, self.sizes.horizon, GROUP).into()
    }
}

/// The numbers of a contiguous tensor of f32.
fn numbers<'a>((storage, layout): (&'a CpuStorage, &Layout)) -> Result<&'a [f32]> {
    match (layout.contiguous_offsets(), storage) {
        (Some((from, to)), CpuStorage::F32(values)) => Ok(&values[from..to]),
        (None, _) => bail!("the network takes contiguous tensors"),
        (_, other) => {
            bail!("the network takes f32, not {:?}", candle_core::backend::BackendStorage::dtype(other))
        }
    }
}

impl CustomOp2 for Inferred<'_> {
    fn name(&self) -> &'static str {
        "lstm-network"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, sequences, weights) = self.0.arguments((s1, l1), (s2, l2))?;
        let mut outputs = vec![0.0; batch * self.0.sizes.outputs()];
        self.0.pass(weights).infer(sequences, &mut outputs);
        Ok((CpuStorage::F32(outputs), self.0.output_shape(batch)))
    }
}

impl CustomOp2 for Recorded {
    fn name(&self) -> &'static str {
        "lstm-network"
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (batch, sequences, weights) = self.network.arguments((s1, l1), (s2, l2))?;
        let mut outputs = vec![0.0; batch * self.network.sizes.outputs()];
        let tapes = self.network.pass(weights).record(sequences, &mut outputs);
        *self.tapes.lock().unwrap_or_else(PoisonError::into_inner) = Some(tapes);
        Ok((CpuStorage::F32(outputs), self.network.output_shape(batch)))
    }

    fn bwd(
        &self,
        sequences: &Tensor,
        weights: &Tensor,
        _outputs: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (gradient, shape) = (gradient.flatten_all()?.to_vec1::<f32>()?, sequences.shape());
        let values = weights.to_vec1::<f32>()?;
        let pass = self.network.pass(&values);
        let tapes = self.tapes.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A backward pass uses the tapes up; a second one through the same graph records them anew.
        let tapes = match tapes {
            Some(tapes) => tapes,
            None => pass.record(&sequences.flatten_all()?.to_vec1()?, &mut vec![0.0; gradient.len()]),
        };
        let mut inputs = sequences.track_op().then(|| vec![0.0; shape.elem_count()]);
        let of_weights = pass.gradients(tapes, &gradient, inputs.as_deref_mut());
        let of_weights = Tensor::from_vec(of_weights, self.network.sizes.weights(), &Device::Cpu)?;
        let of_inputs = inputs.map(|inputs| Tensor::from_vec(inputs, shape, &Device::Cpu)).transpose()?;
        Ok((of_inputs, Some(of_weights)))
    }
}
