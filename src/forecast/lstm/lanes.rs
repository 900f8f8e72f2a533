//! Vectors of sixteen windows, on whatever vector instructions the processor has.
//!
//! A *row* is one quantity of sixteen windows side by side: one AVX-512 register, two of AVX2, four of NEON, or sixteen plain
//! numbers. Every operation on rows works lane by lane in the same order, so the width changes speed and nothing else: results
//! are equal bit for bit wherever multiply and add are fused (AVX-512, AVX2, NEON). Only a processor without them (x86 before
//! 2013) rounds products once more.
//!
//! [`pulp`] asks the processor once and compiles each kernel for every instruction set, so nothing here is unsafe.

use pulp::{Arch, Simd, WithSimd};

/// Windows in a block: what the widest vector holds.
pub(super) const LANES: usize = 16;

/// One quantity of a block's windows, in `N` registers.
pub(super) type Row<S, const N: usize> = [<S as Simd>::f32s; N];

/// Work on rows. Every function that it calls down to the last is `#[inline(always)]`, or it would be compiled without the
/// vector instructions.
pub(in crate::forecast) trait Kernel {
    /// What comes out.
    type Output;

    /// Does the work with rows of `N` registers each.
    fn run<S: Simd, const N: usize>(self, simd: S) -> Self::Output;
}

struct Dispatched<K>(K);

impl<K: Kernel> WithSimd for Dispatched<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        match S::F32_LANES {
            16 => self.0.run::<S, 1>(simd),
            8 => self.0.run::<S, 2>(simd),
            4 => self.0.run::<S, 4>(simd),
            _ => self.0.run::<S, 16>(simd),
        }
    }
}

/// Runs a kernel on the best instructions that this processor has.
pub(in crate::forecast) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    Arch::new().dispatch(Dispatched(kernel))
}

/// Sixteen values each as a row; `values` holds whole rows.
#[inline(always)]
pub(super) fn rows<S: Simd, const N: usize>(values: &[f32]) -> &[Row<S, N>] {
    S::as_simd_f32s(values).0.as_chunks().0
}

/// Sixteen values each as a row that can be written.
#[inline(always)]
pub(super) fn rows_mut<S: Simd, const N: usize>(values: &mut [f32]) -> &mut [Row<S, N>] {
    S::as_mut_simd_f32s(values).0.as_chunks_mut().0
}

/// The same value in every lane.
#[inline(always)]
pub(super) fn splat<S: Simd, const N: usize>(simd: S, value: f32) -> Row<S, N> {
    [simd.splat_f32s(value); N]
}

/// `sum += weight * row`.
#[inline(always)]
pub(super) fn add_scaled<S: Simd, const N: usize>(
    simd: S,
    sum: &mut Row<S, N>,
    weight: f32,
    row: &Row<S, N>,
) {
    let weight = simd.splat_f32s(weight);
    for n in 0..N {
        sum[n] = simd.mul_add_e_f32s(weight, row[n], sum[n]);
    }
}

/// `a * b + c`.
#[inline(always)]
pub(super) fn mul_add<S: Simd, const N: usize>(
    simd: S,
    a: Row<S, N>,
    b: Row<S, N>,
    c: Row<S, N>,
) -> Row<S, N> {
    let mut out = c;
    for n in 0..N {
        out[n] = simd.mul_add_e_f32s(a[n], b[n], c[n]);
    }
    out
}

/// `a * b`.
#[inline(always)]
pub(super) fn mul<S: Simd, const N: usize>(simd: S, a: Row<S, N>, b: Row<S, N>) -> Row<S, N> {
    let mut out = a;
    for n in 0..N {
        out[n] = simd.mul_f32s(a[n], b[n]);
    }
    out
}

/// `1 - a * b`: of a gate `a`, `1 - a` with `b` one, and the derivative of a tangent with `b` equal to `a`.
#[inline(always)]
pub(super) fn one_minus<S: Simd, const N: usize>(simd: S, a: Row<S, N>, b: Row<S, N>) -> Row<S, N> {
    let one = simd.splat_f32s(1.0);
    let mut out = a;
    for n in 0..N {
        out[n] = simd.negate_mul_add_e_f32s(a[n], b[n], one);
    }
    out
}

/// The logistic function, `1 / (1 + e^-x)`. Absolute error below 2e-7.
#[inline(always)]
pub(super) fn sigmoid<S: Simd, const N: usize>(simd: S, x: Row<S, N>) -> Row<S, N> {
    let one = simd.splat_f32s(1.0);
    let mut out = x;
    for n in 0..N {
        let e = exp2(simd, simd.mul_f32s(x[n], simd.splat_f32s(-std::f32::consts::LOG2_E)));
        out[n] = simd.div_f32s(one, simd.add_f32s(one, e));
    }
    out
}

/// The hyperbolic tangent, as `1 - 2 / (e^2x + 1)`. Absolute error below 3e-7: what an LSTM adds up is of the order of one, so
/// the relative error near zero does not matter.
#[inline(always)]
pub(super) fn tanh<S: Simd, const N: usize>(simd: S, x: Row<S, N>) -> Row<S, N> {
    let one = simd.splat_f32s(1.0);
    let mut out = x;
    for n in 0..N {
        let e = exp2(simd, simd.mul_f32s(x[n], simd.splat_f32s(2.0 * std::f32::consts::LOG2_E)));
        let quotient = simd.div_f32s(simd.splat_f32s(-2.0), simd.add_f32s(one, e));
        out[n] = simd.add_f32s(one, quotient);
    }
    out
}

/// `2^f` for f within half of zero: the polynomial of degree 6 with the least relative error, 1.9e-9 (weighted least squares,
/// reweighted until the error was level).
const POWER: [f32; 7] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_47,
    0.055_503_29,
    0.009_618_489,
    0.001_339_993_1,
    0.000_153_458_12,
];

/// `2^y`, with y held within ±126 so that the result is a normal number.
#[inline(always)]
fn exp2<S: Simd>(simd: S, y: S::f32s) -> S::f32s {
    let bound = simd.splat_f32s(126.0);
    let y = simd.min_f32s(simd.max_f32s(y, simd.neg_f32s(bound)), bound);
    // Added to 1.5 * 2^23, a number loses its fraction to rounding, and its integer is left in the low bits.
    let shifter = simd.splat_f32s(12_582_912.0);
    let shifted = simd.add_f32s(y, shifter);
    let fraction = simd.sub_f32s(y, simd.sub_f32s(shifted, shifter));
    let mut power = simd.splat_f32s(POWER[6]);
    for at in (0..6).rev() {
        power = simd.mul_add_e_f32s(power, fraction, simd.splat_f32s(POWER[at]));
    }
    // The integer goes to the exponent, which begins at bit 23.
    let exponent = simd.wrapping_dyn_shl_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(23));
    simd.transmute_f32s_u32s(simd.add_u32s(simd.transmute_u32s_f32s(power), exponent))
}

/// Runs a kernel on instructions of the caller's choice.
#[cfg(test)]
pub(super) fn dispatch_on<S: Simd, K: Kernel>(simd: S, kernel: K) -> K::Output {
    simd.vectorize(Dispatched(kernel))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apply<'a>(&'a [f32]);

    impl Kernel for Apply<'_> {
        type Output = (Vec<f32>, Vec<f32>);

        #[inline(always)]
        fn run<S: Simd, const N: usize>(self, simd: S) -> Self::Output {
            let (mut sigmoids, mut tangents) = (self.0.to_vec(), self.0.to_vec());
            for row in rows_mut::<S, N>(&mut sigmoids) {
                *row = sigmoid(simd, *row);
            }
            for row in rows_mut::<S, N>(&mut tangents) {
                *row = tanh(simd, *row);
            }
            (sigmoids, tangents)
        }
    }

    #[test]
    fn the_functions_are_as_exact_as_they_say() {
        let mut points: Vec<f32> = (-160_000..160_000).map(|point| point as f32 / 4_000.0).collect();
        points.extend([
            -1e30, -1e3, -200.0, -88.0, -0.0, 1e-30, 0.0, 1e-6, 88.0, 200.0, 1e3, 1e30, 3.0, 4.0, 5.0, 6.0,
        ]);
        assert_eq!(points.len() % LANES, 0);
        type Kernel = fn(Apply<'_>) -> (Vec<f32>, Vec<f32>);
        let kernels: [Kernel; 2] = [|apply| dispatch(apply), |apply| dispatch_on(pulp::Scalar::new(), apply)];
        for run in kernels {
            let (sigmoids, tangents) = run(Apply(&points));
            for ((x, sigmoid), tangent) in points.iter().zip(sigmoids).zip(tangents) {
                let x = f64::from(*x);
                let error = (f64::from(sigmoid) - 1.0 / (1.0 + (-x).exp())).abs();
                assert!(error < 2e-7, "sigmoid({x}) = {sigmoid}, {error:e} off");
                let error = (f64::from(tangent) - x.tanh()).abs();
                assert!(error < 3e-7, "tanh({x}) = {tangent}, {error:e} off");
            }
        }
    }
}
