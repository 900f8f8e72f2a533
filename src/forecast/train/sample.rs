//! Which windows are trained on, which decide, and in what order.

use super::{SAMPLE, TrainOptions, VALIDATION};
use crate::forecast::LabelledWindows;
use crate::model::rng::Rng;

/// The indices of the windows for training and validation: those whose targets end before the newest share begins, and those
/// whose targets lie in it; each a sample in order.
pub(super) fn split(windows: &LabelledWindows, options: &TrainOptions) -> (Vec<usize>, Vec<usize>) {
    let shape = windows.windows.shape;
    let mut ends = windows.windows.ends.clone();
    ends.sort_unstable();
    let Some(&border) = ends.get((ends.len() as f64 * (1.0 - VALIDATION)) as usize) else {
        return Default::default();
    };
    let targets = i64::from(shape.step_seconds) * shape.horizon as i64;
    let which = |keep: &dyn Fn(i64) -> bool| -> Vec<usize> {
        (0..windows.len()).filter(|&at| keep(windows.windows.ends[at])).collect()
    };
    let rng = &mut Rng::new(options.seed, SAMPLE);
    let training = sample(which(&|end| end + targets <= border), options.most_windows, rng);
    let validation = sample(which(&|end| end >= border), options.most_windows / 4, rng);
    (training, validation)
}

/// At most `most` of the indices, in their order.
fn sample(mut indices: Vec<usize>, most: usize, rng: &mut Rng) -> Vec<usize> {
    if indices.len() > most {
        shuffle(&mut indices, rng);
        indices.truncate(most);
        indices.sort_unstable();
    }
    indices
}

pub(super) fn shuffle(indices: &mut [usize], rng: &mut Rng) {
    for last in (1..indices.len()).rev() {
        indices.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
