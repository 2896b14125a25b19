package chat

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/jinja"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Ignored is the label of a token that does not count (PyTorch's ignore_index).
const Ignored = -100

// Config says how conversations become rows.
type Config struct {
	Length int  // tokens of a row
	Pack   bool // several conversations in a row, with their numbers; for models with rotary positions
}

// Dataset is a file of conversations: a data.Dataset whose samples are rows of tokens, and labels, of which those outside of answers are
// Ignored. Every rank has the same rows.
type Dataset struct {
	Conversations int // in the file
	Cut           int // documents that were longer than a row
	LeftOut       int // documents without an answer in what a row can hold

	name    string
	cfg     Config
	docs    []row
	rows    [][]int // documents of each
	answers []int   // labels that count, of each row
}

// row is a document in tokens: each but the last one is an input, and the next one its label.
type row struct {
	of      int // the number of its conversation
	ids     []int32
	answer  []bool
	answers int
}

func (r *row) inputs() int { return len(r.ids) - 1 }

// Read reads a file of JSON Lines.
func Read(file string, tok *tokenizer.Tokenizer, t *Template, cfg Config) (*Dataset, error) {
	if cfg.Length < 1 {
		return nil, fmt.Errorf("chat: Config.Length is %d, want 1 or more", cfg.Length)
	}
	lines, err := data.Lines(file)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	d := &Dataset{name: filepath.Base(file), cfg: cfg}
	budget := bounded.New(int64(size))
	for i, line := range lines {
		if line == "" {
			continue
		}
		if err := d.add(line, tok, t, budget); err != nil {
			return nil, fmt.Errorf("chat: %s: line %d: %w", file, i+1, err)
		}
	}
	if len(d.docs) == 0 {
		return nil, fmt.Errorf("chat: %v: nothing to train on", d)
	}
	d.pack()
	return d, nil
}

// Split deals the conversations out, in a random order, as data.Split does: 0.9 and 0.1 are nine tenths to learn from, and a tenth to
// test. Each part has rows, and a Loss, of its own, and Cut and LeftOut of the file. All documents of a conversation are in one part. Do
// not use data.Split or data.Subset: batches have the numbers of a Subset's samples, and Loss refuses them.
func (d *Dataset) Split(seed uint64, parts ...float64) (all []*Dataset, err error) {
	sets, err := data.Split(byConversation{d}, seed, parts...)
	for _, set := range sets {
		slices.Sort(set.Indices)
		part := &Dataset{Conversations: set.Len(), Cut: d.Cut, LeftOut: d.LeftOut, name: d.name, cfg: d.cfg}
		for _, r := range d.docs {
			if _, in := slices.BinarySearch(set.Indices, r.of); in {
				part.docs = append(part.docs, r)
			}
		}
		if len(part.docs) == 0 {
			return nil, fmt.Errorf("chat: %v: a part has no answer", d)
		}
		part.pack()
		all = append(all, part)
	}
	return all, err
}

// byConversation is a Dataset whose samples are conversations, for data.Split.
type byConversation struct{ *Dataset }

// Len returns the number of conversations.
func (d byConversation) Len() int { return d.Conversations }

// rowBytes is the memory of a document, beside 5 bytes for each token.
const rowBytes = 128

func (d *Dataset) add(line string, tok *tokenizer.Tokenizer, t *Template, budget *bounded.Budget) error {
	messages, tools, err := parse(line)
	if err != nil {
		return err
	}
	docs, err := t.documents(messages, tools)
	if err != nil {
		for i, m := range messages {
			content, _ := m.(*jinja.Dict).Get("content")
			if calls, _ := m.(*jinja.Dict).Get("tool_calls"); content == nil && calls == nil {
				return fmt.Errorf("message %d has no content: %w", i+1, err)
			}
		}
		return err
	}
	d.Conversations++
	if len(docs) == 0 {
		d.LeftOut++
	}
	for _, doc := range docs {
		ids, answer, err := encode(tok, doc)
		if err != nil {
			return err
		}
		if most := d.cfg.Length + 1; len(ids) > most {
			d.Cut++
			ids, answer = ids[:most], answer[:most]
		}
		r := row{of: d.Conversations - 1, answer: slices.Clone(answer)}
		for i, id := range ids {
			r.ids = append(r.ids, int32(id))
			if i > 0 && answer[i] {
				r.answers++
			}
		}
		if r.answers == 0 {
			d.LeftOut++
			continue
		}
		if err := budget.Take(rowBytes + 5*int64(len(ids))); err != nil {
			return fmt.Errorf("%d documents: %w", len(d.docs)+1, err)
		}
		d.docs = append(d.docs, r)
	}
	return nil
}

const wantObject = `want an object with messages, such as {"messages": [{"role": "user", "content": "Hi"}]}`

// parse reads a line.
func parse(line string) (messages []any, tools any, err error) {
	v, err := jinja.JSON([]byte(line))
	if err != nil {
		return nil, nil, fmt.Errorf("%w; %s", err, wantObject)
	}
	o, _ := v.(*jinja.Dict)
	if o != nil {
		tools, _ = o.Get("tools")
		list, _ := o.Get("messages")
		messages, _ = list.([]any)
	}
	if len(messages) == 0 {
		return nil, nil, errors.New(wantObject)
	}
	for i, m := range messages {
		d, ok := m.(*jinja.Dict)
		if !ok {
			return nil, nil, fmt.Errorf("message %d is no object", i+1)
		}
		if role, _ := d.Get("role"); role == nil {
			return nil, nil, fmt.Errorf("message %d has no role", i+1)
		}
		aliasReasoning(d)
	}
	return messages, tools, nil
}

// aliasReasoning gives the thoughts of a message all names that templates read, as transformers does.
func aliasReasoning(m *jinja.Dict) {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		if v, _ := m.Get(name); v != nil {
			if _, is := m.Get("thinking"); !is {
				m.Set("thinking", v)
			}
			m.Set("reasoning_content", v)
			return
		}
	}
}

// pack divides documents into rows: the longest first, each into the fullest row that has room for it (best fit decreasing).
func (d *Dataset) pack() {
	if !d.cfg.Pack {
		for i := range d.docs {
			d.rows, d.answers = append(d.rows, []int{i}), append(d.answers, d.docs[i].answers)
		}
		return
	}
	order := make([]int, len(d.docs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(d.docs[b].inputs(), d.docs[a].inputs()) })
	open := make([][]int, d.cfg.Length+1) // rows by the room that they have
	for _, i := range order {
		n := d.docs[i].inputs()
		room := n
		for room < d.cfg.Length && len(open[room]) == 0 {
			room++
		}
		at := len(d.rows)
		if last := len(open[room]) - 1; last >= 0 {
			at, open[room] = open[room][last], open[room][:last]
		} else {
			d.rows, d.answers = append(d.rows, nil), append(d.answers, 0)
		}
		d.rows[at] = append(d.rows[at], i)
		d.answers[at] += d.docs[i].answers
		open[room-n] = append(open[room-n], at)
	}
}

// String says what the dataset has, and what of the file it has not.
func (d *Dataset) String() string {
	return fmt.Sprintf("%s: %d conversations in %d rows of %d tokens; %d documents cut at their end, %d left out: no answer in a row",
		d.name, d.Conversations, len(d.rows), d.cfg.Length, d.Cut, d.LeftOut)
}

// Len returns the number of rows.
func (d *Dataset) Len() int { return len(d.rows) }

// Shapes returns [Length] for tokens and for labels; with Config.Pack, [2, Length] for tokens and the numbers of their documents.
func (d *Dataset) Shapes() (x, y tensor.Shape) {
	y = tensor.Shape{DType: tensor.Int64, Dims: []int{d.cfg.Length}}
	if !d.cfg.Pack {
		return y, y
	}
	return tensor.Shape{DType: tensor.Int64, Dims: []int{2, d.cfg.Length}}, y
}

// Batch writes rows of tokens and labels.
func (d *Dataset) Batch(idx []int, x, y tensor.Tensor) error {
	xs, ys, n := tensor.Data[int64](x), tensor.Data[int64](y), d.cfg.Length
	clear(xs) // padding is token 0, of document 0
	for i := range ys {
		ys[i] = Ignored
	}
	for i, sample := range idx {
		ids, labels := xs[i*len(xs)/len(idx):], ys[i*n:]
		at := 0
		for k, doc := range d.rows[sample] {
			r := &d.docs[doc]
			for j := range r.inputs() {
				ids[at] = int64(r.ids[j])
				if r.answer[j+1] {
					labels[at] = int64(r.ids[j+1])
				}
				if d.cfg.Pack {
					ids[n+at] = int64(k + 1)
				}
				at++
			}
		}
	}
	return nil
}

// Loss returns the options of the loss of a batch of d: the mean over the labels that count, of all ranks.
func (d *Dataset) Loss(b data.Batch) ops.CrossEntropyOptions {
	ignored, count := int64(Ignored), 0
	for i, sample := range b.Samples {
		if sample >= len(d.answers) || !d.counts(b.Y, i-b.First, d.answers[sample]) {
			panic(&tensor.Failure{Op: "chat.Dataset.Loss", Err: fmt.Errorf("row %d of the batch has other labels than row %d of %v: a "+
				"data.Subset, as data.Split makes them, has its own numbers of samples: use Dataset.Split in its place", i, sample, d)})
		}
		count += d.answers[sample]
	}
	return ops.CrossEntropyOptions{Ignore: &ignored, Count: float64(count)}
}

// counts reports whether so many labels count in a row of this rank's part of a batch. What is not whole rows in host memory is not looked
// at.
func (d *Dataset) counts(labels tensor.Tensor, row, answers int) bool {
	if labels.IsZero() || labels.NDim() != 2 || labels.Dim(1) != d.cfg.Length || row < 0 || row >= labels.Dim(0) || !labels.Device().Host() {
		return true
	}
	for _, label := range tensor.Data[int64](labels)[row*d.cfg.Length:][:d.cfg.Length] {
		if label != Ignored {
			answers--
		}
	}
	return answers == 0
}
