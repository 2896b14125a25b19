package ckpt

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// withoutNet is LoadConfig.Rename for names that may begin with "net.".
func withoutNet(name string) string { return strings.TrimPrefix(name, "net.") }

// othersFile writes a file of another program: element i of each tensor is i/4 + 1, which every type can represent.
func othersFile(t *testing.T, path string, d tensor.DType, shapes map[string][]int) {
	var list []safetensors.Tensor
	for name, shape := range shapes {
		list = append(list, safetensors.Tensor{Name: name, DType: storage.DTypes[d], Shape: shape})
	}
	h, err := safetensors.New(list, nil)
	require.NoError(t, err)
	out := h.Encode()
	for _, x := range h.Tensors {
		b := make([]byte, x.Len()*d.Size())
		require.NoError(t, storage.CastAll(b, d, tensor.FromSlice(othersValues(x.Len()), x.Len()).Bytes(), tensor.Float64))
		out = append(out, b...)
	}
	require.NoError(t, os.WriteFile(path, out, 0o666))
}

func othersValues(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i%64)/4 + 1
	}
	return x
}

// othersParams is a matrix stored as it is, one stored transposed, and one stored as two tensors, all sharded over the
// ranks.
func othersParams(g *dist.Group, d tensor.DType) nn.Params {
	w, u, kv := tensor.NewParam(tensor.Constant(0), 5, 3), tensor.NewParam(tensor.Constant(0), 3, 4), tensor.NewParam(tensor.Constant(0), 4, 2)
	u.SetTransposed(true)
	kv.SetStored([]tensor.Stored{of("k", 1, 0, 1), of("v", 3, 0, 3)})
	params := nn.Params{w, u, kv}
	for i, p := range params {
		p.SetName([]string{"w", "u", "kv"}[i])
		p.Shard(layout.Share(p.Len(), g.Rank(), g.Size()))
		p.Local = tensor.New(g.Device(), d, p.Placement().Len())
	}
	return params
}

var othersShapes = map[string][]int{"w": {5, 3}, "u": {4, 3}, "k": {1, 2}, "v": {3, 2}}

// requireOthers checks the values that othersParams has loaded.
func requireOthers(t *testing.T, params nn.Params) {
	for _, p := range params {
		first, _ := p.Placement().Range()
		for k, got := range tensor.Floats(p.Local) {
			at := first + k
			switch {
			case p.Name() == "u":
				at = at%4*3 + at/4
			case p.Name() == "kv" && at >= 2:
				at -= 2
			}
			require.Equal(t, float64(at)/4+1, got, "%s, element %d", p.Name(), k)
		}
	}
}

// Cast converts floating-point types, for every strategy and layout, in the short form of two ranks.
func TestCast(t *testing.T) {
	floats := []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16}
	for _, from := range floats {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		othersFile(t, path, from, othersShapes)
		for _, to := range floats {
			for ranks := 1; ranks <= 3; ranks++ {
				if ranks != 2 && !reliability.Long(t) {
					continue
				}
				onRanks(t, ranks, func(g *dist.Group) error {
					for _, s := range []Strategy{Sharded, Broadcast} {
						params := othersParams(g, to)
						_, err := Load(context.Background(), g, path, &State{Params: params}, LoadConfig{Strategy: s, Cast: true})
						require.NoError(t, err)
						requireOthers(t, params)
						if from != to {
							_, err = Load(context.Background(), g, path, &State{Params: params}, LoadConfig{Strategy: s})
							require.ErrorContains(t, err, "model:w is "+from.String()+"[5,3], not "+to.String()+"[5,3]")
						}
					}
					return nil
				})
			}
		}
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	othersFile(t, path, tensor.Int32, othersShapes)
	onRanks(t, 1, func(g *dist.Group) error {
		_, err := Load(context.Background(), g, path, &State{Params: othersParams(g, tensor.Float32)}, LoadConfig{Cast: true})
		require.ErrorContains(t, err, "model:w is int32[5,3], not float32[5,3]")
		return nil
	})
}

func TestLongCast(t *testing.T) { reliability.AsLong(t, TestCast) }

// If 16-bit parameters are loaded without masters, the masters get the loaded values, also if they existed before.
func TestMastersFollowWhatIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	othersFile(t, path, tensor.Float32, othersShapes)
	onRanks(t, 2, func(g *dist.Group) error {
		params := othersParams(g, tensor.BFloat16)
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})
		require.Len(t, opt.State().Tensors, 9)
		r, err := Load(context.Background(), g, path, &State{Params: params, Optimizer: opt}, LoadConfig{Cast: true, Partial: true})
		require.NoError(t, err)
		require.Contains(t, r.Missing, "optimizer:k.master")
		for _, p := range params {
			p.Value, p.Grad = p.Local, tensor.New(g.Device(), tensor.BFloat16, p.Local.Len())
			p.FillGrad()
		}
		require.NoError(t, opt.Step())
		requireOthers(t, params)
		return nil
	})
}

func TestPrefixAndPatterns(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, shapes map[string][]int) string {
		path := filepath.Join(dir, name+".safetensors")
		othersFile(t, path, tensor.Float32, shapes)
		return path
	}
	long := file("long",
		map[string][]int{"net.w": {5, 3}, "u": {4, 3}, "net.k": {1, 2}, "net.v": {3, 2}, "net.h.0.mask": {2}, "net.h.11.mask": {2}})
	short := file("short", map[string][]int{"u": {4, 3}, "k": {1, 2}, "v": {3, 2}})
	both := file("both", map[string][]int{"w": {5, 3}, "net.w": {5, 3}})
	other := file("other", map[string][]int{"x": {1}})
	onRanks(t, 2, func(g *dist.Group) error {
		load := func(path string, c LoadConfig) (*Report, nn.Params, error) {
			params := othersParams(g, tensor.Float32)
			r, err := Load(context.Background(), g, path, &State{Params: params}, c)
			return r, params, err
		}
		r, params, err := load(long, LoadConfig{Rename: withoutNet, AllowUnexpected: []string{"h.*.mask"}})
		require.NoError(t, err)
		requireOthers(t, params)
		require.Equal(t, []string{"model:h.0.mask", "model:h.11.mask"}, r.Unexpected)
		for _, x := range []struct { // a list, so that all ranks use the same order
			want string
			c    LoadConfig
		}{
			{"unexpected: model:h.0.mask, model:h.11.mask", LoadConfig{Rename: withoutNet}},
			{"unexpected: model:h.11.mask", LoadConfig{Rename: withoutNet, AllowUnexpected: []string{"h.0.*"}}},
			{"missing: model:k, model:v, model:w; unexpected: model", LoadConfig{}},
			{`"[": syntax error in pattern`, LoadConfig{AllowMissing: []string{"["}}},
		} {
			_, _, err := load(long, x.c)
			require.ErrorContains(t, err, x.want)
		}
		r, params, err = load(short, LoadConfig{AllowMissing: []string{"w"}})
		require.NoError(t, err)
		require.Equal(t, []string{"model:w"}, r.Missing)
		requireOthers(t, params[1:])
		_, _, err = load(both, LoadConfig{Rename: withoutNet})
		require.ErrorContains(t, err, `tensor "w" is there twice, under two names`)
		_, _, err = load(other, LoadConfig{AllowMissing: []string{"*"}, AllowUnexpected: []string{"*"}})
		require.ErrorContains(t, err, "the checkpoint has none of the 4 tensors, such as model:k")
		return nil
	})
}

// Files in Hugging Face's cache are links to blobs. No other link is followed.
func TestCacheOfLinks(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct{ folder, target, want string }{
		{"snapshots/main", "../../blobs/" + hash, ""},
		{"snapshots/main", "../../blobs/" + hash + hash[:24], ""},
		{"snapshots/main", "../../blobs/model.safetensors", "is a link"},
		{"snapshots/main", "../../../blobs/" + hash, "is a link"},
		{"snapshots/main", "../../blobs/../blobs/" + hash, "is a link"},
		{"other/main", "../../blobs/" + hash, "is a link"},
		{"snapshots/main", "ABSOLUTE", "is a link"},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, c.folder)
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.MkdirAll(filepath.Join(root, "blobs"), 0o777))
		blob := filepath.Join(root, "blobs", filepath.Base(c.target))
		othersFile(t, blob, tensor.Float32, othersShapes)
		target := c.target
		if target == "ABSOLUTE" {
			target = blob
		}
		require.NoError(t, os.Symlink(target, filepath.Join(dir, "model.safetensors")))
		onRanks(t, 1, func(g *dist.Group) error {
			params := othersParams(g, tensor.Float32)
			_, err := Load(context.Background(), g, dir, &State{Params: params}, LoadConfig{})
			if c.want == "" {
				require.NoError(t, err, c.target)
				requireOthers(t, params)
			} else {
				require.ErrorContains(t, err, c.want, c.target)
			}
			return nil
		})
		if c.want == "" { // a blob that is itself a link, and a missing one
			require.NoError(t, os.Rename(blob, blob+"x"))
			require.NoError(t, os.Symlink(blob+"x", blob))
			_, err := disk.OS{}.Open(filepath.Join(dir, "model.safetensors"), false)
			assert.ErrorContains(t, err, "is a link")
			require.NoError(t, os.Remove(blob))
			_, err = disk.OS{}.Open(filepath.Join(dir, "model.safetensors"), false)
			assert.ErrorIs(t, err, os.ErrNotExist)
		}
	}
}

// A number of a wider type that would become infinite is an error with its tensor; what is infinite in the file stays so.
func TestTooLarge(t *testing.T) {
	for _, c := range []struct {
		from, to tensor.DType
		value    float64
		want     string
	}{
		{tensor.Float64, tensor.Float32, 1e300, "tensor model:w: 15 values of float64 are too large for float32: take a wider type"},
		{tensor.Float32, tensor.Float16, 1e5, "15 values of float32 are too large for float16"},
		{tensor.BFloat16, tensor.Float16, -1e5, "15 values of bfloat16 are too large for float16"},
		{tensor.Float64, tensor.Float32, math.Inf(1), ""},
		{tensor.Float64, tensor.Float32, 1e-300, ""},
		{tensor.Float32, tensor.BFloat16, 1e38, ""},
	} {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		h, err := safetensors.New([]safetensors.Tensor{{Name: "w", DType: storage.DTypes[c.from], Shape: []int{15}}}, nil)
		require.NoError(t, err)
		b := make([]byte, 15*c.from.Size())
		require.NoError(t, storage.CastAll(b, c.from, tensor.FromSlice(slices.Repeat([]float64{c.value}, 15), 15).Bytes(), tensor.Float64))
		require.NoError(t, os.WriteFile(path, append(h.Encode(), b...), 0o666))
		err = dist.Run(t.Context(), dist.Config{Ranks: 2}, func(ctx context.Context, r *dist.Rank) error {
			p := tensor.NewParam(tensor.Constant(0), 15)
			p.SetName("w")
			p.Local = tensor.New(r.Device, c.to, 15)
			_, err := Load(ctx, r.World, path, &State{Params: nn.Params{p}}, LoadConfig{Cast: true})
			return err
		})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}
