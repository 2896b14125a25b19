package train_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/train"
)

// heard is closed when a line has been written that has a text.
type heard struct {
	text string
	line chan string
}

func (h *heard) Write(b []byte) (int, error) {
	if h.text != "" && strings.Contains(string(b), h.text) {
		h.text = ""
		h.line <- string(b)
	}
	return len(b), nil
}

// A step that takes long is not silent: it says so, again and again, until it is over.
func TestLongStep(t *testing.T) {
	defer train.SetPatience(time.Millisecond)()
	h := &heard{text: "step 2 has run for more than 4ms", line: make(chan string, 1)}
	o := &train.Options{Threads: 1}
	require.NoError(t, o.Run(dist.Config{Log: h}, func(ctx context.Context, r *dist.Rank) error {
		l, err := train.Start(ctx, r, o, ckpt.State{})
		if err != nil {
			return err
		}
		for step := range l.Steps(2) {
			if step == 1 {
				select {
				case line := <-h.line:
					require.Contains(t, line, "step 2 has run for more than 4ms")
				case <-t.Context().Done():
				}
			}
		}
		return l.Close()
	}))
}
