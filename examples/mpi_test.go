package examples_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/mpi"
)

// trainings are examples with 3 ranks and 12 steps, whose batch is not a multiple of the ranks.
var trainings = map[string]string{
	"ddp-mnist":   "ddp-mnist -data synthetic -steps 12 -batch 100 -optim adamw -bucket-mb 0.5 -ranks 3",
	"gpt, fsdp":   "gpt -fsdp 3 -layers 2 -dim 24 -heads 4 -seq 9 -batch 7 -steps 12 -sample 20",
	"gpt, tp, dp": "gpt -dp 1 -tp 3 -sp -layers 2 -dim 24 -heads 6 -seq 9 -batch 7 -steps 12 -sample 20",
	"moe":         "moe -ep 3 -experts 6 -layers 2 -dim 24 -heads 4 -seq 9 -batch 7 -steps 12 -sample 20",
	"fsdp":        "fsdp -ranks 3 -steps 12 -batch 7 -width 24 -layers 2 -length 9",
}

// Processes under mpiexec have the bits of goroutines with RINGO_BITS=rank: the parameters, the state of the optimizer, and the losses.
func TestUnderMPI(t *testing.T) {
	if os.Getenv("RINGO_MPI_LIB") == "" {
		t.Skip("RINGO_MPI_LIB does not name the library of MPI for this test, such as libmpi.so.40")
	}
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "./ddp-mnist", "./gpt", "./moe",
		"./fsdp").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, line := range trainings {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(line)
			args[0] = filepath.Join(dir, args[0])
			goroutines := exec.Command(args[0], args[1:]...)
			goroutines.Env = os.Environ()
			want := bitsOf(t, goroutines)
			processes, err := mpi.Command(t.Context(), 3, args[0], args[1:]...)
			require.NoError(t, err)
			processes.Env = append(processes.Env, "RINGO_BACKEND=mpi", "RINGO_TIMEOUT=60s")
			assert.Equal(t, want, bitsOf(t, processes))
		})
	}
}

// bitsOf runs a training and returns what its bits are: hashes of parameters, and losses.
func bitsOf(t *testing.T, c *exec.Cmd) map[string]string {
	t.Helper()
	bits, folder := map[string]string{}, t.TempDir()
	c.Env = append(c.Env, "RINGO_BITS=rank", "RINGO_THREADS=1")
	table := strings.Contains(strings.Join(c.Args, " "), "fsdp -ranks")
	if !table {
		c.Args = append(c.Args, "-json", "-save", folder)
	}
	var text strings.Builder
	c.Stderr = &text
	out, err := c.Output()
	require.NoError(t, err, "%s%s", out, &text)
	if table { // each row is a stage: the first and the last loss, and memory
		for _, m := range regexp.MustCompile(`(?m)^(?:\[0\] )?(ddp|stage \d) +([\d.]+ +[\d.]+) `).FindAllStringSubmatch(string(out), -1) {
			bits[m[1]] = m[2]
		}
		require.Len(t, bits, 4, "%s", out)
		return bits
	}
	var summary map[string]any
	require.NoError(t, json.Unmarshal(out, &summary), "%s", out)
	for _, key := range []string{"params_sha256", "losses", "final_loss", "val_loss", "sample", "test_accuracy"} {
		if value := summary[key]; value != nil {
			bits[key] = fmt.Sprint(value)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "*.safetensors"))
	require.NoError(t, err)
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		bits[filepath.Base(path)] = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	require.Greater(t, len(bits), 3, "%v", bits)
	return bits
}
