package ops

import "github.com/ringo-ml/ringo/tensor"

// Unpadded says how sequences of several lengths lie one behind the other, without the padding that a batch has: each token has a row.
// Layers that work on each token alone then compute no padding, and attention takes AttentionOptions.Unpadded (flash-attn's attention of
// variable lengths).
type Unpadded struct {
	rows    tensor.Tensor // the tokens' places in the batch
	back    tensor.Tensor // [batch, time]: the row of each place, and for padding that of the last token
	starts  tensor.Tensor // [batch+1]: the first row of each sequence, and the number of rows
	lengths tensor.Tensor
	time    int
}

// Unpad returns how sequences x [batch, time], such as the numbers of tokens, with these lengths [batch], Int64 or Int32, lie without
// padding, or nil where that has no gain: on devices without host memory, which would have to wait for the lengths, and in captured steps,
// whose shapes stay. A sequence without tokens keeps one, which is padding. lengths that belong to no rows are those of x's.
func Unpad(x, lengths tensor.Tensor) *Unpadded {
	t := OpCrossAttention.Tape(x, lengths)
	if x.NDim() != 2 {
		OpCrossAttention.Fail([]tensor.Tensor{x}, "sequences with padding are [batch, time]")
	}
	time := x.Dim(1)
	if !t.Device().Host() || t.Recording() != nil || time == 0 {
		return nil
	}
	lengths = mask(t, "lengths", t.TargetsOf(x, lengths), x.Dim(0))
	n := tensor.Data[int64](lengths)
	made := func(dims ...int) (tensor.Tensor, []int64) {
		x := t.Keep(t.New(tensor.Int64, dims...))
		t.SameTypes(x, lengths)
		return x, tensor.Data[int64](x)
	}
	u := &Unpadded{lengths: lengths, time: time}
	var starts, rows, back []int64
	u.starts, starts = made(len(n) + 1)
	starts[0] = 0
	for i, v := range n {
		if v < 0 || v > int64(time) {
			OpCrossAttention.Fail([]tensor.Tensor{lengths}, "the length of sequence %d is %d, not in [0,%d]", i, v, time)
		}
		starts[i+1] = starts[i] + max(v, 1)
	}
	u.rows, rows = made(int(starts[len(n)]))
	u.back, back = made(len(n), time)
	for i := range n {
		for k := range int64(time) {
			row := min(starts[i]+k, starts[i+1]-1)
			back[int64(i*time)+k], rows[row] = row, int64(i*time)+row-starts[i]
		}
	}
	t.SamePlaces(u.back, lengths) // which have the rows in dimension 0
	t.LookupTypes(OpEmbedding, u.rows, u.back.Reshape(-1), u.rows)
	return u
}

// Remove returns the tokens [tokens, features] of x [batch, time, features].
func (u *Unpadded) Remove(x tensor.Tensor) tensor.Tensor {
	b := len(tensor.Data[int64](u.starts)) - 1
	if x.NDim() != 3 || x.Dim(0) != b || x.Dim(1) != u.time {
		OpEmbedding.Fail([]tensor.Tensor{x}, "padding is removed from [%d, %d, features]", b, u.time)
	}
	y := Embedding(x.Reshape(b*u.time, x.Dim(2)), u.rows)
	OpEmbedding.Tape(x).MeetTypes(OpEmbedding, y, y, u.rows)
	return y
}

// Restore returns x [tokens, features] as [batch, time, features]. What is at padding means nothing.
func (u *Unpadded) Restore(x tensor.Tensor) tensor.Tensor {
	t := OpEmbedding.Tape(x)
	u.mustHold(OpEmbedding, x)
	y := Embedding(x, u.back)
	t.SamePlaces(y, u.lengths)
	t.SameTypes(y, x)
	t.MeetTypes(OpEmbedding, y, x, u.rows) // not in another order
	return y
}

// mustHold fails unless x has a row for each token.
func (u *Unpadded) mustHold(op tensor.Op, x tensor.Tensor) {
	if x.NDim() != 2 || x.Dim(0) != u.rows.Dim(0) {
		op.Fail([]tensor.Tensor{x}, "the sequences without padding are [%d, features]", u.rows.Dim(0))
	}
}

// check fails where o has what the kernels have not without padding.
func (u *Unpadded) check(t *tensor.Tape, o *AttentionOptions, both bool, in ...tensor.Tensor) {
	for _, x := range in {
		u.mustHold(OpCrossAttention, x)
	}
	if r := t.Batch(tensor.Tensor{}); o.masked() || both || t.Training() && o.Drop > 0 || r.Positions < r.Seq.Total {
		OpCrossAttention.Fail(in, "sequences without padding are whole, and have no masks, no dropout and no logarithmic sums: Restore them")
	}
}
