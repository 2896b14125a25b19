package cuda_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// variants are some of attention on tensor cores; the long test takes all.
func variants(what string) bool {
	return os.Getenv("RINGO_LONG") == "1" || strings.Contains(what, "=bf16 --fmad=false -DHD=64 ") ||
		strings.Contains(what, "=f16 --fmad=false -DHD=128 -DDROP=0 ")
}

// TestNVRTC compiles every kernel with NVIDIA's own compiler. A process opens one compiler, so a child of this one does it.
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
			n, err := cuda.CompileAll(variants, func(what string, src gpu.Source, options ...string) error {
				code, err := c.Compile(src, arch, options...)
				mu.Lock()
				defer mu.Unlock()
				codes[what] = code
				return err
			})
			require.NoError(t, err)
			for what, code := range codes {
				fits(t, what, code)
			}
			t.Logf("%d modules by NVRTC %d.%d", n, c.Major, c.Minor)
		})
	}
}
