package cuda_test

import (
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// spills is a kernel that needs more numbers than there are registers.
const spills = `
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* x) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; i++) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; i++) x[threadIdx.x * 64 + i] = v[i] * v[63 - i];
}`

// TestNVRTC compiles every variant of every kernel with NVIDIA's compiler, or finds the code on disk from the last time. A child process
// does it, because a process opens only one compiler.
func TestNVRTC(t *testing.T) {
	if realCompiler == "" {
		t.Skip("RINGO_NVRTC_LIB does not name NVIDIA's compiler (pip install nvidia-cuda-nvrtc)")
	}
	for _, arch := range []string{"sm_80", "sm_90", "sm_100"} {
		t.Run(arch, func(t *testing.T) {
			if os.Getenv("RINGO_NVRTC_CHILD") == "" {
				cmd := exec.Command(os.Args[0], "-test.run=^TestNVRTC$/^"+arch+"$", "-test.v")
				cmd.Env = append(os.Environ(), "RINGO_NVRTC_CHILD=1", "RINGO_NVRTC_LIB="+realCompiler)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
				return
			}
			c, err := gpu.LoadCompiler()
			require.NoError(t, err)
			var mu sync.Mutex
			codes := map[string][]byte{}
			n, err := cuda.CompileAll(true, func(what string, src gpu.Source, options ...string) error {
				code, err := c.CompileCached(src, arch, options...)
				mu.Lock()
				defer mu.Unlock()
				codes[what] = code
				return err
			})
			require.NoError(t, err)
			most := map[string]int{}
			for what, code := range codes {
				fits(t, what, code, most)
			}
			code, err := c.CompileCached(gpu.Source{Name: "spills.cu", Text: spills}, arch)
			require.NoError(t, err)
			require.Positive(t, kernelsOf(t, code)["spills"].frame, "64 numbers in 32 registers: the test would not see it")
			t.Logf("%d modules by NVRTC %d.%d; most registers: %v", n, c.Major, c.Minor, most)
		})
	}
}
