package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Library is one of NVIDIA's libraries that are opened at run time.
type Library int

// The libraries.
const (
	LibDriver   Library = iota // libcuda
	LibNVRTC                   // compiles kernels
	LibCuBLASLt                // matrix products
	LibNCCL                    // collectives between processes
	LibNVML                    // links between GPUs, the driver's version
)

// String is the library's usual name.
func (l Library) String() string { return catalog[l].name }

// For says what needs the library.
func (l Library) For() string { return catalog[l].use }

// entry is what is known about a library. In names and wheels, %d stands for the major version of CUDA.
type entry struct {
	name, use, env string
	linux, windows string   // file names, the preferred first; "" where there is none
	beside         string   // see dl.Query
	wheels         []string // below site-packages/nvidia, "" for CUDA 12 and 13 alike
	pip            map[int]string
}

var catalog = [...]entry{
	LibDriver: {name: "libcuda", use: "everything on a GPU", env: "RINGO_CUDA_LIB",
		linux: "libcuda.so.1", windows: "nvcuda.dll"},
	LibNVRTC: {name: "NVRTC", use: "compiles the kernels", env: "RINGO_NVRTC_LIB",
		linux: "libnvrtc.so.%d", windows: "nvrtc64_%d0_0.dll", wheels: []string{"cuda_nvrtc"}, beside: "libnvrtc-builtins.so.*",
		pip: map[int]string{13: "nvidia-cuda-nvrtc==13.5.37", 12: "nvidia-cuda-nvrtc-cu12==12.9.86"}},
	LibCuBLASLt: {name: "cuBLASLt", use: "multiplies matrices", env: "RINGO_CUBLASLT_LIB",
		linux: "libcublasLt.so.%d", windows: "cublasLt64_%d.dll", wheels: []string{"cublas"},
		pip: map[int]string{13: "nvidia-cublas==13.10.0.20", 12: "nvidia-cublas-cu12==12.9.3.13"}},
	LibNCCL: {name: "NCCL", use: "collectives between processes with GPUs", env: "RINGO_NCCL_LIB",
		linux: "libnccl.so.2 librccl.so.1", wheels: []string{"nccl"},
		pip: map[int]string{13: "nvidia-nccl-cu13==2.32.3", 12: "nvidia-nccl-cu12==2.32.3"}},
	LibNVML: {name: "NVML", use: "tells how GPUs are linked", env: "RINGO_NVML_LIB",
		linux: "libnvidia-ml.so.1", windows: "nvml.dll"},
}

// Query says where to look for the library. If there is one for each major version
// of CUDA, the one for the given version (the driver's) is preferred: an older
// driver may not accept the output of a newer library.
func (l Library) Query(major int) dl.Query {
	e := catalog[l]
	q := dl.Query{What: e.name, Env: e.env, Beside: e.beside, Get: l.HowToGet(major)}
	for _, file := range strings.Fields(map[string]string{"linux": e.linux, "windows": e.windows}[runtime.GOOS]) {
		for _, v := range majors(major) {
			name := file
			if strings.Contains(file, "%d") {
				name = fmt.Sprintf(file, v)
			}
			if !slices.Contains(q.Names, name) {
				q.Names = append(q.Names, name)
			}
		}
	}
	folders := []string{"lib"}
	if runtime.GOOS == "windows" {
		folders = []string{"bin/x86_64", "bin"}
	}
	if len(e.wheels) == 0 {
		return q // the driver: it is in no wheel
	}
	for _, part := range append([]string{"cu13", "cu12"}, e.wheels...) {
		for _, folder := range folders {
			q.Wheels = append(q.Wheels, part+"/"+folder)
		}
	}
	return q
}

// majors lists the supported major versions of CUDA, the preferred one first.
func majors(preferred int) []int {
	if preferred == 12 {
		return []int{12, 13}
	}
	return []int{13, 12}
}

// Wheel is the pip package of the library for a major version of CUDA, for example
// "nvidia-cuda-nvrtc==13.5.37"; "" for a library that comes with the driver.
func (l Library) Wheel(major int) string { return catalog[l].pip[majors(major)[0]] }

// Major is the preferred major version of CUDA: the driver's, or 13 if there is
// none.
func Major() int {
	if d, err := Load(); err == nil {
		return d.Version / 1000
	}
	return 13
}

// HowToGet is a sentence for errors.
func (l Library) HowToGet(major int) string {
	if wheel := l.Wheel(major); wheel != "" {
		return fmt.Sprintf("get %s with `pip install %s`", l, wheel)
	}
	return fmt.Sprintf("%s comes with NVIDIA's driver, not with the CUDA toolkit: install NVIDIA's driver, or start the container "+
		"with its GPUs (docker run --gpus all)", l)
}
