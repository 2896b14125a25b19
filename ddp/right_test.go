package ddp_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// parts are the layers that right programs are made of.
type parts struct {
	A, B, C, D *nn.Linear // 12→8, 8→12, 8→5, 8→1
	Words, At  *nn.Embedding
	Conv       *nn.Conv2d
	Gain, Bias *tensor.Param
	Code       *tensor.Param
}

// rows is a rank's part of a batch, and the layers.
type rows struct {
	*parts
	tape                 *tensor.Tape
	group                *dist.Group
	x, y, ids, noise, w  tensor.Tensor
	lo, n, total, counts int
}

func newParts() *parts {
	return &parts{A: nn.NewLinear(12, 8), B: nn.NewLinear(8, 12), C: nn.NewLinear(8, 5), D: nn.NewLinear(8, 1),
		Words: nn.NewEmbedding(7, 8), At: nn.NewEmbedding(6, 8), Conv: nn.NewConv2d(1, 2, 3, tensor.Conv2dOptions{Padding: [2]int{1, 1}}),
		Gain: tensor.NewParam(tensor.Constant(1), 8), Bias: tensor.NewParam(tensor.Constant(0), 8),
		Code: tensor.NewParam(tensor.NormalInit(0, 1), 4, 8)}
}

const words = 6 // in a sentence

func (p *parts) split(t *tensor.Tape, g *dist.Group, total, step int) *rows {
	r := &rows{parts: p, tape: t, group: g, total: total}
	r.lo = total * g.Rank() / g.Size()
	r.n = total*(g.Rank()+1)/g.Size() - r.lo
	at := func(i int) float64 { return math.Sin(float64(i*i%97 + 13*step + i)) }
	floats := func(k, salt int) tensor.Tensor {
		x := make([]float64, r.n*k)
		for i := range x {
			x[i] = at(r.lo*k + i + salt)
		}
		return tensor.FromSlice(x, r.n, k).WithRows(g.Rows(r.lo, total))
	}
	ints := func(k, below int) tensor.Tensor {
		x := make([]int64, r.n*k)
		for i := range x {
			x[i] = int64((r.lo*k + i + step) * 5 % 11 % below)
		}
		return tensor.FromSlice(x, r.n, k)
	}
	r.x, r.noise, r.w = floats(12, 0), floats(8, 3), floats(1, 7).WithRows(g.Rows(r.lo, total))
	r.ids = ints(words, 7).WithRows(g.Rows(r.lo, total))
	r.y = ints(1, 5).Reshape(-1).WithRows(g.Rows(r.lo, total))
	return r
}

func (r *rows) in() nn.T { return r.tape.Input(r.x) }

// rowed is a tensor made by hand with this rank's rows.
func (r *rows) rowed(x tensor.Tensor) nn.T {
	return r.tape.Input(x.WithRows(r.group.Rows(r.lo, r.total)))
}

func (r *rows) filled(v float64, dims ...int) tensor.Tensor {
	n := 1
	for _, d := range dims {
		n *= d
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = v
	}
	return tensor.FromSlice(x, dims...)
}

func (r *rows) hidden() nn.T { return r.A.Forward(r.in()).Tanh() }
func (r *rows) text() nn.T   { return r.Words.Forward(r.tape.Input(r.ids)) } // [n, words, 8]

func ce(logits, y nn.T) nn.T { return nn.CrossEntropy(logits, y) }

var right = map[string]func(r *rows) nn.T{
	"GAN, the discriminator": func(r *rows) nn.T {
		fake := r.B.Forward(r.tape.Input(r.noise)).Detach()
		real := nn.BCEWithLogits(r.D.Forward(r.hidden()), r.tape.Input(r.filled(1, r.n, 1)))
		return real.Add(nn.BCEWithLogits(r.D.Forward(r.A.Forward(fake).Tanh()), r.tape.Input(r.filled(0, r.n, 1))))
	},
	"GAN, both halves in one batch": func(r *rows) nn.T {
		fake := r.B.Forward(r.tape.Input(r.noise)).Detach()
		logits := r.D.Forward(r.A.Forward(tensor.Concat(0, r.in(), fake)).Tanh())
		labels := tensor.Concat(0, r.rowed(r.filled(1, r.n, 1)), r.rowed(r.filled(0, r.n, 1)))
		return nn.BCEWithLogits(logits, labels)
	},
	"GAN, bare labels in one batch": func(r *rows) nn.T {
		fake := r.B.Forward(r.tape.Input(r.noise)).Detach()
		logits := r.D.Forward(r.A.Forward(tensor.Concat(0, r.in(), fake)).Tanh())
		return nn.BCEWithLogits(logits, tensor.Concat(0, r.tape.Input(r.filled(1, r.n, 1)), r.tape.Input(r.filled(0, r.n, 1))))
	},
	"GAN, smoothed labels": func(r *rows) nn.T {
		return nn.BCEWithLogits(r.D.Forward(r.hidden()), r.tape.Input(r.filled(1, r.n, 1)).Scale(0.9))
	},
	"GAN, OnesLike by Affine": func(r *rows) nn.T {
		logits := r.D.Forward(r.hidden())
		return nn.BCEWithLogits(logits, logits.Detach().Affine(0, 1))
	},
	"GAN, by hand": func(r *rows) nn.T { return nn.GlobalMean(r.D.Forward(r.hidden()).Sigmoid().Log().Neg()) },
	"Wasserstein": func(r *rows) nn.T {
		return nn.GlobalMean(r.D.Forward(r.hidden()).Sub(r.D.Forward(r.B.Forward(r.hidden()).Slice(1, 0, 8))))
	},
	"autoencoder":             func(r *rows) nn.T { x := r.in(); return nn.MSE(r.B.Forward(r.A.Forward(x).Tanh()), x) },
	"autoencoder, raw target": func(r *rows) nn.T { return nn.MSE(r.B.Forward(r.hidden()), r.x) },
	"denoising autoencoder": func(r *rows) nn.T {
		x := r.in()
		return nn.MSE(r.B.Forward(r.A.Forward(x.Dropout(0.3, 1)).Tanh()), x)
	},
	"VAE": func(r *rows) nn.T {
		mu, logvar := r.hidden(), r.A.Forward(r.in()).Scale(0.1)
		z := mu.Add(logvar.Scale(0.5).Exp().Mul(r.tape.Input(r.noise)))
		kl := logvar.Affine(1, 1).Sub(mu.Square()).Sub(logvar.Exp()).Sum(1).Scale(-0.5)
		return nn.MSE(r.B.Forward(z), r.x).Add(nn.GlobalMean(kl))
	},
	"VAE, split and noise by dropout": func(r *rows) nn.T {
		h := r.hidden().Split(1, 4, 4)
		z := tensor.Concat(1, h[0], h[0].Detach().Affine(0, 1).Dropout(0.5, 3).Affine(1, -1).Mul(h[1].Exp()))
		return tensor.GlobalMean(r.B.Forward(z).Sub(r.in()).Square().Sum(1)).Add(nn.GlobalMean(h[1].Square()))
	},
	"contrastive": func(r *rows) nn.T {
		a, b := r.hidden(), r.A.Forward(r.in().Dropout(0.2, 5))
		counts := make([]int, r.group.Size())
		for i := range counts {
			counts[i] = r.total*(i+1)/len(counts) - r.total*i/len(counts)
		}
		all := r.tape.Apply(&autograd.AllGather{Group: r.group, Counts: counts}, b)
		at := make([]int64, r.n)
		for i := range at {
			at[i] = int64(r.lo + i)
		}
		return ce(tensor.MatMul(a, all, false, true), r.rowed(tensor.FromSlice(at, r.n)))
	},
	"contrastive, raw labels": func(r *rows) nn.T {
		a, b := r.hidden(), r.A.Forward(r.in().Dropout(0.2, 5))
		counts := make([]int, r.group.Size())
		for i := range counts {
			counts[i] = r.total*(i+1)/len(counts) - r.total*i/len(counts)
		}
		all := r.tape.Apply(&autograd.AllGather{Group: r.group, Counts: counts}, b)
		at := r.tape.Arange(tensor.Int64, float64(r.lo), float64(r.lo+r.n), 1)
		return ce(tensor.MatMul(a, all, false, true), at)
	},
	"distillation": func(r *rows) nn.T {
		t := tensor.NewTape(r.tape.Zeros(tensor.Float64, 1).Device(), tensor.NoGrad())
		soft := r.C.Forward(r.A.Forward(t.Input(r.x))).Softmax()
		logits := r.C.Forward(r.hidden())
		return ce(logits, r.y).Add(ce(logits, r.tape.Input(soft)).Scale(0.5))
	},
	"distillation, KL by hand": func(r *rows) nn.T {
		t := tensor.NewTape(r.tape.Zeros(tensor.Float64, 1).Device(), tensor.NoGrad())
		q := r.tape.Input(r.C.Forward(r.A.Forward(t.Input(r.x))).Scale(0.5).LogSoftmax())
		p := r.C.Forward(r.hidden()).Scale(0.5).LogSoftmax()
		return nn.GlobalMean(q.Exp().Mul(q.Sub(p)).Sum(1)).Scale(4)
	},
	"linear probe": func(r *rows) nn.T {
		t := tensor.NewTape(r.tape.Zeros(tensor.Float64, 1).Device(), tensor.NoGrad())
		return ce(r.C.Forward(r.tape.Input(r.A.Forward(t.Input(r.x)).Tanh())), r.y)
	},
	"linear probe on pooled text": func(r *rows) nn.T {
		t := tensor.NewTape(r.tape.Zeros(tensor.Float64, 1).Device(), tensor.NoGrad())
		return ce(r.C.Forward(r.tape.Input(r.Words.Forward(t.Input(r.ids)).Mean(1))), r.y)
	},
	"focal loss": func(r *rows) nn.T {
		logp := r.C.Forward(r.hidden()).LogSoftmax().Gather(1, r.tape.Input(r.y).Reshape(-1, 1)).Reshape(-1)
		return nn.GlobalMean(logp.Exp().Affine(-1, 1).Square().Mul(logp).Neg())
	},
	"focal loss, raw labels": func(r *rows) nn.T {
		logp := r.C.Forward(r.hidden()).LogSoftmax().Gather(1, r.y.Reshape(-1, 1))
		return nn.GlobalMean(logp.Exp().Affine(-1, 1).Square().Mul(logp).Neg())
	},
	"focal loss, of PerRow": func(r *rows) nn.T {
		l := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Neg().Exp().Affine(-1, 1).Square().Mul(l))
	},
	"label smoothing by hand": func(r *rows) nn.T {
		q := tensor.OneHot(r.tape.Input(r.y), 5, tensor.Float64).Affine(0.9, 0.1/5)
		return nn.GlobalMean(r.C.Forward(r.hidden()).LogSoftmax().Mul(q).Sum(-1).Neg())
	},
	"label smoothing, soft targets": func(r *rows) nn.T {
		return ce(r.C.Forward(r.hidden()), tensor.OneHot(r.tape.Input(r.y), 5, tensor.Float64).Affine(0.9, 0.1/5))
	},
	"class weights": func(r *rows) nn.T {
		w := r.tape.Input(tensor.FromSlice([]float64{1, 2, 3, 4, 5}, 5))
		logp := r.C.Forward(r.hidden()).LogSoftmax()
		return nn.GlobalMean(logp.Mul(w).Gather(1, r.tape.Input(r.y).Reshape(-1, 1)).Neg())
	},
	"class weights by Embedding": func(r *rows) nn.T {
		w := tensor.Embedding(r.tape.Input(tensor.FromSlice([]float64{1, 2, 3, 4, 5}, 5, 1)), r.tape.Input(r.y)).Reshape(-1)
		l := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Mul(w))
	},
	"class weights, built in": func(r *rows) nn.T {
		w := tensor.FromSlice([]float64{1, 2, 3, 4, 5}, 5)
		return tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{Weights: w, Count: 10})
	},
	"weights of samples": func(r *rows) nn.T {
		l := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Mul(r.tape.Input(r.w).Reshape(-1)))
	},
	"weights of samples, by MatMul": func(r *rows) nn.T {
		l := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return tensor.MatMul(r.tape.Input(r.w), l.Reshape(-1, 1), true, false).Sum().Scale(1 / float64(r.total))
	},
	"masked words": func(r *rows) nn.T { // three masked positions in each sentence
		at := make([]int64, r.n*3)
		flat := make([]int64, r.n*3)
		for i := range at {
			at[i] = int64((r.lo*3+i)*7%2 + i%3*2)
			flat[i] = int64(i/3*words) + at[i]
		}
		h := r.text().Reshape(-1, 8)
		picked := tensor.Embedding(h, r.rowed(tensor.FromSlice(flat, r.n*3).Reshape(r.n, 3)).Reshape(-1))
		labels := r.rowed(clip(r.ids)).Gather(1, r.rowed(tensor.FromSlice(at, r.n, 3)))
		return tensor.CrossEntropy(r.C.Forward(picked), labels, tensor.CrossEntropyOptions{Count: float64(r.total * 3)})
	},
	"masked words, uneven": func(r *rows) nn.T { // row i has i%2+1 masked words
		var flat, labels []int64
		count := 0
		for i := range r.total {
			for j := range i%2 + 1 {
				if count++; i >= r.lo && i < r.lo+r.n {
					flat, labels = append(flat, int64((i-r.lo)*words+j*2)), append(labels, int64((i+j)%5))
				}
			}
		}
		picked := tensor.Embedding(r.text().Reshape(-1, 8), tensor.FromSlice(flat, len(flat)))
		return tensor.CrossEntropy(r.C.Forward(picked), tensor.FromSlice(labels, len(labels)), tensor.CrossEntropyOptions{Count: float64(count)})
	},
	"masked words by Gather": func(r *rows) nn.T {
		at := make([]int64, r.n*2)
		for i := range at {
			at[i] = int64(((r.lo*2 + i) * 7) % words)
		}
		idx := r.rowed(tensor.FromSlice(at, r.n, 2))
		h := r.text().Gather(1, idx.Reshape(r.n, 2, 1).Broadcast(r.n, 2, 8))
		return ce(r.C.Forward(h), r.rowed(clip(r.ids).Slice(1, 0, 2)))
	},
	"masked words by Ignore": func(r *rows) nn.T {
		ignore := int64(2)
		return tensor.CrossEntropy(r.C.Forward(r.text()), clip(r.ids), tensor.CrossEntropyOptions{Ignore: &ignore, Count: 9})
	},
	"token classification": func(r *rows) nn.T { return ce(r.C.Forward(r.text()), clip(r.ids)) },
	"token classification, flat": func(r *rows) nn.T {
		return ce(r.C.Forward(r.text()).Reshape(-1, 5), clip(r.ids).Reshape(-1))
	},
	"token loss with a mask": func(r *rows) nn.T {
		l := tensor.CrossEntropy(r.C.Forward(r.text()), clip(r.ids), tensor.CrossEntropyOptions{PerRow: true})
		mask := r.tape.Input(r.ids).Gt(r.tape.Input(tensor.FromSlice([]int64{2}, 1))).Cast(tensor.Float64)
		return l.Mul(mask).Sum().Scale(0.1)
	},
	"next word": func(r *rows) nn.T {
		return ce(r.C.Forward(r.text().Slice(1, 0, words-1)), clip(r.ids).Slice(1, 1, words))
	},
	"next word, flat": func(r *rows) nn.T {
		return ce(r.C.Forward(r.text()).Slice(1, 0, words-1).Reshape(-1, 5), clip(r.ids).Slice(1, 1, words).Reshape(-1))
	},
	"next word, shifted by Concat": func(r *rows) nn.T {
		h := r.text()
		return ce(r.C.Forward(tensor.Concat(1, h.Slice(1, 0, 1).Scale(0), h.Slice(1, 0, words-1))), clip(r.ids))
	},
	"RNN": func(r *rows) nn.T {
		x, h := r.text(), r.tape.Zeros(tensor.Float64, r.n, 8)
		var all []nn.T
		for i := range words {
			h = x.Slice(1, i, i+1).Reshape(-1, 8).Add(r.B.Forward(h).Slice(1, 0, 8)).Tanh()
			all = append(all, h.Reshape(-1, 1, 8))
		}
		return ce(r.C.Forward(tensor.Concat(1, all...)), clip(r.ids))
	},
	"RNN, zeros by hand": func(r *rows) nn.T {
		x, h := r.text(), r.tape.Input(r.filled(0, r.n, 8))
		for i := range words {
			h = x.Slice(1, i, i+1).Reshape(r.n, 8).Add(r.B.Forward(h).Slice(1, 0, 8)).Tanh()
		}
		return ce(r.C.Forward(h), r.y)
	},
	"RNN, learned start": func(r *rows) nn.T {
		x, h := r.text(), r.tape.Use(r.Bias).Broadcast(r.n, 8)
		for i := range words {
			h = x.Slice(1, i, i+1).Reshape(-1, 8).Add(r.B.Forward(h).Slice(1, 0, 8)).Tanh()
		}
		return ce(r.C.Forward(h), r.y)
	},
	"RNN, time-major": func(r *rows) nn.T {
		x, h := r.text().Transpose(0, 1), r.tape.Zeros(tensor.Float64, 1, r.n, 8)
		var all []nn.T
		for i := range words {
			h = x.Slice(0, i, i+1).Add(r.B.Forward(h).Slice(-1, 0, 8)).Tanh()
			all = append(all, h)
		}
		return ce(r.C.Forward(tensor.Concat(0, all...)).Transpose(0, 1), clip(r.ids))
	},
	"RNN, time-major, flat": func(r *rows) nn.T {
		x := r.text().Transpose(0, 1)
		h := x.Slice(0, 0, 1).Reshape(-1, 8)
		all := []nn.T{h}
		for i := 1; i < words; i++ {
			h = x.Slice(0, i, i+1).Reshape(-1, 8).Add(h).Tanh()
			all = append(all, h)
		}
		logits := r.C.Forward(tensor.Concat(0, all...))
		return ce(logits, r.tape.Input(clip(r.ids)).Transpose(0, 1).Reshape(-1))
	},
	"RNN, losses of steps": func(r *rows) nn.T {
		x, y, h := r.text(), clip(r.ids), r.tape.Zeros(tensor.Float64, r.n, 8)
		loss := r.tape.Zeros(tensor.Float64)
		for i := range words {
			h = x.Slice(1, i, i+1).Reshape(-1, 8).Add(h).Tanh()
			loss = loss.Add(ce(r.C.Forward(h), y.Slice(1, i, i+1).Reshape(-1)))
		}
		return loss.Scale(1.0 / words)
	},
	"LSTM gates": func(r *rows) nn.T {
		g := r.B.Forward(r.hidden()).Split(1, 4, 4, 4)
		c := g[0].Sigmoid().Mul(g[1].Tanh())
		return ce(r.C.Forward(tensor.Concat(1, c.Tanh().Mul(g[2].Sigmoid()), g[0])), r.y)
	},
	"last word by length": func(r *rows) nn.T {
		at := make([]int64, r.n)
		for i := range at {
			at[i] = int64((r.lo + i) % words)
		}
		idx := r.rowed(tensor.FromSlice(at, r.n)).Reshape(-1, 1, 1).Broadcast(r.n, 1, 8)
		return ce(r.C.Forward(r.text().Gather(1, idx).Reshape(-1, 8)), r.y)
	},
	"last word by flat index": func(r *rows) nn.T {
		at := make([]int64, r.n)
		for i := range at {
			at[i] = int64(i*words + (r.lo+i)%words)
		}
		return ce(r.C.Forward(tensor.RowsLike(tensor.Embedding(r.text().Reshape(-1, 8), r.rowed(tensor.FromSlice(at, r.n))), r.in())), r.y)
	},
	"attention": func(r *rows) nn.T { return ce(r.C.Forward(attend(r, r.text(), 2)), clip(r.ids)) },
	"attention, by a mask": func(r *rows) nn.T {
		x, mask := r.text(), make([]float64, words*words)
		for i := range mask {
			if i%words > i/words {
				mask[i] = -1e9
			}
		}
		s := tensor.MatMul(x, x, false, true).Add(r.tape.Input(tensor.FromSlice(mask, words, words)))
		return ce(r.C.Forward(tensor.MatMul(s.Softmax(), x, false, false)), clip(r.ids))
	},
	"attention, padding mask": func(r *rows) nn.T {
		x := r.text()
		zero := r.tape.Input(tensor.FromSlice([]int64{0}, 1))
		hide := r.tape.Input(r.ids).Eq(zero).Reshape(-1, 1, words)
		s := tensor.Where(hide, r.tape.Input(tensor.FromSlice([]float64{-1e9}, 1)), tensor.MatMul(x, x, false, true))
		return ce(r.C.Forward(tensor.MatMul(s.Softmax(), x, false, false)), clip(r.ids))
	},
	"attention, flat heads": func(r *rows) nn.T {
		x := r.text().Reshape(-1, words, 2, 4).Permute(0, 2, 1, 3).Reshape(-1, words, 4)
		y := tensor.MatMul(tensor.MatMul(x, x, false, true).Scale(0.5).SoftmaxCausal(), x, false, false)
		return ce(r.C.Forward(y.Reshape(-1, 2, words, 4).Permute(0, 2, 1, 3).Reshape(-1, words, 8)), clip(r.ids))
	},
	"attention, packed": func(r *rows) nn.T {
		x, docs := r.text(), make([]int64, r.n*words)
		for i := range docs {
			docs[i] = int64(i % words / (2 + (r.lo+i/words)%3))
		}
		d := tensor.FromSlice(docs, r.n, words)
		y := tensor.CrossAttention(x, x, x, 4, tensor.AttentionOptions{Causal: true, QueryDocs: d, KeyDocs: d})
		return ce(r.C.Forward(y), clip(r.ids))
	},
	"attention over memory": func(r *rows) nn.T {
		q, m := r.hidden(), r.tape.Use(r.Code)
		return ce(r.C.Forward(tensor.MatMul(tensor.MatMul(q, m, false, true).Softmax(), m, false, false)), r.y)
	},
	"pooling with a learned query": func(r *rows) nn.T {
		x := r.text()
		p := tensor.MatMul(x, r.tape.Use(r.Gain).Reshape(8, 1), false, false).Reshape(-1, 1, words).Softmax()
		return ce(r.C.Forward(tensor.MatMul(p, x, false, false).Reshape(-1, 8)), r.y)
	},
	"bag of words":      func(r *rows) nn.T { return ce(r.C.Forward(r.text().Sum(1)), r.y) },
	"bag of words, max": func(r *rows) nn.T { m, _ := r.text().Max(1); return ce(r.C.Forward(m), r.y) },
	"bag of words, flat": func(r *rows) nn.T {
		x := r.Words.Forward(r.tape.Input(r.ids).Reshape(-1))
		return ce(r.C.Forward(x.Reshape(r.n, words, 8).Mean(1)), r.y)
	},
	"positions": func(r *rows) nn.T {
		at := r.At.Forward(r.tape.Arange(tensor.Int64, 0, words, 1))
		return ce(r.C.Forward(r.text().Add(at)), clip(r.ids))
	},
	"positions, broadcast": func(r *rows) nn.T {
		at := r.tape.Use(r.At.W).Reshape(1, words, 8).Broadcast(r.n, words, 8)
		return ce(r.C.Forward(r.text().Add(at).Reshape(-1, 8)), clip(r.ids).Reshape(-1))
	},
	"positions of sines": func(r *rows) nn.T {
		sines := make([]float64, words*8)
		for i := range sines {
			sines[i] = math.Sin(float64(i/8) / math.Pow(100, float64(i%8)/8))
		}
		return ce(r.C.Forward(r.text().Add(r.tape.Input(tensor.FromSlice(sines, words, 8)))), clip(r.ids))
	},
	"GroupNorm by hand": func(r *rows) nn.T {
		x := r.hidden().Reshape(-1, 2, 4)
		x = x.Sub(x.Mean(2).Reshape(-1, 2, 1))
		x = x.Div(x.Square().Mean(2).Affine(1, 1e-5).Sqrt().Reshape(-1, 2, 1)).Reshape(-1, 8)
		return ce(r.C.Forward(x.Mul(r.tape.Use(r.Gain)).Add(r.tape.Use(r.Bias))), r.y)
	},
	"LayerNorm over flat groups": func(r *rows) nn.T {
		x := tensor.LayerNorm(r.hidden().Reshape(-1, 4), r.tape.Use(r.Gain).Slice(0, 0, 4), r.tape.Use(r.Bias).Slice(0, 0, 4), 1e-5)
		return ce(r.C.Forward(x.Reshape(-1, 8)), r.y)
	},
	"LayerNorm": func(r *rows) nn.T {
		return ce(r.C.Forward(tensor.LayerNorm(r.hidden(), r.tape.Use(r.Gain), r.tape.Use(r.Bias), 1e-5)), r.y)
	},
	"cosines": func(r *rows) nn.T {
		h, w := r.hidden(), r.tape.Use(r.Code)
		h = h.Div(h.Square().Sum(1).Sqrt().Reshape(r.n, 1))
		return ce(tensor.MatMul(h, w.Div(w.Square().Sum(1).Sqrt().Reshape(4, 1)), false, true).Scale(5), fours(r))
	},
	"image": func(r *rows) nn.T {
		x := r.Conv.Forward(r.in().Reshape(-1, 1, 3, 4)).ReLU()
		return ce(r.C.Forward(x.Reshape(-1, 24).Slice(1, 0, 8)), r.y)
	},
	"image, pooled": func(r *rows) nn.T {
		x := r.Conv.Forward(r.in().Reshape(-1, 1, 3, 4)).Mean(2, 3)
		return ce(r.C.Forward(tensor.Concat(1, x, x, x, x)), r.y)
	},
	"image, raw reshape": func(r *rows) nn.T {
		x := r.Conv.Forward(r.tape.Input(r.x.Reshape(r.n, 1, 3, 4))).Reshape(-1, 2, 12)
		return ce(r.C.Forward(x.Mean(1).Slice(1, 0, 8)), r.y)
	},
	"image, channels last": func(r *rows) nn.T {
		x := r.tape.Input(r.x.Reshape(r.n, 3, 4, 1).Permute(0, 3, 1, 2))
		return ce(r.C.Forward(r.Conv.Forward(x).Permute(0, 2, 3, 1).Reshape(-1, 24).Slice(1, 0, 8)), r.y)
	},
	"statistics of channels": func(r *rows) nn.T {
		x := r.Conv.Forward(r.in().Reshape(-1, 1, 3, 4)).Reshape(-1, 2, 12)
		mean := x.Mean(2)
		std := x.Sub(mean.Reshape(-1, 2, 1)).Square().Mean(-1).Affine(1, 1e-3).Sqrt()
		return ce(r.C.Forward(tensor.Concat(1, mean, std, mean, std)), r.y)
	},
	"patches": func(r *rows) nn.T {
		x := r.in().Reshape(-1, 1, 2, 2, 3).Permute(0, 2, 1, 3, 4).Reshape(r.n, 2, 6)
		return nn.GlobalMean(r.B.Forward(tensor.Concat(2, x, x.Slice(2, 0, 2))).Square())
	},
	"upscaling": func(r *rows) nn.T {
		x := r.in().Reshape(-1, 3, 1, 4).Broadcast(r.n, 3, 2, 4).Reshape(-1, 24).Slice(1, 0, 12)
		return ce(r.C.Forward(r.A.Forward(x)), r.y)
	},
	"a leading dimension": func(r *rows) nn.T {
		x := r.in().Reshape(1, r.n, 12)
		return ce(r.C.Forward(r.A.Forward(x).Tanh()).Reshape(r.n, 5), r.y)
	},
	"a leading dimension to the end": func(r *rows) nn.T {
		return nn.GlobalMean(r.D.Forward(r.A.Forward(r.in().Reshape(1, r.n, 12))).Square())
	},
	"trailing dimensions": func(r *rows) nn.T {
		return nn.MSE(r.D.Forward(r.hidden().Reshape(r.n, 1, 8)).Reshape(-1), r.tape.Input(r.w).Reshape(-1))
	},
	"transposed features": func(r *rows) nn.T {
		return nn.GlobalMean(tensor.MatMul(r.tape.Use(r.C.W), r.hidden(), false, true).Transpose(0, 1).LogSumExp())
	},
	"by MatMul": func(r *rows) nn.T { return ce(tensor.MatMul(r.hidden(), r.tape.Use(r.C.W), false, true), r.y) },
	"two losses": func(r *rows) nn.T {
		h := r.hidden()
		return ce(r.C.Forward(h), r.y).Add(nn.MSE(r.D.Forward(h), r.w).Scale(0.3))
	},
	"losses weighted by a learned factor": func(r *rows) nn.T {
		h, s := r.hidden(), r.tape.Use(r.Bias).Slice(0, 0, 1)
		l := tensor.CrossEntropy(r.C.Forward(h), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Mul(s.Neg().Exp()).Add(s))
	},
	"weight decay by hand": func(r *rows) nn.T {
		w := r.tape.Use(r.C.W).Square().Sum().Scale(1e-2)
		l := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(l.Add(w))
	},
	"penalty of a slope": func(r *rows) nn.T {
		x := r.in()
		d := r.D.Forward(r.A.Forward(x.Affine(1, 0.1)).Tanh()).Sub(r.D.Forward(r.A.Forward(x).Tanh())).Scale(10)
		return nn.GlobalMean(d.Abs().Affine(1, -1).Square())
	},
	"penalty of norms": func(r *rows) nn.T { return nn.GlobalMean(r.hidden().Square().Sum(1).Sqrt().Affine(1, -1).Square()) },
	"interpolated": func(r *rows) nn.T {
		e, a := r.tape.Input(r.w).Sigmoid(), r.in()
		b := r.B.Forward(r.tape.Input(r.noise)).Detach()
		return nn.GlobalMean(r.D.Forward(r.A.Forward(a.Mul(e).Add(b.Mul(e.Affine(-1, 1)))).Tanh()))
	},
	"mixup": func(r *rows) nn.T {
		l, q := r.tape.Input(r.w).Sigmoid(), tensor.OneHot(r.tape.Input(r.y), 5, tensor.Float64)
		p := r.in().Scale(0.3).Mul(l).Add(r.in().Mul(l.Affine(-1, 1)))
		return ce(r.C.Forward(r.A.Forward(p)), q.Mul(l).Add(l.Affine(-1, 1).Scale(0.2)))
	},
	"mixup, losses": func(r *rows) nn.T {
		l := r.tape.Input(r.w).Sigmoid().Reshape(-1)
		a := tensor.CrossEntropy(r.C.Forward(r.hidden()), r.y, tensor.CrossEntropyOptions{PerRow: true})
		b := tensor.CrossEntropy(r.C.Forward(r.hidden()), fours(r), tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(a.Mul(l).Add(b.Mul(l.Affine(-1, 1))))
	},
	"metrics": func(r *rows) nn.T {
		logits, y := r.C.Forward(r.hidden()), r.tape.Input(r.y)
		hits := logits.ArgMax(1).Eq(y).Cast(tensor.Float64).Mean().Item()
		_, top := logits.Detach().TopK(2)
		hits += top.Eq(y.Reshape(-1, 1)).Cast(tensor.Float64).Sum(1).Mean().Item() + nn.Hits(logits, r.y)
		return ce(logits, r.y).Add(nn.GlobalMean(logits).Scale(hits * 0))
	},
	"metrics, raw labels": func(r *rows) nn.T {
		logits := r.C.Forward(r.hidden())
		hits := logits.ArgMax(-1).Eq(r.y).Cast(tensor.Float64).Sum().Item()
		entropy := logits.Softmax().Mul(logits.LogSoftmax()).Sum(1).Mean().Item()
		return ce(logits, r.y).Scale(1 + 0*hits + 0*entropy)
	},
	"policy gradient": func(r *rows) nn.T {
		logp := r.C.Forward(r.hidden()).LogSoftmax()
		picked := logp.Gather(1, r.tape.Input(r.y).Reshape(-1, 1)).Mul(r.tape.Input(r.w))
		return nn.GlobalMean(picked.Neg()).Add(nn.GlobalMean(logp.Exp().Mul(logp).Sum(1)).Scale(0.01))
	},
	"PPO": func(r *rows) nn.T {
		logp := r.C.Forward(r.hidden()).LogSoftmax().Gather(1, r.tape.Input(r.y).Reshape(r.n, 1)).Reshape(-1)
		ratio, adv := logp.Sub(logp.Detach().Affine(1, 0.1)).Exp(), r.tape.Input(r.w).Reshape(-1)
		return nn.GlobalMean(ratio.Mul(adv).Minimum(ratio.Clamp(0.8, 1.2).Mul(adv)).Neg())
	},
	"actor and critic": func(r *rows) nn.T {
		h, ret := r.hidden(), r.tape.Input(r.w)
		v := r.D.Forward(h)
		adv := ret.Sub(v.Detach())
		logp := tensor.CrossEntropy(r.C.Forward(h), r.y, tensor.CrossEntropyOptions{PerRow: true})
		return nn.GlobalMean(logp.Mul(adv.Reshape(-1))).Add(nn.MSE(v, ret))
	},
	"Q-learning": func(r *rows) nn.T {
		q, y := r.C.Forward(r.hidden()), r.tape.Input(r.y)
		best, _ := r.C.Forward(r.A.Forward(r.in().Scale(0.9))).Detach().Max(1)
		want := best.Scale(0.9).Add(r.tape.Input(r.w).Reshape(-1))
		return nn.MSE(q.Gather(1, y.Reshape(-1, 1)).Reshape(-1), want)
	},
	"VQ": func(r *rows) nn.T {
		z, code := r.hidden(), r.tape.Use(r.Code)
		d := z.Square().Sum(1).Reshape(-1, 1).Sub(tensor.MatMul(z, code, false, true).Scale(2)).Add(code.Square().Sum(1))
		q := tensor.Embedding(code, d.Detach().Neg().ArgMax(1))
		out := z.Add(q.Sub(z).Detach())
		return nn.MSE(r.B.Forward(out), r.x).Add(nn.MSE(q, z.Detach())).Add(nn.MSE(z, q.Detach()).Scale(0.25))
	},
	"VQ, by OneHot": func(r *rows) nn.T {
		z, code := r.hidden(), r.tape.Use(r.Code)
		_, at := z.Reshape(-1, 1, 8).Sub(code.Reshape(1, 4, 8)).Square().Sum(2).Min(1)
		q := tensor.MatMul(tensor.OneHot(at, 4, tensor.Float64), code, false, false)
		return nn.GlobalMean(r.B.Forward(z.Add(q.Sub(z).Detach())).Square()).Add(nn.MSE(q, z.Detach()))
	},
	"logits in chunks of rows": func(r *rows) nn.T {
		h, loss := r.hidden(), r.tape.Zeros(tensor.Float64)
		for lo := 0; lo == 0 || lo < r.n; lo += 2 {
			hi := min(lo+2, r.n)
			o := tensor.CrossEntropyOptions{Count: float64(r.total)}
			loss = loss.Add(tensor.CrossEntropy(r.C.Forward(h.Slice(0, lo, hi)), r.y.Slice(0, lo, hi), o))
		}
		return loss
	},
	"logits in chunks, per row": func(r *rows) nn.T {
		h, y := r.text().Reshape(-1, 8), r.tape.Input(clip(r.ids)).Reshape(-1)
		var all []nn.T
		for lo := 0; lo < r.n*words; lo += 5 {
			hi := min(lo+5, r.n*words)
			all = append(all, tensor.CrossEntropy(r.C.Forward(h.Slice(0, lo, hi)), y.Slice(0, lo, hi), tensor.CrossEntropyOptions{PerRow: true}))
		}
		if all == nil {
			return h.Sum()
		}
		return tensor.Concat(0, all...).Sum().Scale(1 / float64(r.total*words))
	},
	"logits in chunks, sums": func(r *rows) nn.T {
		h, loss := r.hidden(), r.tape.Zeros(tensor.Float64)
		for i := range max(r.n, 1) {
			l := tensor.CrossEntropy(r.C.Forward(h.Slice(0, i, min(i+1, r.n))), r.y.Slice(0, i, min(i+1, r.n)), tensor.CrossEntropyOptions{PerRow: true})
			loss = loss.Add(l.Sum())
		}
		return loss.Scale(1 / float64(r.total))
	},
	"Checkpoint": func(r *rows) nn.T {
		h := r.tape.Checkpoint(func(in ...nn.T) nn.T { return attend(r, in[0].Dropout(0.1, 4), 4) }, r.text())
		return ce(r.C.Forward(h), clip(r.ids))
	},
	"Checkpoint of a loss": func(r *rows) nn.T {
		return r.tape.Checkpoint(func(in ...nn.T) nn.T { return ce(r.C.Forward(in[0].Tanh()), r.y) }, r.hidden())
	},
	"Scope": func(r *rows) nn.T {
		h := r.tape.Scope(func(in ...nn.T) nn.T { return attend(r, in[0], 4).Slice(1, 2, 5).Sum(1) }, r.text())
		return ce(r.C.Forward(h), r.y)
	},
	"residual, dropped rows": func(r *rows) nn.T {
		h := r.hidden()
		keep := h.Detach().Slice(1, 0, 1).Affine(0, 1).Dropout(0.5, 9)
		return ce(r.C.Forward(h.Add(r.B.Forward(h).Slice(1, 0, 8).Mul(keep))), r.y)
	},
	"mixture of experts, dense": func(r *rows) nn.T {
		h := r.hidden()
		g := r.C.Forward(h).Softmax()
		e := r.B.Forward(h).Reshape(-1, 4, 3)
		out := tensor.MatMul(g.Slice(1, 0, 4).Reshape(-1, 1, 4), e, false, false).Reshape(-1, 3)
		return nn.GlobalMean(out.Square().Sum(-1))
	},
	"top-k gate": func(r *rows) nn.T {
		v, at := r.C.Forward(r.hidden()).TopK(2)
		e := tensor.OneHot(at, 5, tensor.Float64).Mul(v.Softmax().Reshape(-1, 2, 1)).Sum(1)
		return nn.GlobalMean(e.Mul(r.C.Forward(r.hidden())).Sum(1))
	},
	"ranking, pairs in a row": func(r *rows) nn.T {
		s := r.D.Forward(r.text()).Reshape(-1, words)
		d := s.Reshape(-1, words, 1).Sub(s.Reshape(-1, 1, words))
		return nn.GlobalMean(d.Affine(-1, 1).ReLU())
	},
	"triplets": func(r *rows) nn.T {
		a, p, n := r.hidden(), r.A.Forward(r.in().Scale(1.1)), r.A.Forward(r.B.Forward(r.tape.Input(r.noise)))
		return nn.GlobalMean(a.Sub(p).Square().Sum(1).Sub(a.Sub(n).Square().Sum(1)).Affine(1, 1).ReLU())
	},
	"Huber": func(r *rows) nn.T {
		d := r.D.Forward(r.hidden()).Sub(r.tape.Input(r.w)).Abs()
		one := r.tape.Input(tensor.FromSlice([]float64{1}, 1))
		return nn.GlobalMean(tensor.Where(d.Lt(one), d.Square().Scale(0.5), d.Affine(1, -0.5)))
	},
	"normalized inputs": func(r *rows) nn.T {
		mean := tensor.FromSlice([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12)
		return ce(r.C.Forward(r.A.Forward(r.in().Sub(r.tape.Input(mean)).Scale(0.1))), r.y)
	},
	"quantiles": func(r *rows) nn.T {
		q := r.tape.Input(tensor.FromSlice([]float64{0.1, 0.3, 0.5, 0.7, 0.9}, 1, 5))
		d := r.tape.Input(r.w).Sub(r.C.Forward(r.hidden()))
		return nn.GlobalMean(d.Mul(q).Maximum(d.Mul(q.Affine(1, -1))))
	},
	"sum of squares, scaled": func(r *rows) nn.T {
		return r.D.Forward(r.hidden()).Sub(r.tape.Input(r.w)).Square().Sum().Scale(1 / float64(r.total))
	},
	"mean of means of rows": func(r *rows) nn.T { return nn.GlobalMean(r.hidden().Square().Mean(1)) },
	"cumulative hazard": func(r *rows) nn.T {
		h := r.C.Forward(r.hidden()).Sigmoid().CumSum(1).Gather(1, r.tape.Input(r.y).Reshape(-1, 1))
		return nn.GlobalMean(h.Add(r.tape.Input(r.w)))
	},
	"sorted features": func(r *rows) nn.T { s, _ := r.hidden().Sort(1, true); return ce(r.C.Forward(s), r.y) },
	"views in one batch": func(r *rows) nn.T {
		h := r.A.Forward(tensor.Concat(0, r.in(), r.in().Scale(1.1)))
		a, b := h.Slice(0, 0, r.n), h.Slice(0, r.n, 2*r.n)
		return nn.GlobalMean(a.Sub(b).Square().Sum(1))
	},
	"views in one batch, labels twice": func(r *rows) nn.T {
		y := r.tape.Input(r.y)
		return ce(r.C.Forward(r.A.Forward(tensor.Concat(0, r.in(), r.in().Scale(1.1)))), tensor.Concat(0, y, y))
	},
	"a class token": func(r *rows) nn.T {
		x := tensor.Concat(1, r.tape.Use(r.Gain).Reshape(1, 1, 8).Broadcast(r.n, 1, 8), r.text())
		p := tensor.MatMul(x, x, false, true).Softmax()
		return ce(r.C.Forward(tensor.MatMul(p, x, false, false).Slice(1, 0, 1).Reshape(-1, 8)), r.y)
	},
	"convolution over time by shifts": func(r *rows) nn.T {
		x := r.text().Pad(1, 1, 1)
		y := x.Slice(1, 0, words).Add(x.Slice(1, 1, words+1).Scale(2)).Add(x.Slice(1, 2, words+2))
		return ce(r.C.Forward(y.ReLU()), clip(r.ids))
	},
	"mean of words that count": func(r *rows) nn.T {
		zero := r.tape.Input(tensor.FromSlice([]int64{0}, 1))
		mask := r.tape.Input(r.ids).Ne(zero).Cast(tensor.Float64).Reshape(-1, words, 1)
		return ce(r.C.Forward(r.text().Mul(mask).Sum(1).Div(mask.Sum(1).Affine(1, 1e-3))), r.y)
	},
	"logits of chunks, joined": func(r *rows) nn.T {
		var all []nn.T
		for lo := 0; lo == 0 || lo < r.n; lo += 3 {
			all = append(all, r.C.Forward(r.hidden().Slice(0, lo, min(lo+3, r.n))))
		}
		return ce(tensor.Concat(0, all...), r.y)
	},
	"heads, joined": func(r *rows) nn.T {
		var all []nn.T
		for _, x := range r.text().Split(2, 2, 2, 4) {
			all = append(all, tensor.MatMul(tensor.MatMul(x, x, false, true).Softmax(), x, false, false))
		}
		return ce(r.C.Forward(tensor.Concat(-1, all...)), clip(r.ids))
	},
	"ensemble, stacked": func(r *rows) nn.T {
		h := r.hidden()
		a, b := r.C.Forward(h).Reshape(-1, 1, 5), r.C.Forward(h.Square()).Reshape(-1, 1, 5)
		return ce(tensor.Concat(1, a, b).Mean(1), r.y)
	},
	"temperature": func(r *rows) nn.T {
		return ce(r.C.Forward(r.hidden()).Mul(r.tape.Use(r.Bias).Slice(0, 0, 1).Exp()), r.y)
	},
	"outer products": func(r *rows) nn.T {
		h := r.hidden()
		o := tensor.MatMul(h.Reshape(-1, 8, 1), h.Reshape(-1, 1, 8), false, false)
		return ce(r.C.Forward(o.Reshape(-1, 64).Slice(1, 4, 12)), r.y)
	},
	"weights made for each row": func(r *rows) nn.T {
		w := r.B.Forward(r.text().Reshape(-1, 8)).Reshape(-1, words, 12)
		return nn.GlobalMean(tensor.MatMul(w, r.in().Reshape(-1, 12, 1), false, false).Tanh())
	},
	"bilinear": func(r *rows) nn.T {
		a, b := r.hidden(), r.text().Mean(1)
		return nn.MSE(tensor.MatMul(a, r.tape.Use(r.B.W).Slice(0, 0, 8), false, false).Mul(b).Sum(1).Reshape(-1, 1), r.w)
	},
	"factorization machine": func(r *rows) nn.T {
		x := r.text()
		return nn.MSE(x.Sum(1).Square().Sub(x.Square().Sum(1)).Sum(1).Scale(0.05).Reshape(-1, 1), r.w)
	},
	"time loop, stacked in front": func(r *rows) nn.T {
		x := r.text().Permute(1, 0, 2)
		var all []nn.T
		for i := range words {
			all = append(all, x.Slice(0, i, i+1).Scale(float64(i)).Tanh())
		}
		return nn.GlobalMean(tensor.Concat(0, all...).Square().Sum(0).Sum(1))
	},
	"flat over time": func(r *rows) nn.T {
		x := r.text().Permute(1, 0, 2).Reshape(-1, 8)
		h := r.B.Forward(x).Slice(1, 0, 8).Tanh().Reshape(words, -1, 8).Mean(0)
		return ce(r.C.Forward(h), r.y)
	},
	"losses of steps, time-major": func(r *rows) nn.T {
		x, y, loss := r.text().Permute(1, 0, 2), r.tape.Input(clip(r.ids)).Transpose(0, 1), r.tape.Zeros(tensor.Float64, 1)
		for i := range words {
			l := ce(r.C.Forward(x.Slice(0, i, i+1).Reshape(-1, 8)), y.Slice(0, i, i+1).Reshape(-1))
			loss = loss.Add(l)
		}
		return loss.Sum()
	},
	"discounts": func(r *rows) nn.T {
		g := r.tape.Input(tensor.FromSlice([]float64{1, 0.9, 0.81, 0.7, 0.6, 0.5}, words))
		return nn.GlobalMean(r.D.Forward(r.text()).Reshape(-1, words).Mul(g).Sum(1).Sub(r.tape.Input(r.w).Reshape(-1)).Square())
	},
	"discounts by MatMul": func(r *rows) nn.T {
		g := r.tape.Input(tensor.FromSlice([]float64{1, 0.9, 0.81, 0.7, 0.6, 0.5}, words, 1))
		return nn.GlobalMean(tensor.MatMul(r.D.Forward(r.text()).Reshape(-1, words), g, false, false).Sub(r.tape.Input(r.w)).Square())
	},
	"cells by one-hot position": func(r *rows) nn.T {
		at := tensor.OneHot(r.tape.Arange(tensor.Int64, 0, words, 1), 8, tensor.Float64)
		return ce(r.C.Forward(r.text().Add(at)), clip(r.ids))
	},
	"counts of words": func(r *rows) nn.T {
		c := r.tape.Zeros(tensor.Float64, r.n, 8).ScatterAdd(1, r.tape.Input(r.ids), r.text().Sum(2))
		return ce(r.C.Forward(c), r.y)
	},
	"LSTM, cells of zeros": func(r *rows) nn.T {
		x, h, c := r.text(), r.tape.Zeros(tensor.Float64, r.n, 8), r.tape.Zeros(tensor.Float64, r.n, 8)
		for i := range words {
			g := r.B.Forward(x.Slice(1, i, i+1).Reshape(-1, 8).Add(h))
			c = c.Mul(g.Slice(1, 0, 8).Sigmoid()).Add(g.Slice(1, 4, 12).Tanh())
			h = c.Tanh()
		}
		return ce(r.C.Forward(h), r.y)
	},
	"RNN, input and state side by side": func(r *rows) nn.T {
		x, h := r.text(), r.tape.Zeros(tensor.Float64, r.n, 4)
		for i := range words {
			h = r.A.Forward(tensor.Concat(1, x.Slice(1, i, i+1).Reshape(-1, 8), h)).Tanh().Slice(1, 0, 4)
		}
		return ce(r.C.Forward(tensor.Concat(1, h, h)), r.y)
	},
	"state by hand, side by side": func(r *rows) nn.T {
		x := tensor.Concat(1, r.tape.Input(r.filled(0, r.n, 4)), r.hidden())
		return ce(r.C.Forward(r.A.Forward(x)), r.y)
	},
	"entropy of the mean": func(r *rows) nn.T { // over all ranks
		p := r.C.Forward(r.hidden()).Softmax().Sum(0).Scale(1 / float64(r.total))
		p = r.tape.Apply(&autograd.Sum{Group: r.group}, p)
		return p.Mul(p.Log()).Sum()
	},
	"two batches": func(r *rows) nn.T { // the second has two rows on each rank
		n := 2 * 6 / r.group.Size()
		x := tensor.FromSlice(make([]float64, 12*12), 12, 12)
		for i := range 144 {
			tensor.Data[float64](x)[i] = math.Cos(float64(i))
		}
		u := r.tape.Input(x.Slice(0, n*r.group.Rank(), n*r.group.Rank()+n).WithRows(r.group.Rows(n*r.group.Rank(), 12)))
		h, v := r.A.Forward(r.in()), r.A.Forward(u)
		return ce(r.C.Forward(h), r.y).Add(nn.GlobalMean(v.Square())).Add(nn.MSE(r.D.Forward(h), r.w))
	},
	"first half of the words": func(r *rows) nn.T {
		return tensor.CrossEntropy(r.C.Forward(r.text().Slice(1, 0, 3)), clip(r.ids).Slice(1, 0, 3), tensor.CrossEntropyOptions{})
	},
	"groups": func(r *rows) nn.T {
		n := 2 * 6 / r.group.Size()
		x := tensor.FromSlice(make([]float64, 12*12), 12, 12)
		for i := range 144 {
			tensor.Data[float64](x)[i] = math.Cos(float64(i))
		}
		rows := r.group.Rows(n*r.group.Rank(), 12)
		rows.Group = 2
		u := r.tape.Input(x.Slice(0, n*r.group.Rank(), n*r.group.Rank()+n).WithRows(rows))
		s := r.D.Forward(r.A.Forward(u).Tanh()).Reshape(-1, 2)
		y := tensor.FromSlice(make([]int64, n/2), n/2).WithRows(r.group.Rows(n/2*r.group.Rank(), 6))
		adv := s.Sub(s.Mean(1).Reshape(-1, 1))
		return ce(s, y).Add(nn.GlobalMean(adv.Square())).Add(nn.GlobalMean(s.LogSoftmax().Slice(1, 0, 1)))
	},
	"a sum over rows by Sum": func(r *rows) nn.T {
		mean := r.tape.Apply(&autograd.AllReduce{Group: r.group}, r.hidden().Sum(0)).Scale(1 / float64(r.total))
		return nn.GlobalMean(r.hidden().Sub(mean).Square())
	},
}

// fours are labels below 4.
func fours(r *rows) tensor.Tensor {
	x := append([]int64(nil), tensor.Data[int64](r.y)...)
	for i := range x {
		x[i] %= 4
	}
	return tensor.FromSlice(x, r.n).WithRows(r.y.Rows())
}

func attend(r *rows, x nn.T, heads int) nn.T {
	b, d := x.Dim(0), 8/heads
	split := func(w *nn.Linear) nn.T {
		return w.Forward(x).Slice(2, 0, 8).Reshape(b, words, heads, d).Permute(0, 2, 1, 3)
	}
	q, k, v := split(r.B), split(r.B).Scale(0.5), x.Reshape(b, words, heads, d).Permute(0, 2, 1, 3)
	p := tensor.MatMul(q, k, false, true).Scale(1/math.Sqrt(float64(d))).SoftmaxCausal().Dropout(0.1, 2)
	return tensor.MatMul(p, v, false, false).Permute(0, 2, 1, 3).Reshape(b, words, 8)
}

// clip makes labels of words.
func clip(ids tensor.Tensor) tensor.Tensor {
	x := append([]int64(nil), tensor.Data[int64](ids)...)
	for i := range x {
		x[i] %= 5
	}
	out := tensor.FromSlice(x, ids.Shape().Dims...)
	if r := ids.Rows(); r.Stride != 0 {
		out = out.WithRows(r)
	}
	return out
}

func trainRight(ranks int, loss func(r *rows) nn.T) (out []float64, err error) {
	err = dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		model := newParts()
		params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.Float64, AllowUnused: true})
		if err != nil {
			return err
		}
		opt, tape := optim.NewSGD(params, optim.SGDConfig{LR: 0.05}), tensor.NewTape(r.Device)
		for step, total := range []int{7, 3, 2} {
			tape.SetStep(step, 0)
			b := model.split(tape, r.World, total, step)
			if err := tensor.Try(func() { tape.Backward(loss(b)) }); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			tape.Reset()
		}
		if r.World.Rank() == 0 {
			for _, p := range params {
				out = append(out, tensor.Floats(p.Value)...)
			}
		}
		return nil
	})
	return out, err
}

// Programs that a user of PyTorch would write, and that are right, run and compute on ranks what one rank does.
func TestRightProgramsRun(t *testing.T) {
	for name, loss := range right {
		t.Run(name, func(t *testing.T) {
			want, err := trainRight(1, loss)
			require.NoError(t, err)
			for _, ranks := range []int{2, 3} {
				got, err := trainRight(ranks, loss)
				require.NoError(t, err, ranks)
				require.InDeltaSlice(t, want, got, 1e-9, ranks)
			}
		})
	}
}
