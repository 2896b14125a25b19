package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/chat"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

const (
	// plain writes answers the same wherever they stand, and forgetful writes earlier ones otherwise, as Qwen3's.
	plain = "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"

	forgetful = "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' and loop.last %}({{ m.reasoning_content }}){% endif %}" +
		"{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)

func file(t testing.TB, lines ...string) string {
	path := filepath.Join(t.TempDir(), "train.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o666))
	return path
}

// say is a line of messages of user and assistant in turn.
func say(t testing.TB, texts ...string) string {
	var list []map[string]string
	for i, s := range texts {
		list = append(list, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": s, "thinking": "t" + s})
	}
	b, err := json.Marshal(map[string]any{"messages": list})
	require.NoError(t, err)
	return string(b)
}

func read(t testing.TB, template string, cfg chat.Config, lines ...string) *chat.Dataset {
	tpl, err := chat.New(template)
	require.NoError(t, err)
	set, err := chat.Read(file(t, lines...), tokenizer.Bytes(), tpl, cfg)
	require.NoError(t, err)
	return set
}

// show writes a row: labels that count in capitals, padding as a dot, and a bar between documents.
func show(t testing.TB, d *chat.Dataset, row int) string {
	x, y := d.Shapes()
	xs, ys := tensor.New(dev, x.DType, append([]int{1}, x.Dims...)...), tensor.New(dev, y.DType, append([]int{1}, y.Dims...)...)
	require.NoError(t, d.Batch([]int{row}, xs, ys))
	ids, labels, docs := tensor.Data[int64](xs), tensor.Data[int64](ys), tensor.Data[int64](xs)
	out := ""
	for i, label := range labels {
		doc := int64(1)
		if len(docs) > len(labels) {
			if doc = docs[len(labels)+i]; i > 0 && docs[len(labels)+i-1] != doc {
				out += "|"
			}
		}
		c := string(rune(ids[i]))
		if ids[i] == 0 {
			c = "."
		}
		if label != chat.Ignored {
			c = strings.ToUpper(c)
			switch next := i + 1; {
			case next == len(labels): // the label may be what was cut
			case ids[next] == 0 || len(docs) > len(labels) && docs[len(labels)+next] != doc:
				require.Equal(t, int64('\n'), label, "the end of a document")
			default:
				require.Equal(t, ids[next], label)
			}
		}
		out += c
	}
	return out
}

var dev = cpu.New(1)

// An input in capitals has a label that counts: the token behind it.
func TestRows(t *testing.T) {
	set := read(t, plain, chat.Config{Length: 20}, say(t, "hi", "yo", "q", "n"), "", say(t, "x"), say(t, strings.Repeat("u", 30), "a"),
		say(t, "u", strings.Repeat("b", 20)), say(t, "u", "b"))
	var rows []string
	for i := range set.Len() {
		rows = append(rows, show(t, set, i))
	}
	assert.Equal(t, []string{"<u>hi\n<a>YO\n<u>q\n<a>", "<u>u\n<a>BBBBBBBBBBBB", "<u>u\n<a>B..........."}, rows)
	assert.Equal(t, "train.jsonl: 5 conversations in 3 rows of 20 tokens; 3 documents cut at their end, "+
		"2 left out: no answer in a row", set.String())
}

// A template that writes earlier answers otherwise makes a document of each.
func TestPacked(t *testing.T) {
	set := read(t, forgetful, chat.Config{Length: 30, Pack: true}, say(t, "hi", "yo", "q", "n"), say(t, "u", "b"))
	require.Equal(t, 2, set.Len())
	assert.Equal(t, "<u>hi\n<a>yo\n<u>q\n<a>(TN)N|.....", show(t, set, 0), "without the earlier thoughts")
	assert.Equal(t, "<u>hi\n<a>(TYO)YO|<u>u\n<a>(TB)B|.", show(t, set, 1))
}

func model(t testing.TB, window int) *gpt.Model {
	m, err := gpt.New(gpt.Config{Kind: gpt.Mistral, Vocab: 256, Positions: 96, Width: 16, Layers: 2, Heads: 4, KVHeads: 2, Hidden: 24,
		Window: window})
	require.NoError(t, err)
	return m
}

func conversations(t testing.TB) (lines []string) {
	for i := range 23 { // answers are short and long
		lines = append(lines, say(t, strings.Repeat("q", 1+i%5), strings.Repeat(string(rune('a'+i)), 1+i*i%17), "and", "so"))
	}
	return lines
}

// steps trains on so many ranks, and returns the losses and all values at the end.
func steps(t testing.TB, ranks int, set *chat.Dataset) (losses, values []float64) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: ranks, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := model(t, 0)
		params, err := ddp.Attach(r.World, m, ddp.Config{DType: tensor.Float64})
		if err != nil {
			return err
		}
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2})
		tape := tensor.NewTape(r.Device)
		batches := data.NewLoader(set, data.Config{Batch: 5, Shuffle: true, Seed: 1, Sharder: r.World, Device: r.Device})
		for epoch := range 4 {
			for _, b := range batches.Epoch(ctx, epoch) {
				loss := nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y, set.Loss(b))
				all := []float64{loss.Item()}
				disttest.OK(r.World.SumFloats(all))
				if r.World.Rank() == 0 {
					losses = append(losses, all[0])
				}
				tape.Backward(loss)
				if err := opt.Step(); err != nil {
					return err
				}
				tape.Reset()
			}
			disttest.OK(batches.Err())
		}
		if r.World.Rank() == 0 {
			for _, p := range params {
				values = append(values, tensor.Floats(p.Value)...)
			}
		}
		return nil
	}))
	return losses, values
}

// Three ranks with other numbers of answers, and of rows, equal one rank; in the short form, with packed rows.
func TestRanksEqualOne(t *testing.T) {
	for _, pack := range []bool{false, true} {
		if !pack && !reliability.Long(t) {
			continue
		}
		set := read(t, plain, chat.Config{Length: 40, Pack: pack}, conversations(t)...)
		require.NotZero(t, set.Len()%5)
		losses, values := steps(t, 1, set)
		require.GreaterOrEqual(t, len(losses), 10)
		require.Less(t, losses[len(losses)-1], losses[0])
		for _, ranks := range []int{2, 3} {
			if (pack && ranks == 3) == reliability.Long(t) {
				continue
			}
			got, gotValues := steps(t, ranks, set)
			require.InDeltaSlice(t, losses, got, 1e-12)
			require.InDeltaSlice(t, values, gotValues, 1e-10)
		}
	}
}

func TestLongRanksEqualOne(t *testing.T) { reliability.AsLong(t, TestRanksEqualOne) }

// meanLoss returns the mean loss of all labels in a dataset, and the gradients.
func meanLoss(t *testing.T, set *chat.Dataset, window int, recompute bool) (loss float64, grads []float64) {
	m := model(t, window)
	m.Recompute = recompute
	params := nn.Init(m, dev, tensor.Float64, 1)
	tape := tensor.NewTape(dev)
	batches := data.NewLoader(set, data.Config{Batch: set.Len()})
	for _, b := range batches.Epoch(t.Context(), 0) {
		l := nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y, set.Loss(b))
		loss = l.Item()
		tape.Backward(l)
		for _, p := range params {
			grads = append(grads, tensor.Floats(p.Grad)...)
		}
	}
	require.NoError(t, batches.Err())
	return loss, grads
}

// Packed documents do not see each other: losses and gradients are those of rows with one document, also with windows of attention, and
// recomputed. The short form has not both of these.
func TestPackingEqualsRows(t *testing.T) {
	lines := conversations(t)
	apart, packed := read(t, plain, chat.Config{Length: 90}, lines...), read(t, plain, chat.Config{Length: 90, Pack: true}, lines...)
	require.Equal(t, len(lines), apart.Len())
	require.Less(t, packed.Len(), len(lines)*3/4)
	var losses []float64
	for _, window := range []int{0, 3} {
		want, grads := meanLoss(t, apart, window, false)
		for _, recompute := range []bool{false, true} {
			if recompute && window > 0 && !reliability.Long(t) {
				continue
			}
			got, gotGrads := meanLoss(t, packed, window, recompute)
			require.InDelta(t, want, got, 1e-12)
			require.InDeltaSlice(t, grads, gotGrads, 1e-12)
		}
		losses = append(losses, want)
	}
	require.NotEqual(t, losses[0], losses[1])
}

func TestLongPackingEqualsRows(t *testing.T) { reliability.AsLong(t, TestPackingEqualsRows) }

func TestLearnedPositionsRefused(t *testing.T) {
	set := read(t, plain, chat.Config{Length: 90, Pack: true}, conversations(t)...)
	m, err := gpt.New(gpt.Config{Kind: gpt.GPT2, Vocab: 256, Positions: 96, Width: 16, Layers: 1, Heads: 2})
	require.NoError(t, err)
	nn.Init(m, dev, tensor.Float32, 1)
	for _, b := range data.NewLoader(set, data.Config{Batch: 2}).Epoch(t.Context(), 0) {
		err := tensor.Try(func() { m.Forward(tensor.NewTape(dev).Input(b.X)) })
		require.ErrorContains(t, err, "learned positions count from the beginning of a sequence")
		break
	}
}

func TestWrongFiles(t *testing.T) {
	tpl, err := chat.New(plain)
	require.NoError(t, err)
	picky, err := chat.New("{% if messages | length > 1 %}!{% endif %}" + plain)
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{`:                   "line 1: unexpected end of JSON input; want an object with messages, such as {",
		`[]`:                  "line 1: want an object with messages",
		`{"messages": []}`:    "line 1: want an object with messages",
		`{"messages": ["x"]}`: "line 1: message 1 is no object",
		"\n" + `{"messages": [{"content": "x"}]}`:                                                        "line 2: message 1 has no role",
		`{"messages": [{"role": "user"}, {"role": "assistant", "content": 1}]}`:                          "nothing to train on",
		`{"messages": [{"role": "user", "content": {"a": 1}}, {"role": "assistant", "content": range}]}`: "invalid character 'r'",
		say(t, "q"): "1 conversations in 0 rows of 20 tokens; 0 documents cut at their end, 1 left out",
	} {
		_, err := chat.Read(file(t, text), tokenizer.Bytes(), tpl, chat.Config{Length: 20})
		if want == "nothing to train on" { // a template's None is text
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
	_, err = chat.Read(file(t, say(t, "q", "a")), tokenizer.Bytes(), picky, chat.Config{Length: 20})
	require.ErrorContains(t, err, "line 1: the template writes the prompt for message 2 otherwise if the answer follows")
	_, err = chat.Read(file(t, say(t, "q", "a")), tokenizer.Bytes(), tpl, chat.Config{})
	require.ErrorContains(t, err, "Config.Length is 0")
	adds, err := chat.New("{% for m in messages %}{{ m.role + m.content }}{% endfor %}")
	require.NoError(t, err)
	_, err = chat.Read(file(t, `{"messages": [{"role": "user", "text": "q"}]}`), tokenizer.Bytes(), adds, chat.Config{Length: 1})
	require.ErrorContains(t, err, "line 1: message 1 has no content: a string + content, which is undefined")
	picky, err = chat.New("{{ raise_exception('no tools') if messages | length > 1 }}{{ messages[0].content }}")
	require.NoError(t, err)
	calls := `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [{"function": 1}]}]}`
	_, err = chat.Read(file(t, calls), tokenizer.Bytes(), picky, chat.Config{Length: 1})
	require.ErrorContains(t, err, "line 1: the template refuses the conversation: no tools", "calls need no content")
	_, err = chat.Read("none.jsonl", tokenizer.Bytes(), tpl, chat.Config{Length: 1})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestOpen(t *testing.T) {
	for _, c := range []struct{ settings, file, specials, want, err string }{
		{settings: `{"chat_template": "{{ bos_token }}1", "bos_token": "<s>"}`, want: "<s>1"},
		{settings: `{"chat_template": "{{ bos_token }}1", "bos_token": {"content": "<b>"}, "eos_token": null}`,
			file: "{{ bos_token }}2", want: "<b>2"},
		{settings: `{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d{{ eos_token }}"}]}`,
			specials: `{"eos_token": {"content": "</s>"}}`, want: "d</s>"},
		{settings: `{"chat_template": [{"name": "rag", "template": "r"}]}`, err: "neither a text nor a list with a default"},
		{settings: `{}`, err: "the folder has no chat template"},
		{err: "the folder has no chat template"},
		{settings: `{`, err: "tokenizer_config.json: "},
		{file: "{% include 'x' %}", err: `chat_template.jinja: line 1: the tag "include" is not supported`},
	} {
		tpl, err := open(t, map[string]string{"tokenizer_config.json": c.settings, "chat_template.jinja": c.file,
			"special_tokens_map.json": c.specials})
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		got, err := tpl.Prompt(chat.Message{Role: "user", Content: "x"})
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	tpl, err := chat.New(plain)
	require.NoError(t, err)
	got, err := tpl.Prompt(chat.Message{Role: "user", Content: "x"})
	require.NoError(t, err)
	require.Equal(t, "<u>x\n<a>", got)
}

// open opens the template of a folder with these files, but those without text.
func open(t *testing.T, files map[string]string) (*chat.Template, error) {
	dir := t.TempDir()
	for name, text := range files {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		}
	}
	return chat.Open(dir)
}

// An answer ends with the tokens of generation_config.json, or of config.json without that, and with the one that the template writes.
func TestEnds(t *testing.T) {
	qwen := filepath.Join("..", "tokenizer", "testdata", "qwen2")
	tok, err := tokenizer.Open(qwen)
	require.NoError(t, err)
	end, _ := tok.ID("<|im_end|>")
	const chatML = "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{{ end }} {% endfor %}"
	for _, c := range []struct {
		generation, model, template string
		want                        []int
		err                         string
	}{
		{generation: `{"eos_token_id": [3, 1]}`, model: `{"eos_token_id": 7}`, template: "<|im_end|>\n", want: []int{3, 1, end}},
		{generation: `{"eos_token_id": 5}`, want: []int{5}},
		{generation: `{}`, model: `{"eos_token_id": 7}`, template: " <|im_end|><|endoftext|>", want: []int{end}},
		{model: `{"eos_token_id": 7}`, template: "<|im_end|>", want: []int{7, end}},
		{generation: `{"eos_token_id": null}`, template: "\n"},
		{model: fmt.Sprintf(`{"eos_token_id": [%d]}`, end), template: "<|im_end|>", want: []int{end}},
		{generation: `{"eos_token_id": "</s>"}`, err: `generation_config.json: eos_token_id is "</s>", want a number or a list of them`},
		{model: `{"eos_token_id": [1, 2.5]}`, err: "config.json: eos_token_id is [1, 2.5], want"},
		{generation: `{`, err: "generation_config.json: unexpected end of JSON input"},
	} {
		tpl, err := open(t, map[string]string{"generation_config.json": c.generation, "config.json": c.model,
			"chat_template.jinja": strings.ReplaceAll(chatML, "{{ end }}", c.template)})
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, tpl.Ends(tok), "%+v", c)
	}
	tpl, err := chat.New("<|im_start|>") // it writes no answers
	require.NoError(t, err)
	require.Empty(t, tpl.Ends(tok))
	tpl, err = chat.New("{{ raise_exception('where is the system message?') }}")
	require.NoError(t, err)
	require.Empty(t, tpl.Ends(tok))
	tok, err = tokenizer.Open(filepath.Join("..", "tokenizer", "testdata", "gemma")) // lines between paragraphs are added tokens
	require.NoError(t, err)
	tpl, err = chat.New("{% for m in messages %}{{ m.content }}\n\n</s>{% endfor %}")
	require.NoError(t, err)
	end, _ = tok.ID("</s>")
	require.Equal(t, []int{end}, tpl.Ends(tok))
}

// Split deals out whole conversations, also those that are several documents, and each part counts its own answers.
func TestSplit(t *testing.T) {
	var lines []string
	for i := range 20 {
		c := string(rune('a' + i))
		lines = append(lines, say(t, c, c, c, strings.Repeat(c, 1+i)))
	}
	set := read(t, forgetful, chat.Config{Length: 60, Pack: true}, lines...)
	parts, err := set.Split(3, 0.8, 0.2)
	require.NoError(t, err)
	seen := map[rune]int{}
	for p, part := range parts {
		require.Equal(t, []int{16, 4}[p], part.Conversations)
		batches := data.NewLoader(part, data.Config{Batch: 3})
		for _, b := range batches.Epoch(t.Context(), 0) {
			count := 0.0
			for i, label := range tensor.Data[int64](b.Y) {
				if label == chat.Ignored {
					continue
				}
				count++
				c := rune(tensor.Data[int64](b.X)[i/60*120+i%60])
				if before, is := seen[c]; c >= 'a' && c < 't' { // not the t of thoughts
					require.True(t, !is || before == p, "%c is in both parts", c)
					seen[c] = p
				}
			}
			require.Equal(t, count, part.Loss(b).Count)
		}
		require.NoError(t, batches.Err())
	}
	require.Len(t, seen, 19)
	refusesSubsets(t, set)
	_, err = set.Split(3, 0.99, 0.01)
	require.ErrorContains(t, err, "part 1 gets none")
	_, err = read(t, plain, chat.Config{Length: 20}, say(t, "x", "y"), say(t, strings.Repeat("u", 30), "a")).Split(1, 0.5, 0.5)
	require.ErrorContains(t, err, "a part has no answer")
}

// Batches of a part of the rows have numbers of that part, and those of another set numbers that are not there.
func refusesSubsets(t *testing.T, set *chat.Dataset) {
	parts, err := data.Split(set, 1, 0.5, 0.5)
	require.NoError(t, err)
	turned, err := data.NewSubset(set, []int{2, 1})
	require.NoError(t, err)
	for _, other := range append(parts, turned) {
		refused := error(nil)
		for _, b := range data.NewLoader(other, data.Config{Batch: 2}).Epoch(t.Context(), 0) {
			if refused = tensor.Try(func() { set.Loss(b) }); refused != nil {
				break
			}
		}
		require.ErrorContains(t, refused, "use Dataset.Split in its place")
	}
	b := data.Batch{Samples: []int{set.Len()}, Rows: 1, Y: tensor.FromSlice([]int64{1}, 1, 1)}
	require.ErrorContains(t, tensor.Try(func() { set.Loss(b) }), "other labels than row")
	b.Samples, b.Y = []int{0}, tensor.FromSlice([]int64{chat.Ignored, 1}, 1, 2) // a part of its positions
	require.Positive(t, set.Loss(b).Count)
}
