//! Each operation against a plain reference in f64, for every instruction set of this CPU, over shapes around every
//! border: one value, one less and one more than a vector, a panel, a tile.

mod activation;
mod attention;
mod distance;
mod gemm;
mod isa;
mod layer_norm;
mod mask;
mod math;
mod pooling;
mod quad;
mod reference;
mod rms_norm;
mod rope;
mod softmax;
mod support;
mod threads;
