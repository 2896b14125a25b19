package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// update writes the content of docs/collectives.md: go test ./cmd/ringo -run Docs -update
var update = flag.Bool("update", false, "write the pictures and the tables of docs/collectives.md")

const docs = "../../docs/"

func collectivesPage(t *testing.T) string {
	text, err := os.ReadFile(docs + "collectives.md")
	require.NoError(t, err)
	return string(text)
}

// drawn returns the algorithms of a collective that have different messages on one host: direct sends the messages of linear (except in
// all-reduce), and hierarchical sends those of direct or of a chain.
func drawn(kind backend.Kind) []string {
	return slices.DeleteFunc(algo.Names(kind), func(name string) bool {
		return name == "direct" && kind != backend.AllReduce || name == "hierarchical"
	})
}

// The pictures of schedules are those of ringo viz schedule.
func TestDocsSchedules(t *testing.T) {
	page, err := os.ReadFile(docs + "parallelism.md")
	require.NoError(t, err)
	files, err := filepath.Glob(docs + "img/pipeline/*.svg")
	require.NoError(t, err)
	shown := regexp.MustCompile(`!\[(\S+): 4 ranks, 8 microbatches\]\((\S+)\)`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, files, len(shown))
	for _, m := range shown {
		s, err := pp.ByName(m[1], 4, 2, 8)
		require.NoError(t, err)
		rep, err := s.Check(unitCosts, pp.Limit{})
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(docs+m[2], []byte(viz.Schedule(s, rep)), 0o666))
		}
		got, err := os.ReadFile(docs + m[2])
		require.NoError(t, err)
		assert.True(t, viz.Schedule(s, rep) == string(got), "%s: run go test ./cmd/ringo -run Docs -update, and look at it", m[2])
	}
}

// The picture of buckets is that of ringo viz ddp.
func TestDocsBuckets(t *testing.T) {
	out := docs + "img/ddp/buckets.svg"
	if !*update {
		out = filepath.Join(t.TempDir(), "ddp.svg")
	}
	_, stderr, code := run(t, "viz", "ddp", "-o", out)
	require.Zero(t, code, stderr)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	want, err := os.ReadFile(docs + "img/ddp/buckets.svg")
	require.NoError(t, err)
	assert.True(t, string(want) == string(got), "buckets.svg: run go test ./cmd/ringo -run Docs -update, and look at it")
	assert.Contains(t, string(got), "0% hidden")
	for want, args := range map[string][]string{
		"-o x.png: the name must end in .svg":              {"-o", "x.png"},
		`-buckets 1-2: "1-2" is neither a size such as`:    {"-o", "x.svg", "-buckets", "1-2"},
		"-backward 0s: want a time up to an hour":          {"-o", "x.svg", "-backward", "0s"},
		`-topo: no topology is called "dgx"`:               {"-o", "x.svg", "-topo", "dgx"},
		`-ranks: topology "hgx-h100": 12 ranks do not fit`: {"-o", "x.svg", "-ranks", "12"},
	} {
		_, stderr, code := run(t, append([]string{"viz", "ddp"}, args...)...)
		assert.Equal(t, 2, code, want)
		assert.Contains(t, stderr, want)
	}
}

// The page has a picture of every algorithm, and each is equal to that of ringo viz.
func TestDocsPictures(t *testing.T) {
	page, named := collectivesPage(t), map[string]bool{}
	for _, m := range regexp.MustCompile(`img/(\w+)-([a-z-]+?)-(\d+)(?:-on-(\d+))?\.svg`).FindAllStringSubmatch(page, -1) {
		n, _ := strconv.Atoi(m[3])
		hosts, _ := strconv.Atoi(cmp.Or(m[4], "1"))
		cmd := vizCmd{Op: m[1], Algo: m[2], Ranks: n, Hosts: hosts, Out: filepath.Join(t.TempDir(), "out.svg")}
		file := docs + m[0]
		if *update {
			cmd.Out = file
		}
		require.NoError(t, cmd.Run())
		want, err := os.ReadFile(cmd.Out)
		require.NoError(t, err)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, string(want) == string(got), "%s: run go test ./cmd/ringo -run Docs -update, and look at it", file)
		named[filepath.Base(file)] = true
	}
	files, err := filepath.Glob(docs + "img/*.svg")
	require.NoError(t, err)
	for _, f := range files {
		assert.True(t, named[filepath.Base(f)], "the page does not show %s", f)
	}
	for _, kind := range viz.Kinds {
		for _, name := range drawn(kind) {
			picture := fmt.Sprintf("img/%v-%s-4.svg", kind, name)
			assert.True(t, strings.Contains(page, picture), "the page does not show %s", picture)
		}
		if picture := fmt.Sprintf("img/%v-hierarchical-4-on-2.svg", kind); slices.Contains(algo.Names(kind), "hierarchical") {
			assert.True(t, strings.Contains(page, picture), "the page does not show %s", picture)
		}
	}
}

// region checks, or writes, the text between <!-- name --> and <!-- /name --> of the page.
func region(t *testing.T, name, want string) {
	page := collectivesPage(t)
	begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(page, begin)
	require.True(t, ok)
	got, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(docs+"collectives.md", []byte(before+begin+want+end+after), 0o666))
		return
	}
	assert.Equal(t, want, got, "run go test ./cmd/ringo -run Docs -update")
}

// tabled are the collectives in the tables. The V forms send the same, in parts of different length.
var tabled = viz.Kinds[:slices.Index(viz.Kinds, backend.Barrier)+1]

// onTCP runs fn on n ranks that are connected through 127.0.0.1 and share no memory.
func onTCP(t *testing.T, n int, cfg dist.Config, fn func(ctx context.Context, r *dist.Rank) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	secret, err := tcp.ParseSecret(tcp.NewSecret())
	require.NoError(t, err)
	engines, errs := make([]backend.Engine, n), make([]error, n)
	var joining sync.WaitGroup
	for r := range n {
		c := tcp.Config{Rank: r, Size: n, Addr: l.Addr().String(), Secret: secret, Timeout: time.Minute, JoinTimeout: 20 * time.Second,
			NoShared: true}
		if r == 0 {
			c.Listener = l
		}
		joining.Go(func() { engines[r], errs[r] = tcp.Join(t.Context(), c) })
	}
	joining.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return dist.RunEngines(t.Context(), cfg, engines, fn)
}

// issue calls a collective with a full buffer of count float32.
func issue(g *dist.Group, kind backend.Kind, count int) dist.Work {
	full, part := tensor.New(g.Device(), tensor.Float32, count), tensor.New(g.Device(), tensor.Float32, count/g.Size())
	onRoot := func(x tensor.Tensor) tensor.Tensor {
		if g.Rank() == 0 {
			return x
		}
		return tensor.Tensor{}
	}
	switch kind {
	case backend.Broadcast:
		return g.Broadcast(full, 0)
	case backend.Reduce:
		return g.Reduce(full, dist.Sum, 0)
	case backend.AllReduce:
		return g.AllReduce(full, dist.Sum)
	case backend.Gather:
		return g.Gather(onRoot(full), part, 0)
	case backend.AllGather:
		return g.AllGather(full, part)
	case backend.Scatter:
		return g.Scatter(part, onRoot(full), 0)
	case backend.ReduceScatter:
		return g.ReduceScatter(part, full, dist.Sum)
	case backend.AllToAll:
		return g.AllToAll(tensor.New(g.Device(), tensor.Float32, count), full)
	}
	return g.Barrier()
}

// measured returns what each of 4 ranks sends for a full buffer of 1 MiB, from the Stats of a run.
func measured(ctx context.Context, r *dist.Rank, kind backend.Kind, name string) ([]uint64, error) {
	g := r.World.With(dist.Algo(kind.String()+":"+name), dist.Name(name))
	if err := issue(g, kind, 1<<18).Wait(); err != nil {
		return nil, err
	}
	if err := g.With(dist.Name("end")).Barrier().Wait(); err != nil {
		return nil, err
	}
	return dist.AllGatherObject(r.World, g.Stats().Wire[kind.String()])
}

// The table of counts equals the Stats of 4 ranks over TCP, with each algorithm forced, and equals the pictures.
func TestDocsCounts(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString(
		"| collective | algorithm | rank 0 | rank 1 | rank 2 | rank 3 | all ranks | messages | steps |\n|---|---|---|---|---|---|---|---|---|\n")
	require.NoError(t, onTCP(t, 4, dist.Config{Threads: 1, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		for _, kind := range tabled {
			for _, name := range drawn(kind) {
				sent, err := measured(ctx, r, kind, name)
				if err != nil {
					return err
				}
				if r.World.Rank() > 0 {
					continue
				}
				s, err := viz.Record(ctx, kind, name, algo.OneHost(4))
				if err != nil {
					return err
				}
				messages, steps := s.Size()
				fmt.Fprintf(&table, "| %v | %s | %s | %d | %d |\n", kind, name, sums(sent), messages, steps)
			}
		}
		return nil
	}))
	region(t, "counts", table.String())
}

// sums writes bytes in MiB, and their sum.
func sums(sent []uint64) string {
	var cells []string
	total := uint64(0)
	for _, b := range sent {
		cells = append(cells, fmt.Sprint(float64(b)/(1<<20)))
		total += b
	}
	return strings.Join(append(cells, fmt.Sprint(float64(total)/(1<<20))), " | ")
}

// Goroutine ranks read and write each other's memory.
func TestDocsCountsOfGoroutines(t *testing.T) {
	var table strings.Builder
	table.WriteString("| collective | rank 0 | rank 1 | rank 2 | rank 3 | all ranks |\n|---|---|---|---|---|---|\n")
	require.NoError(t, dist.Run(t.Context(), dist.Config{
		Ranks: 4, Threads: 1, Log: io.Discard,
	}, func(ctx context.Context, r *dist.Rank) error {
		for _, kind := range tabled {
			sent, err := measured(ctx, r, kind, "direct")
			if err != nil {
				return err
			}
			if r.World.Rank() == 0 {
				fmt.Fprintf(&table, "| %v | %s |\n", kind, sums(sent))
			}
		}
		return nil
	}))
	region(t, "goroutines", table.String())
}

// The table of choices has the choice for every size from 1 byte to 1 GiB.
func TestDocsChoices(t *testing.T) {
	var table strings.Builder
	shapes := [][2]int{{4, 1}, {16, 1}, {4, 2}, {8, 2}, {16, 2}, {8, 8}, {64, 8}}
	table.WriteString("| collective |")
	for _, s := range shapes {
		fmt.Fprintf(&table, " %d on %d |", s[0], s[1])
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(shapes)) + "\n")
	for _, kind := range viz.Kinds {
		row, has := fmt.Sprintf("| %v |", kind), false
		for _, s := range shapes {
			tuner := algo.NewTuner(evenly(s[0], s[1]))
			has = has || len(tuner.Explain(kind, 1).Candidates) > 0
			row += " " + choicesBySize(tuner, kind) + " |"
		}
		if has {
			table.WriteString(row + "\n")
		}
	}
	region(t, "choices", table.String())
}

// choicesBySize writes the choices for increasing sizes: a name, the size from which on another one is chosen, and so on.
func choicesBySize(tuner *algo.Tuner, kind backend.Kind) string {
	text, last := "", ""
	for size := 1; size <= 1<<30; size *= 2 {
		name := tuner.Explain(kind, size).Algo
		switch {
		case text == "":
			text = name
		case name != last:
			text += fmt.Sprintf(", %s: %s", sizeName(size), name)
		}
		last = name
	}
	return text
}

// mistakes are wrong calls. Rank 1 of 2 makes the mistake.
var mistakes = map[string]func(r *dist.Rank) error{
	"a reduce on the root alone": func(r *dist.Rank) error {
		if r.World.Rank() == 1 {
			return nil
		}
		return issue(r.World, backend.Reduce, 4).Wait()
	},
	"other collectives": func(r *dist.Rank) error {
		return issue(r.World, []backend.Kind{backend.AllReduce, backend.Barrier}[r.World.Rank()], 4).Wait()
	},
	"counts": func(r *dist.Rank) error { return issue(r.World, backend.AllReduce, 4+2*r.World.Rank()).Wait() },
	"roots": func(r *dist.Rank) error {
		return r.World.Broadcast(tensor.New(r.Device, tensor.Float32, 4), r.World.Rank()).Wait()
	},
	"average of integers": func(r *dist.Rank) error {
		return r.World.AllReduce(tensor.FromSlice([]int32{1}, 1), dist.Avg).Wait()
	},
	"parts that do not divide": func(r *dist.Rank) error {
		return r.World.ReduceScatter(tensor.New(r.Device, tensor.Float32, 2), tensor.New(r.Device, tensor.Float32, 5), dist.Sum).Wait()
	},
	"the output of an all-gather as large as its input": func(r *dist.Rank) error {
		return r.World.AllGather(tensor.New(r.Device, tensor.Float32, 4), tensor.New(r.Device, tensor.Float32, 4)).Wait()
	},
	"groups in another order": func(r *dist.Rank) error {
		return issue(r.World.With(dist.Name([]string{"tp", "dp"}[r.World.Rank()])), backend.AllReduce, 4).Wait()
	},
	"two goroutines": func(r *dist.Rank) error {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			both.Go(func() {
				for errs[i] == nil {
					errs[i] = issue(r.World, backend.AllReduce, 4).Wait()
				}
			})
		}
		both.Wait()
		return errs[0]
	},
}

// The page quotes the error of each mistake.
func TestDocsMistakes(t *testing.T) {
	page, rank := collectivesPage(t), regexp.MustCompile(`^rank \d: `)
	for name, fn := range mistakes {
		err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Timeout: time.Minute, Log: io.Discard},
			func(_ context.Context, r *dist.Rank) error { return fn(r) })
		require.Error(t, err, name)
		text, _, _ := strings.Cut(err.Error(), " (and ")
		text = rank.ReplaceAllString(text, "")
		assert.True(t, strings.Contains(page, text), "the page does not say of %s: %s", name, text)
	}
}

// If ranks wait for two groups in different order, there is an error. If they issue both first and wait then, it works.
func TestDocsOrderAcrossGroups(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		timeout := time.Second
		if first {
			timeout = time.Minute
		}
		err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Timeout: timeout, Log: io.Discard},
			func(_ context.Context, r *dist.Rank) error {
				groups := []*dist.Group{r.World.With(dist.Name("a")), r.World.With(dist.Name("b"))}
				if r.World.Rank() == 1 {
					slices.Reverse(groups)
				}
				var works []dist.Work
				for _, g := range groups {
					works = append(works, issue(g, backend.AllReduce, 4))
					if !first {
						if err := works[len(works)-1].Wait(); err != nil {
							return err
						}
					}
				}
				if err := works[0].Wait(); err != nil {
					return err
				}
				return works[1].Wait()
			})
		if first {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "did not arrive within 1s")
		}
	}
}
