package ckpt

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

func mustVerify(t *testing.T, path string, c inspect.VerifyConfig) *inspect.Verdict {
	t.Helper()
	v, err := inspect.Verify(context.Background(), path, c)
	require.NoError(t, err)
	return v
}

// size is the size of the test model in bytes; the optimizer has two moments per parameter, and a master of the 16-bit
// one.
func size() (all int64) {
	model := int64(0)
	for _, s := range specs {
		n, wide := int64(shard.Product(s.dims)), int64(4)
		switch s.dtype {
		case tensor.Float64:
			model, wide = model+8*n, 8
		case tensor.BFloat16:
			model += 2 * n
			all += 4 * n
		default:
			model += 4 * n
		}
		all += 2 * wide * n
	}
	return all + model
}

func TestVerifySound(t *testing.T) {
	all := size()
	for _, name := range []string{"ddp1", "fsdp4", "tp2fsdp2"} {
		path := save(t, t.TempDir(), layouts[name], 2)
		v := mustVerify(t, path, inspect.VerifyConfig{})
		require.Empty(t, v.Errors)
		require.True(t, v.OK)
		require.Equal(t, []int64{2, 26, all, 0, 0}, []int64{int64(v.Step), int64(v.Tensors), v.Bytes, v.NaN, v.Inf})
		if name == "ddp1" {
			require.Equal(t, 26, v.Shards)
		} else {
			require.Greater(t, v.Shards, 40)
		}

		var seen []inspect.RankBytes
		for _, layout := range []string{"tp=2,fsdp=4", "fsdp=3", "dp=2,tp=2", "tp=1"} {
			v = mustVerify(t, path, inspect.VerifyConfig{Layout: layout})
			require.True(t, v.OK, v.Errors)
			sum := int64(0)
			for _, r := range v.Ranks {
				sum += r.Bytes
			}
			require.GreaterOrEqual(t, sum, all, layout)
			if layout == "fsdp=3" {
				require.Equal(t, all, sum, "each byte once")
				require.Equal(t, "fsdp=2", v.Ranks[2].Place)
			}
			seen = append(seen, v.Ranks...)
		}
		require.Len(t, seen, 8+3+4+1)
	}
	_, err := inspect.Verify(context.Background(), t.TempDir(), inspect.VerifyConfig{Layout: "sp=2"})
	require.ErrorContains(t, err, "sp")
}

// TestLayoutParts: the part that Verify reads for a rank is the part that the rank holds.
func TestLayoutParts(t *testing.T) {
	src := storage.Examine(disk.OS{}, save(t, t.TempDir(), layouts["ddp2"], 2))
	defer src.Close()
	for name, mesh := range map[string]string{"fsdp3": "fsdp=3", "tp2": "tp=2", "tp2fsdp2": "fsdp=2,tp=2", "tp2dp2": "dp=2,tp=2"} {
		c, err := storage.ParseLayout(mesh)
		require.NoError(t, err)
		l := layouts[name]
		onRanks(t, l.ranks, func(g *dist.Group) error {
			items, err := newState(t, g, l, 0).items()
			if err != nil {
				return err
			}
			at, _ := c.Coordinates(g.Rank())
			for _, x := range items {
				p, err := c.Part(src.Tensors[x.key()], at)
				if err != nil {
					return err
				}
				require.Equal(t, elementsOf(x.part), elementsOf(p), "%s on %s, rank %d", x.Name, name, g.Rank())
			}
			return nil
		})
	}
}

// TestLayoutStages: what a stage of pp loads, of files of several programs.
func TestLayoutStages(t *testing.T) {
	for _, c := range []struct {
		names  string
		stages [3]string // of five layers
	}{
		{"tok.weight pos.weight norm.weight head.weight", [3]string{"tok.weight pos.weight 0 1", "2 3", "norm.weight head.weight 4"}},
		{"lm_head.weight model.embed_tokens.weight model.norm.weight",
			[3]string{"model.embed_tokens.weight 0 1", "2 3", "lm_head.weight model.norm.weight 4"}},
		{"ln_f.bias wpe.weight wte.weight", [3]string{"wpe.weight wte.weight 0 1", "2 3", "ln_f.bias wte.weight 4"}},
	} {
		var all []*storage.Tensor
		add := func(name string) {
			for _, key := range []string{"", ".exp_avg"} {
				x := &storage.Tensor{Model: key == ""}
				x.Name, x.Shape = name+key, []int{2, 3}
				all = append(all, x)
			}
		}
		for _, name := range strings.Fields(c.names) {
			add(name)
		}
		for i := range 5 {
			add(fmt.Sprintf("h.%d.attn.7.weight", i))
		}
		l, err := storage.ParseLayout("pp=3,fsdp=2")
		require.NoError(t, err)
		require.NoError(t, l.SetLayers(all))
		for rank := range 6 {
			at, _ := l.Coordinates(rank)
			var values, moments []string
			for _, x := range all {
				p, err := l.Part(x, at)
				require.NoError(t, err)
				name := strings.TrimSuffix(strings.TrimPrefix(x.Name, "h."), ".exp_avg")
				name = strings.TrimSuffix(name, ".attn.7.weight")
				switch {
				case p.Len() == 3 && x.Model:
					values = append(values, name)
				case p.Len() == 3:
					moments = append(moments, name)
				default:
					require.Zero(t, p.Len())
				}
			}
			require.Equal(t, c.stages[at["pp"]], strings.Join(values, " "))
			require.Equal(t, values, moments)
		}
	}
	v := mustVerify(t, save(t, t.TempDir(), layouts["ddp1"], 2), inspect.VerifyConfig{Layout: "pp=2"})
	require.False(t, v.OK)
	require.Empty(t, v.Errors)
	require.Len(t, v.Misfits, 1)
	require.Contains(t, v.Misfits[0], "2 stages of pp need a layer each, and names of tensors have 1, by numbers as in blocks.0.norm.weight")
}

// TestLayoutPositions: ranks with other positions have the whole model, or share it with those of fsdp.
func TestLayoutPositions(t *testing.T) {
	x := &storage.Tensor{}
	x.Shape = []int{3, 8}
	for mesh, each := range map[string]int{"ring=2,cp=3": 24, "fsdp=2,ring=2,cp=3": 2, "cp=3,fsdp=2": 4, "ring=4,fsdp=2": 3, "dp=2,cp=2": 24} {
		l, err := storage.ParseLayout(mesh)
		require.NoError(t, err)
		var all []int
		for rank := range l.Ranks {
			at, _ := l.Coordinates(rank)
			p, err := l.Part(x, at)
			require.NoError(t, err)
			require.Equal(t, each, p.Len(), mesh)
			all = append(all, elementsOf(p)...)
		}
		slices.Sort(all)
		require.Len(t, slices.Compact(all), 24, mesh)
	}
}

// elementsOf lists the places of a part's elements.
func elementsOf(p shard.Part) (all []int) {
	for at, n := range p.Runs() {
		for i := range n {
			all = append(all, at+i)
		}
	}
	return all
}

// TestVerifyFindsEveryBit flips bits at random places of every file; Verify finds each one.
func TestVerifyFindsEveryBit(t *testing.T) {
	path := save(t, t.TempDir(), layouts["fsdp3"], 2)
	names, err := disk.OS{}.ReadDir(path)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	for _, name := range names {
		file := filepath.Join(path, name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		bits := []int{0, 8*len(text) - 1, 63, 64}
		random := 2
		if reliability.Long(t) {
			random = 40
		}
		for range random {
			bits = append(bits, r.IntN(8*len(text)))
		}
		for _, bit := range bits {
			broken := append([]byte(nil), text...)
			broken[bit/8] ^= 1 << (bit % 8)
			require.NoError(t, os.WriteFile(file, broken, 0o666))
			v := mustVerify(t, path, inspect.VerifyConfig{})
			require.False(t, v.OK, "%s, bit %d", name, bit)
			require.Contains(t, strings.Join(v.Errors, "\n"), strings.TrimSuffix(name, ".index.json")[:5])
		}
		require.NoError(t, os.WriteFile(file, text, 0o666))
	}
	require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
}

func TestLongVerifyFindsEveryBit(t *testing.T) { reliability.AsLong(t, TestVerifyFindsEveryBit) }

func TestVerifyCountsNaN(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "model.safetensors",
		`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}}`,
		[]byte{0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f, 0, 0, 0x80, 0xff, 0, 0, 0x80, 0x3f, 0xc0, 0x7f, 0, 0})
	v := mustVerify(t, dir, inspect.VerifyConfig{})
	require.Equal(t, []string{`model.safetensors: tensor "a": 1 elements are NaN`, `model.safetensors: tensor "b": 1 elements are NaN`},
		v.Errors)
	require.Equal(t, [2]int64{2, 2}, [2]int64{v.NaN, v.Inf})
	require.Len(t, v.Unchecked, 2)

	dir = t.TempDir()
	write(t, dir, "model.safetensors",
		`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[16,20]}}`, make([]byte, 20))
	v = mustVerify(t, dir, inspect.VerifyConfig{Layout: "tp=2"})
	require.Contains(t, v.Misfits[0], "it is not known how tensor parallelism divides")
	rules, err := ParseRules([]byte(`{"a": {"dim": 0, "parts": [3, 1]}, "[b]": {"dim": 0}}`))
	require.NoError(t, err)
	v = mustVerify(t, dir, inspect.VerifyConfig{Layout: "tp=2", Rules: rules})
	require.True(t, v.OK, v.Errors)
	require.Equal(t, []int64{3*4 + 2, 4 + 2}, []int64{v.Ranks[0].Bytes, v.Ranks[1].Bytes})
	_, err = ParseRules([]byte(`{"[": {}}`))
	require.Error(t, err)
	v = mustVerify(t, dir, inspect.VerifyConfig{Layout: "tp=2", Rules: Rules{"a": {Dim: 1}}})
	require.Contains(t, v.Misfits[0], "dimension 1")
}

func TestDiff(t *testing.T) {
	a, b := save(t, t.TempDir(), layouts["fsdp3"], 2), save(t, t.TempDir(), layouts["ddp2"], 2)
	var calls atomic.Int64
	d, err := inspect.Diff(context.Background(), a, b, func(done, total int64) { calls.Add(1) })
	require.NoError(t, err)
	require.True(t, d.Same, d)
	require.Positive(t, calls.Load())

	c := save(t, t.TempDir(), layouts["ddp1"], 3)
	d, err = inspect.Diff(context.Background(), a, c, nil)
	require.NoError(t, err)
	require.False(t, d.Same)
	require.Len(t, d.Tensors, 23, "all but the empty ones")
	require.GreaterOrEqual(t, d.Tensors[0].Max, d.Tensors[1].Max)
	require.Equal(t, [2]int{2, 3}, d.Steps)
	_, err = json.Marshal(d)
	require.NoError(t, err)

	half := filepath.Join(t.TempDir(), "half")
	bf16 := tensor.BFloat16
	require.NoError(t, inspect.Convert(context.Background(), a, half, inspect.ConvertConfig{DType: &bf16}))
	d, err = inspect.Diff(context.Background(), a, half, nil)
	require.NoError(t, err)
	require.Len(t, d.Structure, 6)
	require.NotEmpty(t, d.Tensors)
	require.Less(t, d.Tensors[0].Max, 1.0/256)
	require.NotContains(t, d.String(), "optimizer")
}

func TestConvert(t *testing.T) {
	a := save(t, t.TempDir(), layouts["tp2fsdp2"], 2)
	dir := t.TempDir()
	one, many := filepath.Join(dir, "one"), filepath.Join(dir, "many")
	require.NoError(t, inspect.Convert(context.Background(), a, one, inspect.ConvertConfig{}))
	require.NoError(t, inspect.Convert(context.Background(), one, many, inspect.ConvertConfig{FileBytes: 500}))
	for path, files := range map[string]int{one: 5, many: 13} {
		text, err := os.ReadFile(filepath.Join(path, "config.json"))
		require.NoError(t, err)
		require.Equal(t, `{"version": 2}`, string(text))
		require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
		loadAll(t, path, layouts["fsdp2"], 2, LoadConfig{})
		names, err := disk.OS{}.ReadDir(path)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(names), files)
	}
	require.ErrorContains(t, inspect.Convert(context.Background(), a, one, inspect.ConvertConfig{}), "exists already")
	require.ErrorContains(t, inspect.Convert(context.Background(), a, filepath.Join(dir, "x.safetensors"), inspect.ConvertConfig{}),
		"is that of a file")
	i32 := tensor.Int32
	require.ErrorContains(t, inspect.Convert(context.Background(), a, filepath.Join(dir, "x"), inspect.ConvertConfig{DType: &i32}),
		"not a floating-point type")

	// Convert does not copy damaged data.
	file := filepath.Join(a, "optimizer-00002-of-00006.safetensors")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text[len(text)-1] ^= 4
	require.NoError(t, os.WriteFile(file, text, 0o666))
	require.ErrorContains(t, inspect.Convert(context.Background(), a, filepath.Join(dir, "x"), inspect.ConvertConfig{}), "damaged")
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"many", "one"}, names, "nothing is left")
}

// TestMemory: the memory of Verify and Diff does not depend on the size of the checkpoint.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	const size = 80 << 20 // a sparse file, which needs no disk space
	write(t, dir, "model.safetensors", fmt.Sprintf(`{"a":{"dtype":"F32","shape":[%d,1024],"data_offsets":[0,%d]}}`, size/4096, size), nil)
	file := filepath.Join(dir, "model.safetensors")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, info.Size()+size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.True(t, mustVerify(t, dir, inspect.VerifyConfig{Layout: "tp=4,fsdp=2", Rules: Rules{"a": {Dim: 1}}}).OK)
	d, err := inspect.Diff(context.Background(), dir, dir, nil)
	require.NoError(t, err)
	require.True(t, d.Same)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}
