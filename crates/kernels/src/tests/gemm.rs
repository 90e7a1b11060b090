use super::reference::{dot, gelu};
use super::support::{Cases, Guarded, Random};
use crate::gemm::GEMM_MAX_ERROR;
use crate::{Activation, Epilogue, Isa, PackedMatrix, PanelOutput, ThreadPool, gemm};
use std::ops::Range;

type Reference = fn(f64) -> f64;

/// A layer with its input, and room for the result.
struct Layer {
    isa: Isa,
    rows: usize,
    n: usize,
    k: usize,
    a: Guarded,
    a_ld: usize,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    packed: PackedMatrix,
}

impl Layer {
    fn new(
        isa: Isa,
        (rows, n, k): (usize, usize, usize),
        gap: usize,
        values: fn(&mut Random, usize) -> Vec<f32>,
    ) -> Layer {
        let mut random = Random((rows * 1_000_003 + n * 1009 + k) as u64);
        let a_ld = k + gap;
        // The last row ends where memory ends.
        let a = Guarded::new(&values(&mut random, (rows * a_ld).saturating_sub(gap)));
        let weights = values(&mut random, n * k);
        let bias = (n % 3 != 0).then(|| values(&mut random, n));
        let row = |j: usize, row: &mut [f32]| row.copy_from_slice(&weights[j * k..][..k]);
        let packed = PackedMatrix::pack(isa, n, k, row, bias.as_deref());
        Layer { isa, rows, n, k, a, a_ld, weights, bias, packed }
    }

    fn describe(&self) -> String {
        format!("{} {}x{}x{}", self.isa.name(), self.rows, self.n, self.k)
    }

    fn row(&self, r: usize) -> &[f32] {
        &self.a[r * self.a_ld..][..self.k]
    }

    /// The product in f64, `[rows][panels * width]`.
    fn reference(&self) -> Vec<f64> {
        let columns = self.packed.panels() * self.isa.panel_width();
        let mut out = vec![0.0; self.rows * columns];
        for r in 0..self.rows {
            for j in 0..self.n {
                let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[j]));
                out[r * columns + j] = dot(self.row(r), &self.weights[j * self.k..][..self.k]) + bias;
            }
        }
        out
    }

    /// Computes some rows and panels into a row-major result.
    fn compute(&self, rows: Range<usize>, panels: Range<usize>, epilogue: Epilogue, out: &mut [f32]) {
        let width = self.isa.panel_width();
        let ld = self.packed.panels() * width;
        assert_eq!(out.len(), self.rows * ld);
        let to =
            PanelOutput { ptr: out.as_mut_ptr().wrapping_add(rows.start * ld), panel_stride: width, row_stride: ld };
        let a = self.a.as_ptr().wrapping_add(rows.start * self.a_ld);
        // SAFETY: the rows lie in `a`, rows and panels in `out`.
        unsafe { gemm(self.isa, a, self.a_ld, rows.len(), &self.packed, panels, to, epilogue) };
    }

    fn whole(&self, epilogue: Epilogue) -> Guarded {
        let mut out = Guarded::filled(f32::NAN, self.rows * self.packed.panels() * self.isa.panel_width());
        self.compute(0..self.rows, 0..self.packed.panels(), epilogue, &mut out);
        out
    }
}

fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = Vec::new();
    for rows in (0..=26).chain([31, 64, 100]) {
        for n in [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 65] {
            for k in [1, 2, 16, 33] {
                shapes.push((rows, n, k));
            }
        }
    }
    for k in (0..=70).chain([127, 128, 384, 1000]) {
        shapes.push((5, 40, k));
    }
    // More than one block of rows.
    shapes.extend([(300, 33, 1536), (50, 32, 4096), (13, 0, 16)]);
    shapes
}

/// Sums of products of small integers are exact, so that any wrong index shows.
#[test]
fn products_of_integers_are_exact() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for shape in shapes() {
            let layer = Layer::new(isa, shape, 3, Random::integers);
            let expected: Vec<f32> = layer.reference().iter().map(|value| *value as f32).collect();
            // `+ 0.0`: a sum of -0.0 products is 0.0 in the reference.
            let actual: Vec<f32> = layer.whole(Epilogue::Bias).iter().map(|value| value + 0.0).collect();
            cases.same(&actual, &expected, || layer.describe());
        }
    }
}

#[test]
fn products_are_accurate() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for shape in [(13, 33, 7), (24, 64, 384), (7, 40, 1536), (3, 32, 4096)] {
            let layer = Layer::new(isa, shape, 0, Random::units);
            let magnitude = (0..layer.rows)
                .flat_map(|r| (0..layer.n).map(move |j| (r, j)))
                .map(|(r, j)| {
                    let weights = &layer.weights[j * layer.k..][..layer.k];
                    layer.row(r).iter().zip(weights).map(|(a, b)| f64::from((a * b).abs())).sum::<f64>()
                })
                .fold(0.0, f64::max);
            let tolerance = GEMM_MAX_ERROR * (magnitude + 1.0);
            cases.close(&layer.whole(Epilogue::Bias), &layer.reference(), tolerance, || layer.describe());
        }
    }
}

#[test]
fn activations_follow_the_bias() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for shape in [(1, 1, 1), (13, 33, 5), (25, 64, 16)] {
            let layer = Layer::new(isa, shape, 0, Random::integers);
            let whole: Vec<f64> = layer.reference();
            let functions: [(Activation, Reference); 5] = [
                (Activation::Gelu, gelu),
                (Activation::GeluTanh, super::reference::gelu_tanh),
                (Activation::Relu, |x| x.max(0.0)),
                (Activation::Silu, super::reference::silu),
                (Activation::Tanh, f64::tanh),
            ];
            for (activation, function) in functions {
                let expected: Vec<f64> = whole.iter().map(|x| function(*x)).collect();
                // Integers up to a few hundred come in; the activations are accurate relative to that.
                let largest = whole.iter().fold(1.0f64, |max, x| max.max(x.abs()));
                let actual = layer.whole(Epilogue::BiasActivation(activation));
                cases.close(&actual, &expected, 1e-6 * largest, || format!("{} {activation:?}", layer.describe()));
            }
        }
    }
}

/// The promise that batch-mates and threads rest on.
#[test]
fn bytes_do_not_depend_on_how_the_work_is_cut() {
    let mut cases = Cases::default();
    let mut random = Random(7);
    for isa in Isa::available() {
        for shape in [(1, 33, 9), (29, 100, 65), (40, 200, 384), (300, 70, 1536)] {
            let layer = Layer::new(isa, shape, 1, Random::units);
            let epilogue = Epilogue::BiasActivation(Activation::Gelu);
            let whole = layer.whole(epilogue);
            let panels = layer.packed.panels();
            for cut in 0..6 {
                let mut out = vec![f32::NAN; whole.len()];
                let mut row = 0;
                while row < layer.rows {
                    let rows = if cut == 0 { 1 } else { 1 + random.below(layer.rows.min(20)) };
                    let rows = row..(row + rows).min(layer.rows);
                    let border = random.below(panels + 1);
                    layer.compute(rows.clone(), 0..border, epilogue, &mut out);
                    layer.compute(rows.clone(), border..panels, epilogue, &mut out);
                    row = rows.end;
                }
                cases.same(&out, &whole, || format!("{} cut {cut}", layer.describe()));
            }
        }
    }
}

#[test]
fn bytes_do_not_depend_on_the_threads() {
    struct Shared(*mut f32);
    // SAFETY: the ranks write different panels or rows.
    unsafe impl Sync for Shared {}
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let layer = Layer::new(isa, (37, 200, 384), 1, Random::units);
        let whole = layer.whole(Epilogue::Bias);
        for threads in [1, 2, 3, 4, 7] {
            let pool = ThreadPool::new(threads);
            let width = isa.panel_width();
            let ld = layer.packed.panels() * width;
            for by_rows in [false, true] {
                let mut out = vec![f32::NAN; whole.len()];
                let shared = Shared(out.as_mut_ptr());
                pool.run(&|team| {
                    let shared = &shared;
                    let rows = if by_rows { team.split(layer.rows) } else { 0..layer.rows };
                    let panels = if by_rows { 0..layer.packed.panels() } else { team.split(layer.packed.panels()) };
                    let to = PanelOutput {
                        ptr: shared.0.wrapping_add(rows.start * ld),
                        panel_stride: width,
                        row_stride: ld,
                    };
                    let a = layer.a.as_ptr().wrapping_add(rows.start * layer.a_ld);
                    // SAFETY: the rows lie in `a`, rows and panels in `out`.
                    unsafe { gemm(isa, a, layer.a_ld, rows.len(), &layer.packed, panels, to, Epilogue::Bias) };
                });
                cases.same(&out, &whole, || format!("{} on {threads}, rows {by_rows}", layer.describe()));
            }
        }
    }
}

#[test]
fn a_panel_major_result_has_the_same_values_and_gaps_stay_untouched() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        let layer = Layer::new(isa, (13, 70, 20), 0, Random::units);
        let (width, panels) = (isa.panel_width(), layer.packed.panels());
        let whole = layer.whole(Epilogue::Bias);
        let (row_stride, panel_stride) = (width + 5, layer.rows * (width + 5) + 11);
        let mut out = Guarded::filled(7.0, panel_stride * (panels - 1) + row_stride * (layer.rows - 1) + width);
        let to = PanelOutput { ptr: out.as_mut_ptr(), panel_stride, row_stride };
        // SAFETY: the buffer ends with the last row of the last panel.
        unsafe { gemm(isa, layer.a.as_ptr(), layer.a_ld, layer.rows, &layer.packed, 0..panels, to, Epilogue::Bias) };
        let mut expected = vec![7.0; out.len()];
        for p in 0..panels {
            for r in 0..layer.rows {
                let from = &whole[r * panels * width + p * width..][..width];
                expected[p * panel_stride + r * row_stride..][..width].copy_from_slice(from);
            }
        }
        cases.same(&out, &expected, || layer.describe());
    }
}

#[test]
fn a_nan_reaches_its_own_row_only() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Silu, Activation::Tanh]
        {
            let mut layer = Layer::new(isa, (20, 40, 9), 0, Random::units);
            layer.a[7 * 9 + 4] = f32::NAN;
            let out = layer.whole(Epilogue::BiasActivation(activation));
            let columns = out.len() / layer.rows;
            for (r, row) in out.chunks_exact(columns).enumerate() {
                // Every weight but those of the padding multiplies the NaN; 0 times NaN is NaN there too.
                let nans = row.iter().filter(|value| value.is_nan()).count();
                let expected = if r == 7 { columns } else { 0 };
                cases.check(nans == expected, || format!("{} {activation:?} row {r}: {nans} NaN", isa.name()));
            }
        }
    }
}

#[test]
#[should_panic(expected = "panels 0..3 of a matrix of 2")]
fn panels_that_are_not_there_are_refused() {
    let isa = Isa::best();
    let packed = PackedMatrix::pack(isa, 2 * isa.panel_width(), 4, |_, row| row.fill(1.0), None);
    let mut out = [0.0; 64 * 3];
    let to = PanelOutput { ptr: out.as_mut_ptr(), panel_stride: 32, row_stride: 32 };
    // SAFETY: refused before any access.
    unsafe { gemm(isa, [1.0; 4].as_ptr(), 4, 1, &packed, 0..3, to, Epilogue::Bias) };
}

#[test]
fn a_packed_matrix_says_what_it_is() {
    for isa in Isa::available() {
        let packed = PackedMatrix::pack(isa, 33, 10, |j, row| row.fill(j as f32), None);
        assert_eq!((packed.n(), packed.k(), packed.isa()), (33, 10, isa));
        assert_eq!(packed.panels(), 33usize.div_ceil(isa.panel_width()));
        assert_eq!(packed.bytes(), packed.panels() * isa.panel_width() * (10 + 1) * 4);
    }
}

/// The second half of a gated part: what is there is multiplied, padding columns included.
#[test]
fn a_product_multiplies_what_is_there() {
    let mut cases = Cases::default();
    for isa in Isa::available() {
        for shape in shapes() {
            let layer = Layer::new(isa, shape, 3, Random::integers);
            let expected = layer.whole(Epilogue::Bias);
            let mut random = Random(5);
            let gate = random.integers(expected.len());
            let mut out = Guarded::new(&gate);
            layer.compute(0..layer.rows, 0..layer.packed.panels(), Epilogue::BiasTimes, &mut out);
            let expected: Vec<f32> = expected.iter().zip(&gate).map(|(product, gate)| product * gate).collect();
            cases.same(&out, &expected, || layer.describe());
        }
    }
}
