package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pod is the environment of the second pod of a TrainJob.
const pod = "PET_NNODES=2 PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=job-node-0-0.job PET_MASTER_PORT=29500"

func TestKubeflow(t *testing.T) {
	type flags struct {
		ranks    int
		nodes    string
		nodeRank int
		rdzv     string
	}
	for _, c := range []struct {
		name, env, args string
		want            flags
		err             string
	}{
		{"nothing", "", "-n 3", flags{3, "1", 0, ""}, ""},
		{"missing", "", "", flags{}, "missing flags: -ranks=N (see ringo run -h)"},
		{"a pod", pod, "", flags{4, "2", 1, "job-node-0-0.job:29500"}, ""},
		{"flags win", pod, "-n 3 -nodes 5:6 -node-rank 4 -rdzv a:1", flags{3, "5:6", 4, "a:1"}, ""},
		{"one flag", pod, "-n 3", flags{3, "2", 1, "job-node-0-0.job:29500"}, ""},
		{"an address", "PET_NPROC_PER_NODE=1 PET_MASTER_ADDR=fd00::7 PET_MASTER_PORT=1", "", flags{1, "1", 0, "[fd00::7]:1"}, ""},
		{"elastic", "PET_NPROC_PER_NODE=1 PET_NNODES=1:4", "", flags{1, "1:4", 0, ""}, ""},
		{"empty", "PET_NPROC_PER_NODE= PET_NNODES= PET_NODE_RANK= PET_MASTER_ADDR=", "-n 2", flags{2, "1", 0, ""}, ""},
		{"auto", "PET_NPROC_PER_NODE=auto", "", flags{}, `-ranks: PET_NPROC_PER_NODE is "auto", want a number; the flag overrides it`},
		{"auto, a flag", "PET_NPROC_PER_NODE=auto PET_NODE_RANK=x", "-n 2 -node-rank 0", flags{2, "1", 0, ""}, ""},
		{"no rank", "PET_NODE_RANK=x", "-n 2", flags{}, `PET_NODE_RANK is "x", want a number`},
		{"no port", "PET_MASTER_ADDR=a", "-n 2", flags{}, `PET_MASTER_ADDR is "a", and PET_MASTER_PORT is not set`},
		{"no port, a flag", "PET_MASTER_ADDR=a", "-n 2 -rdzv b:1", flags{2, "1", 0, "b:1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			var line cli
			_, err := newParser(&line).Parse(longFlags(append(strings.Fields("run "+c.args), "prog")))
			if c.err != "" {
				require.Error(t, err)
				assert.Contains(t, wrongFlags(err), c.err)
				return
			}
			require.NoError(t, err)
			r := line.Run
			assert.Equal(t, c.want, flags{r.Ranks, r.Nodes, r.NodeRank, r.Rdzv})
		})
	}
}

// Other commands have flags of the same names.
func TestKubeflowIsForRun(t *testing.T) {
	for _, v := range strings.Fields(pod) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	for _, args := range []string{"topo", "viz allreduce -algo ring -ranks 3 -o x.svg"} {
		var got, want cli
		_, err := newParser(&got).Parse(longFlags(strings.Fields(args)))
		require.NoError(t, err, args)
		_, err = kong.Must(&want).Parse(longFlags(strings.Fields(args)))
		require.NoError(t, err, args)
		assert.Equal(t, want, got, args)
	}
}
