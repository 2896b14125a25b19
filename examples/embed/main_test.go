package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/bert"
)

func tiny() options {
	return options{load: "../../models/bert/testdata/mean", pairs: "testdata/pairs.jsonl", query: "color of grass?", ranks: 1, fsdp: 1, tp: 1,
		epochs: 20, batch: 3, lr: 1e-2}
}

func (o options) out(ranks int) (string, error) {
	var out bytes.Buffer
	o.ranks = ranks
	err := o.run(dist.Config{Ranks: ranks, Threads: 1, Log: &out})
	return out.String(), err
}

// Every layout, in the short form three of five, trains the same model, with batches of three pairs and of one, and finds the same answer;
// so does the model that was saved.
func TestLayouts(t *testing.T) {
	var want string // of one rank
	for i, c := range []struct{ ranks, fsdp, tp int }{{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {3, 1, 3}, {6, 2, 3}} {
		if (i == 1 || i == 2) && !reliability.Long(t) {
			continue
		}
		o := tiny()
		o.fsdp, o.tp, o.save = c.fsdp, c.tp, filepath.Join(t.TempDir(), "saved")
		if i%2 == 1 {
			o.pairs = "testdata/pairs.csv"
		}
		out, err := o.out(c.ranks)
		require.NoError(t, err, c)
		require.Contains(t, out, "color of grass?: green (", c)
		want = cmp.Or(want, out)
		require.Equal(t, want, out, c)

		again := tiny()
		again.epochs = 1
		again.load, again.lr = filepath.Join(o.save, "step-00000040"), 1e-9
		same, err := again.out(1)
		require.NoError(t, err, c)
		require.Equal(t, out, same, c)
		before, err := bert.ReadConfig(o.load)
		require.NoError(t, err)
		saved, err := bert.ReadConfig(again.load)
		require.NoError(t, err)
		require.Equal(t, before, saved)
	}
}

func TestLongLayouts(t *testing.T) { reliability.AsLong(t, TestLayouts) }

// What cannot be trained on is an error that says where it is.
func TestPairs(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a.jsonl": {`{"anchor": "a", "positive": "b"}` + "\n" + `{"anchor": "a"}`, "line 2"},
		"b.jsonl": {`{"anchor": "a", "positive": 3}`, "line 1"},
		"a.csv":   {"question\nsky\n", "2 or more"},
		"b.csv":   {"a,b\n\"c", "line 2"},
		"c.csv":   {"a,b\n", "no texts"},
	} {
		o := tiny()
		o.pairs = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(o.pairs, []byte(c.text), 0o600))
		_, err := o.out(1)
		require.ErrorContains(t, err, c.want, name)
	}
	o := tiny()
	o.tp = 2
	_, err := o.out(3)
	require.ErrorContains(t, err, "do not divide 3 ranks")
}

// On GPUs it prints the same.
func TestCUDA(t *testing.T) {
	o := tiny()
	o.epochs = 5 // ten steps
	disttest.SameOnCUDA(t, o.run)
}
