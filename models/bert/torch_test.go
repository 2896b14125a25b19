package bert_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// expected is expect.json of write.py.
type expected struct {
	Texts          []string
	Pairs          [][2]string
	Mean, CLS, Old struct{ Features, Before, Losses, After []float64 }
}

func expect(t testing.TB) (e expected) {
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &e))
	return e
}

// opened returns a model of a folder on one rank, and its tokenizer.
func opened(t testing.TB, dir string, d tensor.DType) (*bert.Model, nn.Params, tensor.Device, *tokenizer.Tokenizer) {
	m, err := bert.Open(dir)
	require.NoError(t, err)
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	dev := cpu.New(1)
	t.Cleanup(func() { dev.Close() })
	params := nn.Init(m, dev, d, 1)
	loaded(t, dir, m, params)
	return m, params, dev, tok
}

func loaded(t testing.TB, dir string, m *bert.Model, params nn.Params) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		_, err := ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
		return err
	}))
}

// batch returns all rows of d as one.
func batch(d *bert.Texts) (b data.Batch) {
	x, y := d.Shapes()
	b.Rows = d.Len()
	b.X = tensor.FromSlice(make([]int64, b.Rows*x.Dims[0]*x.Dims[1]), b.Rows, x.Dims[0], x.Dims[1])
	b.Y = tensor.FromSlice(make([]int64, b.Rows*y.Dims[0]), b.Rows, y.Dims[0])
	for i := range b.Rows {
		b.Samples = append(b.Samples, i)
	}
	if err := d.Batch(b.Samples, b.X, b.Y); err != nil {
		panic(err)
	}
	return b
}

func texts(t testing.TB, m *bert.Model, tok *tokenizer.Tokenizer, columns ...[]string) *bert.Texts {
	d, err := m.Config.NewTexts(tok, columns...)
	require.NoError(t, err)
	return d
}

// vectors returns those of texts, in the type of the model.
func vectors(t testing.TB, m *bert.Model, dev tensor.Device, tok *tokenizer.Tokenizer, of []string) []float64 {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	d := texts(t, m, tok, of)
	return tensor.Floats(m.Embed(d.Input(tape, batch(d), 0)))
}

func columns(pairs [][2]string) (left, right []string) {
	for _, p := range pairs {
		left, right = append(left, p[0]), append(right, p[1])
	}
	return left, right
}

// TestTorch: features, vectors and 20 steps of AdamW equal those of sentence-transformers, for folders that it wrote.
func TestTorch(t *testing.T) {
	e := expect(t)
	for name, want := range map[string]struct{ Features, Before, Losses, After []float64 }{"mean": e.Mean, "cls": e.CLS} {
		dir := filepath.Join("testdata", name)
		m, _, dev, tok := opened(t, dir, tensor.Float32)
		require.InDeltaSlice(t, want.Before, vectors(t, m, dev, tok, e.Texts), 1e-5, name)
		m, params, dev, tok := opened(t, dir, tensor.Float64)
		require.InDeltaSlice(t, want.Features, features(t, m, dev, tok, e.Texts[:4]), 1e-12, name)
		require.InDeltaSlice(t, want.Before, vectors(t, m, dev, tok, e.Texts), 1e-12, name)
		opt, tape := optim.NewAdamW(params.Trainable(), optim.AdamWConfig{LR: 1e-3, WeightDecay: 0.01}), tensor.NewTape(dev)
		for step, loss := range want.Losses {
			left, right := columns(e.Pairs[step%3:])
			d := texts(t, m, tok, left, right)
			b := batch(d)
			l := nn.InfoNCE(m.Embed(d.Input(tape, b, 0)), m.Embed(d.Input(tape, b, 1)), 20, nil)
			require.InDelta(t, loss, l.Item(), 1e-9, "%s, step %d", name, step)
			tape.Backward(l)
			require.NoError(t, opt.Step())
			tape.Reset()
		}
		require.InDeltaSlice(t, want.After, vectors(t, m, dev, tok, e.Texts), 1e-9, name)
	}
	m, _, dev, tok := opened(t, "testdata/old", tensor.Float64)
	require.InDeltaSlice(t, e.Old.Before, vectors(t, m, dev, tok, e.Texts), 1e-12)
}

// features returns those of texts, with zeros for padding.
func features(t testing.TB, m *bert.Model, dev tensor.Device, tok *tokenizer.Tokenizer, of []string) (all []float64) {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	d := texts(t, m, tok, of)
	b := batch(d)
	ids, lengths := d.Input(tape, b, 0)
	all = tensor.Floats(m.Forward(ids, lengths))
	per := ids.Dim(1) * m.Config.Width
	for i, n := range tensor.Data[int64](b.Y) {
		clear(all[i*per+int(n)*m.Config.Width : (i+1)*per])
	}
	return all
}

// A text has the same bits alone and in a batch, whatever the padding is.
func TestPadding(t *testing.T) {
	e := expect(t)
	for _, name := range []string{"mean", "cls"} {
		m, _, dev, tok := opened(t, filepath.Join("testdata", name), tensor.Float64)
		together := vectors(t, m, dev, tok, e.Texts)
		for i, text := range e.Texts {
			alone := vectors(t, m, dev, tok, []string{text})
			require.InDeltaSlice(t, together[i*12:(i+1)*12], alone, 1e-14, "%s: %q", name, text)
		}
		d := texts(t, m, tok, e.Texts)
		b := batch(d)
		want := tensor.Floats(b.X)
		for i, n := range tensor.Data[int64](b.Y) {
			row := tensor.Data[int64](b.X)[i*16 : (i+1)*16]
			for j := int(n); j < 16; j++ {
				row[j] = 7
			}
		}
		require.NotEqual(t, want, tensor.Floats(b.X))
		tape := tensor.NewTape(dev, tensor.NoGrad())
		require.Equal(t, together, tensor.Floats(m.Embed(d.Input(tape, b, 0))))
		tape.Close()
	}
}

// Encode returns the vectors in the order of the texts, however many there are.
func TestEncode(t *testing.T) {
	e := expect(t)
	m, _, dev, tok := opened(t, "testdata/mean", tensor.Float32)
	all := slices.Concat(slices.Repeat([][]string{e.Texts}, 7)...)
	got, err := m.Encode(dev, tok, all)
	require.NoError(t, err)
	require.Len(t, got, len(all))
	for i := range all {
		for j, x := range got[i] {
			require.InDelta(t, e.Mean.Before[i%len(e.Texts)*12+j], x, 1e-5, "%d", i)
		}
	}
	got, err = m.Encode(dev, tok, nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A device whose memory is not the host's computes the padding of a batch: it need not wait for the lengths. Vectors are the same.
func TestDevice(t *testing.T) {
	e, dir := expect(t), filepath.Join("testdata", "mean")
	m, params, _, tok := opened(t, dir, tensor.Float64)
	dev := tensortest.NewRemote(t, 1)
	for _, p := range params {
		p.SetValue(tensor.ToDevice(dev, p.Value))
	}
	require.InDeltaSlice(t, e.Mean.Before, vectors(t, m, dev, tok, e.Texts), 1e-12)
}
