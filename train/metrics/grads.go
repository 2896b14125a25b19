package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// GradStep is a line of the file that RINGO_GRADS names: the gradients of one step of an optimizer, over the whole job.
type GradStep struct {
	Step  int        `json:"step"`           // from 1 on
	Loss  *Number    `json:"loss,omitempty"` // if it was known when the optimizer began its step
	Grads []GradNorm `json:"grads"`          // in the order of the model
}

// GradNorm is the 2-norm of a parameter's gradient before clipping. Each element of the model's tensor counts once, however ranks share it.
type GradNorm struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"` // of the model's tensor
	Norm  Number `json:"norm"`
}

// AppendGrads adds steps to a file, which need not exist: one JSON object a line.
func AppendGrads(name string, steps ...GradStep) error {
	var text bytes.Buffer
	for _, s := range steps {
		if err := json.NewEncoder(&text).Encode(s); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	return errors.Join(err, f.Close())
}

// ReadGrads returns the steps of a file.
func ReadGrads(name string) (steps []GradStep, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var s GradStep
		switch err := d.Decode(&s); err {
		case nil:
			steps = append(steps, s)
		case io.EOF:
			return steps, nil
		default:
			return nil, fmt.Errorf("%s: behind %d steps: %w", name, len(steps), err)
		}
	}
}
