"""Makes a folder that `cargo build --features cuda` accepts as CUDA_HOME, out of pip wheels (docs/cuda.md).

    python tools/cuda_toolkit.py FOLDER

Compiling needs no GPU and no installed toolkit: the compiler, the headers and the static runtime are in the wheels
below (105 MB). The driver, cuBLAS, cuBLASLt, cuRAND and NVRTC are only linked to, so a library with the right name
and one symbol stands in for each; the addon then asks for the real ones when it is loaded.
"""

import pathlib
import shutil
import subprocess
import sys

# nvcc of one minor version, with the parts that it calls. The wheels of CUDA 12 carry no nvcc.
WHEELS = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
]

# Link name: (name at run time, a function that candle calls). Without a symbol that is used, the linker drops the
# library, and the error of a machine without it names a symbol instead of the library.
STUBS = {
    "cuda": ("libcuda.so.1", "cuInit"),
    "cublas": ("libcublas.so.13", "cublasCreate_v2"),
    "cublasLt": ("libcublasLt.so.13", "cublasLtCreate"),
    "curand": ("libcurand.so.10", "curandCreateGenerator"),
    "nvrtc": ("libnvrtc.so.13", "nvrtcCreateProgram"),
}


def main() -> None:
    home = pathlib.Path(sys.argv[1]).resolve()
    wheels, lib = home / "wheels", home / "lib64"
    lib.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", wheels, *WHEELS],
        check=True,
    )
    tree = wheels / "nvidia" / "cu13"
    for part in ("bin", "include", "nvvm"):
        link = home / part
        link.unlink(missing_ok=True)
        link.symlink_to(tree / part)
    # candle-kernels links `cudart`: the static one, so that nothing of the toolkit is needed at run time for it.
    shutil.copy(tree / "lib" / "libcudart_static.a", lib / "libcudart.a")
    for name, (soname, symbol) in STUBS.items():
        subprocess.run(
            ["cc", "-shared", "-x", "c", "-", f"-Wl,-soname,{soname}", "-o", lib / f"lib{name}.so"],
            input=f"void {symbol}(void) {{}}\n".encode(),
            check=True,
        )
    print(f"export CUDA_HOME={home} PATH={home}/bin:$PATH CUDA_COMPUTE_CAP=80")


if __name__ == "__main__":
    main()
