package cuda_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// targets are the architectures, and the PTX that each is given: where that of sm_80 is what NVRTC makes for the other too, it is made
// once.
var targets = []target{{"sm_80", "compute_80"}, {"sm_90", "compute_80"}, {"sm_100", "compute_100"}}

// specific is the only one for kernels with instructions of Hopper's alone.
var specific = []target{{"sm_90a", "compute_90a"}}

type target struct{ arch, ptx string }

func targetsOf(src gpu.Source) []target {
	if src.Specific {
		return specific
	}
	return targets
}

// of is the PTX for src: its own, if the text asks which architecture it is for.
func (to target) of(src gpu.Source) string {
	if strings.Contains(src.Text, "__CUDA_ARCH__") {
		return strings.Replace(to.arch, "sm", "compute", 1)
	}
	return to.ptx
}

// TestNVRTC compiles every variant of every kernel with NVIDIA's compiler, or finds the code on disk from the last time: by NVRTC to PTX,
// and by ptxas to machine code. No kernel may spill more registers than spillers says, nor products wait for each other. Then one module
// of each file is compiled by NVRTC alone, as on a GPU, also for sm_90a and sm_100a: it must be the same code. Kernels for sm_90a are
// compiled for it alone. Without ptxas, only the second half is done. A child process does it, because a process opens only one compiler.
func TestNVRTC(t *testing.T) {
	if realCompiler == "" {
		t.Skip("RINGO_NVRTC_LIB does not name NVIDIA's compiler (pip install nvidia-cuda-nvrtc)")
	}
	if os.Getenv("RINGO_NVRTC_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNVRTC$", "-test.v")
		cmd.Env = append(os.Environ(), "RINGO_NVRTC_CHILD=1", "RINGO_NVRTC_LIB="+realCompiler)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("%s", out)
		return
	}
	c, err := gpu.LoadCompiler()
	require.NoError(t, err)
	m := newPTXMaker(t, c)
	t.Run("variants", func(t *testing.T) {
		if ptxas == "" {
			t.Skip("RINGO_PTXAS does not name ptxas (pip install nvidia-cuda-nvcc)")
		}
		a := newAssembler(t)
		u := usage{}
		n, err := cuda.CompileAll(true, func(what string, src gpu.Source, options ...string) error {
			if err := u.add(t, m, a, what, src, options); err != nil || !src.Specific {
				return err
			}
			plant, ok := plants[src.Name]
			switch {
			case !ok:
				return fmt.Errorf("no plant for %s", src.Name)
			case plant == "":
				return nil
			}
			src.Text = strings.Replace(src.Text, " wgmma_commit();", " wgmma_commit(); "+plant, 1) // not that of the emulator
			if err := (&usage{}).add(t, m, a, what, src, options); !errors.Is(err, errSlow) {
				return fmt.Errorf("sums that are read while wgmma adds to them: %w", err)
			}
			return nil
		})
		require.NoError(t, err)
		ptx, err := m.make(gpu.Source{Name: "spills.cu", Text: spills}, "compute_80")
		require.NoError(t, err)
		code, said, err := a.code(ptx, "sm_90")
		require.NoError(t, err)
		require.Error(t, spilt(said), "64 numbers in 32 registers: the test would not see it")
		require.Positive(t, kernelsOf(t, code)["spills"].frame)
		t.Logf("%d modules by NVRTC %d.%d and ptxas, of which %d on %d architectures are different; most registers:\n%s",
			n, c.Major, c.Minor, len(a.done)-1, len(targets), u.table())
	})
	t.Run("alone", func(t *testing.T) { alone(t, m) })
}

// plants, by file, read sums that wgmma adds to; none where there are no such sums.
var plants = map[string]string{"cross_entropy_ring.cu": "", "grouped_wgmma.cu": "acc[5] += beta;", "attention_wgmma.cu": "s[0] += scale2;",
	"attention_wgmma_q.cu": "s[0] += scale2;", "attention_wgmma_kv.cu": "s[0] += scale2;"}

// usage is the largest number of registers of each kernel, by architecture.
type usage struct {
	sync.Mutex
	most map[string]map[string]int
}

// add compiles a module for all targets.
func (u *usage) add(t *testing.T, m *ptxMaker, a *assembler, what string, src gpu.Source, options []string) error {
	for _, to := range targetsOf(src) {
		ptx, err := m.make(src, to.of(src), options...)
		if err != nil {
			return err
		}
		code, said, err := a.code(ptx, to.arch)
		if err == nil {
			err = errors.Join(spilt(said), slow(said))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", to.arch, err)
		}
		u.Lock()
		if u.most == nil {
			u.most = map[string]map[string]int{}
		}
		if u.most[to.arch] == nil {
			u.most[to.arch] = map[string]int{}
		}
		err = fits(what, code, u.most[to.arch])
		u.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", to.arch, err)
		}
	}
	return nil
}

// table has a line for each kernel.
func (u *usage) table() string {
	var b strings.Builder
	var names []string
	all := append(slices.Clone(targets), specific...)
	for _, to := range all {
		for name := range u.most[to.arch] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		fmt.Fprintf(&b, "%28s", name)
		for _, to := range all {
			if n := u.most[to.arch][name]; n > 0 {
				fmt.Fprintf(&b, "  %s %3d", to.arch, n)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var spillLine = regexp.MustCompile(
	`Function properties for (\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)

// arrays are the kernels that may have a frame: NVIDIA's reduction of large angles in float64 has an array.
var arrays = map[string]bool{"sine": true, "cosine": true, "sin_grad": true, "cos_grad": true}

// spillers are the kernels that may keep registers in memory: bytes of their frame, stores and loads, at most on any architecture.
// attention computes what tensor cores do not; one register of attention_mma waits outside of the loop. The kernels of the study that
// attention_wgmma and conv come from did so, too, when they were measured: with room for more registers, fewer blocks would run at once.
var spillers = map[string][3]int{
	"attention": {16, 32, 52}, "attention_mma": {8, 4, 4}, "attention_mma_q": {8, 4, 4}, "attention_mma_kv": {8, 4, 4},
	"attention_wgmma": {16, 32, 32}, "attention_wgmma_q": {24, 20, 24}, "attention_wgmma_kv": {24, 28, 28},
	"conv_128": {40, 72, 36}, "conv_grad_x_128": {48, 52, 116}, "conv_grad_w_128": {24, 28, 28},
}

// spilt returns an error if ptxas -v says that a kernel keeps registers in memory that is not listed.
func spilt(said string) error {
	lines := spillLine.FindAllStringSubmatch(said, -1)
	if len(lines) == 0 {
		return fmt.Errorf("ptxas -v says nothing of spills: %s", said)
	}
	for _, l := range lines {
		for i, most := range spillers[l[1]] {
			n, err := strconv.Atoi(l[2+i])
			if err != nil || n > most && (i > 0 || !arrays[l[1]]) {
				return fmt.Errorf("registers in memory, of %d bytes at most: %s", spillers[l[1]], said)
			}
		}
	}
	return nil
}

func TestSpilt(t *testing.T) {
	const said = "ptxas info    : Function properties for %s\n    %d bytes stack frame, %d bytes spill stores, %d bytes spill loads\n"
	for _, c := range []struct {
		name                 string
		frame, stores, loads int
		bad                  bool
	}{
		{"norm", 0, 0, 0, false}, {"norm", 8, 0, 0, true}, {"norm", 0, 0, 4, true}, {"sine", 40, 0, 0, false}, {"sine", 40, 4, 4, true},
		{"attention_mma", 8, 4, 4, false}, {"attention_mma", 8, 8, 4, true}, {"attention_wgmma_kv", 24, 28, 28, false},
		{"attention_wgmma_kv", 24, 28, 32, true}, {"attention_wgmma_kv", 32, 28, 28, true},
	} {
		err := spilt(fmt.Sprintf(said, c.name, c.frame, c.stores, c.loads))
		require.Equal(t, c.bad, err != nil, "%+v: %v", c, err)
	}
}

// warned is a warning of ptxas that products of warpgroups wait for each other.
var warned = regexp.MustCompile(`.*\(C75\d\d\).*`)

var errSlow = errors.New("products wait for each other")

// slow returns an error if ptxas warns so.
func slow(said string) error {
	if w := warned.FindString(said); w != "" {
		return fmt.Errorf("%w: %s", errSlow, w)
	}
	return nil
}

// alone compiles the first module of each file by NVRTC alone. The code for sm_90a and sm_100a is that for sm_90 and sm_100, and, with
// ptxas of the same version, the code that "variants" looks at.
func alone(t *testing.T, m *ptxMaker) {
	var mu sync.Mutex
	seen := map[string]bool{}
	_, err := cuda.CompileAll(true, func(what string, src gpu.Source, options ...string) error {
		mu.Lock()
		first := !seen[src.Name]
		seen[src.Name] = true
		mu.Unlock()
		if !first {
			return nil
		}
		want := map[string][]byte{}
		for _, to := range targetsOf(src) {
			code, err := m.CompileCached(src, to.arch, options...)
			if err != nil {
				return err
			}
			want[to.arch] = code
			if err := fits(what, code, map[string]int{}); err != nil {
				return fmt.Errorf("%s: %w", to.arch, err)
			}
			if ptxas == "" {
				continue
			}
			ptx, err := m.make(src, to.of(src), options...)
			if err != nil {
				return err
			}
			if code, err = assembled(ptx, to.arch); err != nil {
				return err
			}
			if err := same(want[to.arch], code); err != nil {
				return fmt.Errorf("%s by NVRTC and by ptxas: %w", to.arch, err)
			}
		}
		if src.Specific {
			return nil
		}
		for _, arch := range []string{"sm_90", "sm_100"} {
			code, err := m.CompileCached(src, arch+"a", options...)
			if err != nil {
				return err
			}
			if err := same(want[arch], code); err != nil {
				return fmt.Errorf("%s and %sa: %w", arch, arch, err)
			}
		}
		return nil
	})
	require.NoError(t, err)
	t.Logf("%d files by NVRTC %d.%d alone, also for sm_90a and sm_100a: the same code", len(seen), m.Major, m.Minor)
}

// assembled returns the code for this very PTX.
func assembled(ptx []byte, arch string) ([]byte, error) {
	both, err := assemble(ptx, arch)
	_, code, _ := strings.Cut(string(both), "\x00")
	return []byte(code), err
}
