package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// segmented is a parameter that is stored as segments.
type segmented struct {
	name       string
	dims       []int
	tp         *Rule
	transposed bool
	as         []tensor.Stored
}

// of returns a segment.
func of(name string, rows, first, total int) tensor.Stored {
	return tensor.Stored{Name: name, Rows: rows, First: first, Total: total}
}

// segmentedModel has a parameter stored as two tensors, tensors that hold several parameters (some transposed), rows in
// another order, a parameter stored only under another name, and one without segments.
var segmentedModel = []segmented{
	{"attn.kv.weight", []int{10, 6}, &Rule{Dim: 0, Parts: []int{4, 6}}, false,
		[]tensor.Stored{of("k.weight", 4, 0, 4), of("v.weight", 6, 0, 6)}},
	{"q.weight", []int{4, 6}, &Rule{Dim: 0}, true, []tensor.Stored{of("c_attn.weight", 4, 0, 12)}},
	{"kv.weight", []int{8, 6}, &Rule{Dim: 0, Parts: []int{3, 5}}, true, []tensor.Stored{of("c_attn.weight", 8, 4, 12)}},
	{"q.bias", []int{4}, &Rule{Dim: 0}, false, []tensor.Stored{of("c_attn.bias", 4, 0, 12)}},
	{"kv.bias", []int{8}, &Rule{Dim: 0}, false, []tensor.Stored{of("c_attn.bias", 8, 4, 12)}},
	{"up.weight", []int{5, 3, 2}, &Rule{Dim: 1}, false, []tensor.Stored{of("c_fc.weight", 5, 0, 5)}},
	{"odd.weight", []int{6, 2}, &Rule{Dim: 1}, false,
		[]tensor.Stored{of("a.weight", 2, 2, 4), of("b.weight", 2, 0, 2), of("a.weight", 2, 0, 4)}},
	{"norm.weight", []int{7}, nil, false, nil},
}

// element returns the stored tensor that has element i of the parameter, and the index in it.
func (s segmented) element(i int) (name string, at int) {
	if s.as == nil {
		return s.name, i
	}
	cols := shard.Product(s.dims[1:])
	row, col := i/cols, i%cols
	for _, x := range s.as {
		if row < x.Rows {
			if row += x.First; s.transposed {
				return x.Name, col*x.Total + row
			}
			return x.Name, row*cols + col
		}
		row -= x.Rows
	}
	panic("no segment has it")
}

// eachElement calls fn for a rank's elements, with the index in its memory, the stored tensor, and the index in that.
func (s segmented) eachElement(p shard.Part, fn func(k int, name string, at int)) {
	k := 0
	for at, n := range p.Runs() {
		for i := at; i < at+n; i++ {
			name, file := s.element(i)
			fn(k, name, file)
			k++
		}
	}
}

// segmentedState is a rank's part of the model. Version 0 is zeros.
func segmentedState(t require.TestingT, g *dist.Group, l division, version int) *State {
	var params nn.Params
	for _, s := range segmentedModel {
		p := tensor.NewParam(tensor.Constant(0), s.dims...)
		p.SetName(s.name)
		p.SetTransposed(s.transposed)
		p.SetStored(s.as)
		l.place(p, s.tp, g.Rank())
		x := tensor.New(g.Device(), tensor.Float32, p.Placement().Len())
		p.Value, p.Local = x, x
		params = append(params, p)
	}
	st := &State{Step: version, Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})}
	if version > 0 {
		o := st.Optimizer.State()
		o.Steps = version
		for name := range o.Counts {
			o.Counts[name] = version
		}
		require.NoError(t, st.Optimizer.SetState(o))
		eachTensor(t, g, l, st, func(x []float32, k int, want float32, _ string) { x[k] = want })
	}
	return st
}

// eachTensor calls fn for every element of parameters and moments, with its value in version 3.
func eachTensor(t require.TestingT, g *dist.Group, l division, st *State, fn func(x []float32, k int, want float32, what string)) {
	for i, s := range segmentedModel {
		held, err := shard.Of(st.Params[i].Placement(), st.Params[i].Local.Len())
		require.NoError(t, err)
		all := map[string]tensor.Tensor{"": st.Params[i].Local}
		for _, m := range st.Optimizer.State().Tensors {
			if m.Param == st.Params[i] {
				all[m.Name[len(s.name):]] = m.Tensor
			}
		}
		require.Len(t, all, 3)
		for key, x := range all {
			data := tensor.Data[float32](x)
			s.eachElement(held, func(k int, name string, at int) {
				fn(data, k, float32(value(name+key, at, 3)), fmt.Sprintf("%s%s, element %d of %s", s.name, key, at, name))
			})
		}
	}
}

// A checkpoint saved on any layout has the right values in its files, and every layout loads it, bit for bit.
func TestSegments(t *testing.T) {
	for i, from := range []string{"ddp1", "ddp3", "fsdp2", "fsdp5", "tp2", "tp2fsdp2", "tp2dp2"} {
		dir := t.TempDir()
		onRanks(t, layouts[from].ranks, func(g *dist.Group) error {
			s := newSaver(g, disk.OS{}, dir, Config{Async: from == "fsdp2"})
			st := segmentedState(t, g, layouts[from], 3)
			if g.Rank()%2 == 1 { // ranks may list their parameters in different orders
				slices.Reverse(st.Params)
			}
			if err := s.Save(context.Background(), *st); err != nil {
				return err
			}
			return s.Close()
		})
		path := filepath.Join(dir, storage.StepName(3))
		requireStored(t, path)
		require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
		for k, to := range []string{"ddp1", "ddp2", "fsdp1", "fsdp3", "fsdp4", "tp2", "tp2fsdp2"} {
			for s, strategy := range []Strategy{Sharded, Broadcast} {
				if (i+k+2*s)%4 == 0 || reliability.Long(t) {
					loadSegments(t, path, layouts[to], strategy, from+" to "+to)
				}
			}
		}
	}
}

func TestLongSegments(t *testing.T) { reliability.AsLong(t, TestSegments) }

func loadSegments(t *testing.T, path string, l division, strategy Strategy, what string) {
	onRanks(t, l.ranks, func(g *dist.Group) error {
		st := segmentedState(t, g, l, 0)
		r, err := Load(context.Background(), g, path, st, LoadConfig{Strategy: strategy})
		if err != nil {
			return err
		}
		if r.Tensors != 24 || r.Unverified != 0 {
			return fmt.Errorf("%+v", r)
		}
		eachTensor(t, g, l, st, func(x []float32, k int, want float32, at string) {
			if want != x[k] {
				require.Equal(t, want, x[k], "%s: rank %d, %s", what, g.Rank(), at)
			}
		})
		for name, n := range st.Optimizer.State().Counts {
			require.Equal(t, 3, n, name)
		}
		return nil
	})
}

// requireStored checks every element of every file of a checkpoint.
func requireStored(t *testing.T, path string) {
	files, err := filepath.Glob(filepath.Join(path, "*.safetensors"))
	require.NoError(t, err)
	shapes := map[string][]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		h, err := safetensors.Read(file, bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for _, x := range h.Tensors {
			shapes[x.Name] = x.Shape
			for i := range x.Len() {
				got := math.Float32frombits(binary.LittleEndian.Uint32(data[h.Size+x.Start+int64(4*i):]))
				require.Equal(t, float32(value(x.Name, i, 3)), got, "%s, element %d", x.Name, i)
			}
		}
	}
	require.Len(t, shapes, 24)
	for name, shape := range map[string][]int{"k.weight": {4, 6}, "v.weight.exp_avg": {6, 6}, "c_attn.weight": {6, 12},
		"c_attn.bias.exp_avg_sq": {12}, "c_fc.weight": {5, 3, 2}, "a.weight": {4, 2}, "norm.weight": {7}} {
		require.Equal(t, shape, shapes[name], name)
	}
}

// A prefix is removed from the names of parameters, moments and step counts alike. A missing count is found before
// anything is changed.
func TestPrefixOfOptimizer(t *testing.T) {
	dir := t.TempDir()
	onRanks(t, 2, func(g *dist.Group) error {
		state := func(names ...string) *State {
			st := &State{}
			for _, name := range names {
				p := tensor.NewParam(tensor.Constant(0), 3)
				p.SetName(name)
				p.Make(g.Device(), tensor.Float32, 1)
				st.Params = append(st.Params, p)
			}
			st.Optimizer = optim.NewAdamW(st.Params, optim.AdamWConfig{LR: 0.1})
			return st
		}
		st := state("net.w", "b")
		st.Step = 1
		o := st.Optimizer.State()
		o.Counts["net.w"], o.Counts["b"] = 7, 7
		require.NoError(t, st.Optimizer.SetState(o))
		s := NewSaver(g, dir, Config{})
		if err := errors.Join(s.Save(context.Background(), *st), s.Close()); err != nil {
			return err
		}
		path := filepath.Join(dir, storage.StepName(1))
		got := state("w", "b")
		_, err := Load(context.Background(), g, path, got, LoadConfig{Rename: withoutNet})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"w": 7, "b": 7}, got.Optimizer.State().Counts)
		r, err := Load(context.Background(), g, path, state("w", "b", "x"), LoadConfig{Rename: withoutNet})
		require.ErrorContains(t, err, "missing: model:x, optimizer:x.exp_avg, optimizer:x.exp_avg_sq, the step count of x")
		require.Zero(t, r.Tensors)
		return nil
	})
}

func TestSegmentsMisuse(t *testing.T) {
	save := func(change func(st *State)) error {
		dir := t.TempDir()
		return tryRanks(2, func(g *dist.Group) error {
			st := segmentedState(t, g, layouts["fsdp2"], 3)
			change(st)
			return NewSaver(g, dir, Config{}).Save(context.Background(), *st)
		})
	}
	require.NoError(t, save(func(*State) {}))
	for want, change := range map[string]func(st *State){
		"c_attn.weight: the boxes have 48 of 72 elements": func(st *State) {
			st.Params = append(st.Params[:1:1], st.Params[2:]...)
			st.Optimizer = nil
		},
		"k.weight: rank 0 lists elements of it twice": func(st *State) { st.Params = append(st.Params, st.Params[0]); st.Optimizer = nil },
		"files keep q.weight in c_attn.weight, with another parameter: " +
			"the optimizer has done 1 steps of one and 2 of the other": func(st *State) {
			o := st.Optimizer.State()
			o.Counts["kv.weight"], o.Counts["q.weight"] = 2, 1
			require.NoError(t, st.Optimizer.SetState(o))
		},
	} {
		require.ErrorContains(t, save(change), want)
	}
}

// Of a tensor that holds several parameters, some may be frozen: the optimizer's state of the others is stored under their own names.
func TestSegmentsFrozenInPart(t *testing.T) {
	for frozen, c := range map[string]struct{ whole, parts []string }{
		"q.weight":               {[]string{"c_attn.bias"}, []string{"kv.weight"}}, // beside kv.weight
		"kv.weight":              {[]string{"c_attn.bias"}, []string{"q.weight"}},
		"q.bias":                 {[]string{"c_attn.weight"}, []string{"kv.bias"}},
		"kv.bias":                {[]string{"c_attn.weight"}, []string{"q.bias"}},
		"kv.weight and q.bias":   {nil, []string{"q.weight", "kv.bias"}},
		"q.weight and q.bias":    {nil, []string{"kv.weight", "kv.bias"}},
		"kv.weight and kv.bias":  {nil, []string{"q.weight", "q.bias"}},
		"q.weight and kv.weight": {[]string{"c_attn.bias"}, nil},
	} {
		if strings.HasPrefix(frozen, "kv.weight") && !reliability.Long(t) {
			continue
		}
		t.Run(frozen, func(t *testing.T) { frozenInPart(t, strings.Split(frozen, " and "), c.whole, c.parts) })
	}
}

func TestLongSegmentsFrozenInPart(t *testing.T) { reliability.AsLong(t, TestSegmentsFrozenInPart) }

func frozenInPart(t *testing.T, frozen, whole, parts []string) {
	state := func(g *dist.Group, l string, version int) *State {
		st := segmentedState(t, g, layouts[l], version)
		old := st.Optimizer.State()
		for _, p := range st.Params {
			if slices.Contains(frozen, p.Name()) {
				p.Freeze()
				delete(old.Counts, p.Name())
			}
		}
		st.Optimizer = optim.NewAdamW(st.Params, optim.AdamWConfig{LR: 0.1})
		if version > 0 {
			old.Tensors = slices.DeleteFunc(old.Tensors, func(x optim.StateTensor) bool { return x.Param.Frozen() })
			require.NoError(t, st.Optimizer.SetState(old))
		}
		return st
	}
	dir := t.TempDir()
	onRanks(t, 2, func(g *dist.Group) error {
		return NewSaver(g, dir, Config{}).Save(context.Background(), *state(g, "fsdp2", 3))
	})
	path := filepath.Join(dir, storage.StepName(3))
	require.True(t, mustVerify(t, path, inspect.VerifyConfig{Layout: "fsdp=3"}).OK)
	_, list, err := inspect.List(path)
	require.NoError(t, err)
	var names []string
	for _, x := range list {
		if x.Kind == "optimizer" && strings.HasSuffix(x.Name, ".exp_avg") {
			names = append(names, x.Name)
		}
	}
	for _, name := range parts {
		require.Contains(t, names, name+".exp_avg")
	}
	for _, name := range whole {
		require.Contains(t, names, name+".exp_avg", "both are trained")
	}
	for _, name := range []string{"c_attn.weight", "c_attn.bias"} {
		if !slices.Contains(whole, name) {
			require.NotContains(t, names, name+".exp_avg")
		}
	}
	for _, l := range []string{"ddp1", "fsdp3"} {
		onRanks(t, layouts[l].ranks, func(g *dist.Group) error {
			got, want := state(g, l, 0), state(g, l, 3)
			if _, err := Load(context.Background(), g, path, got, LoadConfig{}); err != nil {
				return err
			}
			a, b := got.Optimizer.State(), want.Optimizer.State()
			require.Equal(t, b.Counts, a.Counts)
			for i, x := range b.Tensors {
				require.Equal(t, x.Tensor.Bytes(), a.Tensors[i].Tensor.Bytes(), x.Name)
			}
			return nil
		})
	}
}
