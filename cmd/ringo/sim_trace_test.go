package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/dist/sim/training"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// traced trains a model of odd sizes on three ranks for 11 steps, and writes the timeline of all of them.
func traced(t *testing.T, way string) (file string) {
	file = filepath.Join(t.TempDir(), way+".json")
	f, err := os.Create(file)
	require.NoError(t, err)
	cfg := dist.Config{Ranks: 3, Threads: 1, Trace: 10_000, Log: io.Discard}
	require.NoError(t, dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error {
		up, down := nn.NewLinear(5, 37), nn.NewLinear(37, 1)
		model := nn.Sequential{up, nn.Tanh, down}
		var params nn.Params
		var err error
		if way == "ddp" {
			params, err = ddp.Attach(r.World, model, ddp.Config{BucketBytes: 100})
		} else {
			s := fsdp.New(fsdp.Config{Shard: r.World})
			s.Unit(up)
			s.Unit(down)
			params, err = s.Attach(model)
		}
		if err != nil {
			return err
		}
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.1}), tensor.NewTape(r.Device)
		for step := range 11 {
			r.Trace.Step(step)
			n := 3 + r.World.Rank()
			x := tensor.New(r.Device, tensor.Float32, n, 5)
			tensor.UniformInit(-1, 1).Fill(x, 1, uint64(step))
			in := tape.Input(x.WithRows(r.World.Rows([]int{0, 3, 7}[r.World.Rank()], 12)))
			tape.Backward(nn.MSE(model.Forward(in), in.Sin().Slice(1, 0, 1)))
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
			r.Trace.EndStep()
		}
		return r.WriteTrace(map[int]io.Writer{0: f}[r.World.Rank()])
	}))
	require.NoError(t, f.Close())
	return file
}

// A replay of a step of ddp or fsdp has the operations and the bytes of the recording, and its ranks compute as long.
func TestSimOfTrace(t *testing.T) {
	t.Parallel()
	for way, wants := range map[string]string{"ddp": "allreduce of world", "fsdp": "reducescatterv of "} {
		file := traced(t, way)
		stdout, stderr, code := run(t, "sim", "-trace", file, "-topo", "tree", "-json")
		require.Zero(t, code, stderr)
		var r replayReport
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		f, err := os.Open(file)
		require.NoError(t, err)
		ranks, err := timeline.Read(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Len(t, ranks, 3)

		for _, x := range []*training.Replayed{r.Late, r.Soon} {
			require.Equal(t, 11, x.Steps)
			calls, bytes, waited := recordedStep(&ranks[0], x.Step)
			found := false
			for _, e := range x.Ops {
				name := e.Op + " of " + e.Group
				assert.Equal(t, [2]int{calls[name], bytes[name]}, [2]int{e.Calls, e.Bytes}, "%s: %s", way, name)
				found = found || strings.HasPrefix(name, wants) && e.Flight > 0
				delete(calls, name)
			}
			assert.Empty(t, calls, way)
			assert.True(t, found, "%s: %v", way, x.Ops)
			computed := sim.Time(waited[0]-waited[1]) * 1000
			assert.GreaterOrEqual(t, x.Time, computed, way)
			assert.Positive(t, x.Exposed, way)
		}

		stdout, stderr, code = run(t, "sim", "-trace", file, "-topo", "tree")
		require.Zero(t, code, stderr)
		assert.Regexp(t, `^step \d+ of 3 ranks on tree, the median one of 11: \S+s, of which a rank waits \S+s\n`, stdout)
		assert.Regexp(t, `(?m)^`+wants+`.* +\d+ +\d+ +\S+s +\S+s$`, stdout)
	}
}

// Names of a file neither change a terminal nor fill it.
func TestNamesOfTraces(t *testing.T) {
	t.Parallel()
	file := traced(t, "ddp")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for name, want := range map[string]string{`\u001b[2J`: `\x1b[2J`, strings.Repeat("x", 100_000): `... (1000`} {
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), `"group":"world"`, `"group":"`+name+`"`)), 0o666))
		for _, args := range [][]string{{"sim", "-topo", "tree", "-trace", file}, {"trace", "summary", file}} {
			stdout, stderr, code := run(t, args...)
			require.Zero(t, code, stderr)
			assert.NotContains(t, stdout, "\x1b")
			assert.Contains(t, stdout, want)
			assert.Less(t, len(stdout), 10_000)
		}
	}
}

// recordedStep returns what a rank has in a step: calls and bytes of each operation, and the time of the step and of the waits in it.
func recordedStep(r *timeline.Rank, number int64) (calls, bytes map[string]int, times [2]int64) {
	calls, bytes = map[string]int{}, map[string]int{}
	var step trace.Span
	for _, s := range r.Spans {
		if s.Track == trace.Steps && s.Name == trace.StepName && s.Arg == number {
			step = s
		}
	}
	times[0] = step.End - step.Start
	for _, s := range r.Spans {
		if s.Lane == 0 || s.Start < step.Start || s.Start > step.End {
			continue
		}
		kind, _, _ := strings.Cut(s.Name, ":")
		switch name := kind + " of " + r.Lanes[s.Lane-1].Group; s.Track {
		case trace.Comm:
			calls[name]++
			bytes[name] += int(s.Arg)
		case trace.Waits:
			times[1] += s.End - s.Start
		}
	}
	return calls, bytes, times
}

// Wrong uses are one sentence, and so are files that are cut off or damaged.
func TestSimOfTraceErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := os.ReadFile(traced(t, "ddp"))
	require.NoError(t, err)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	for want, args := range map[string][]string{
		"-trace has operations, ranks and bytes: -op, -algo, -ranks, -bytes and -plot are for simulations without": {
			"-trace", "x.json", "-ranks", "8"},
		"-trace has operations":                   {"-trace", "x.json", "-op", "allreduce"},
		"-trace: stat none.json: no such file":    {"-trace", "none.json"},
		"the trace has no ranks":                  {"-trace", ","},
		"cut.json: unexpected EOF":                {"-trace", file("cut.json", string(whole[:len(whole)/2]))},
		"it is not a timeline of Ringo":           {"-trace", file("list.json", "[1,2]")},
		"the trace has no rank 0: a replay needs": {"-trace", file("one.json", strings.ReplaceAll(string(whole), `"pid":0`, `"pid":4`))},
		"3 ranks do not fit":                      {"-trace", file("all.json", string(whole)), "-topo", file("top.json", oneHost)},
		"has no step that all ranks have":         {"-trace", file("steps.json", strings.ReplaceAll(string(whole), `"step":`, `"was":`))},
		"-topo: no topology is called":            {"-topo", "dgx", "-trace", "x.json"},
		"on rank 0: a replay takes 0 to 4 GiB, and t": {
			"-trace", file("bytes.json", strings.ReplaceAll(string(whole), `"bytes":`, `"bytes":-`))},
	} {
		stdout, stderr, code := run(t, append([]string{"sim"}, args...)...)
		assert.Equal(t, 2, code, want)
		assert.Contains(t, stderr, want)
		assert.Regexp(t, `^ringo: [^\n]*\n$`, stderr)
		assert.Empty(t, stdout)
	}
}

const oneHost = `{"name": "x", "host": 2, "links": [{"name": "a", "from": "rank", "to": "s", "ports": 2, "gbs": 1, "ns": 5}]}`
