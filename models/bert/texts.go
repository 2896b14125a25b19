package bert

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Texts is a data.Dataset of rows of texts, such as questions and their answers: x of a row has the tokens of each text, Int64, with
// padding, and y their numbers.
type Texts struct {
	tokens  [][]int // of text i%columns of row i/columns
	columns int
	longest int
}

// NewTexts returns the rows of columns, which have one text for each row. A text has at most c.Longest tokens: its end is left out.
func (c Config) NewTexts(tok *tokenizer.Tokenizer, columns ...[]string) (*Texts, error) {
	d := &Texts{columns: len(columns)}
	if len(columns) == 0 || len(columns[0]) == 0 {
		return nil, fmt.Errorf("bert: there are no texts")
	}
	if n := tok.Vocab(); n > c.Vocab {
		return nil, fmt.Errorf("bert: the tokenizer has %d tokens, and the model %d", n, c.Vocab)
	}
	around := tok.Prompt("")
	if len(around) != 2 {
		return nil, fmt.Errorf("bert: the tokenizer adds %d tokens around a text, not two, such as [CLS] and [SEP]", len(around))
	}
	for row := range columns[0] {
		for i, texts := range columns {
			if len(texts) != len(columns[0]) {
				return nil, fmt.Errorf("bert: column %d has %d texts, and column 0 has %d", i, len(texts), len(columns[0]))
			}
			ids := tok.Prompt(texts[row])
			if len(ids) > c.Longest {
				ids = append(ids[:c.Longest-1], around[1])
			}
			d.tokens = append(d.tokens, ids)
			d.longest = max(d.longest, len(ids))
		}
	}
	return d, nil
}

// Len returns the number of rows.
func (d *Texts) Len() int { return len(d.tokens) / d.columns }

// Shapes returns those of a row: [columns, longest] and [columns], both Int64.
func (d *Texts) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Int64, Dims: []int{d.columns, d.longest}}, tensor.Shape{DType: tensor.Int64, Dims: []int{d.columns}}
}

// Batch writes rows.
func (d *Texts) Batch(idx []int, x, y tensor.Tensor) error {
	ids, lengths := tensor.Data[int64](x), tensor.Data[int64](y)
	clear(ids)
	for i, row := range idx {
		for k, text := range d.row(row) {
			at := i*d.columns + k
			lengths[at] = int64(len(text))
			for j, id := range text {
				ids[at*d.longest+j] = int64(id)
			}
		}
	}
	return nil
}

func (d *Texts) row(i int) [][]int { return d.tokens[i*d.columns : (i+1)*d.columns] }

// Input puts a column of a batch on a tape, for Embed: ids [rows, time] and lengths [rows], without the padding that no text of all ranks'
// rows needs.
func (d *Texts) Input(t *tensor.Tape, b data.Batch, column int) (ids, lengths nn.T) {
	longest := 1
	for _, i := range b.Samples {
		longest = max(longest, len(d.row(i)[column]))
	}
	ids, lengths = t.Input(b.X), t.Input(b.Y)
	ids = ids.Slice(1, column, column+1).Slice(2, 0, longest)
	return ids.Reshape(-1, longest), lengths.Slice(1, column, column+1).Reshape(-1)
}

// encoded is how many texts Encode computes at once.
const encoded = 32

// Encode returns the vector of each text, in float32. The model's parameters are whole on dev: with fsdp, all ranks call it with the same
// texts.
func (m *Model) Encode(dev tensor.Device, tok *tokenizer.Tokenizer, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	d, err := m.Config.NewTexts(tok, texts)
	if err != nil {
		return nil, err
	}
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return len(d.tokens[i]) - len(d.tokens[j]) }) // little padding
	vectors, tape := make([][]float32, len(texts)), tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	err = tensor.Try(func() {
		for idx := range slices.Chunk(order, encoded) {
			b := data.Batch{X: tensor.FromSlice(make([]int64, len(idx)*d.longest), len(idx), 1, d.longest),
				Y: tensor.FromSlice(make([]int64, len(idx)), len(idx), 1), Samples: idx}
			_ = d.Batch(idx, b.X, b.Y) // returns no error
			ids, lengths := d.Input(tape, b, 0)
			y := tensor.Data[float32](tensor.ToHost(m.Embed(ids, lengths).Cast(tensor.Float32)))
			for i, at := range idx {
				vectors[at] = slices.Clone(y[i*m.Config.Width : (i+1)*m.Config.Width])
			}
			tape.Reset()
		}
	})
	return vectors, err
}
