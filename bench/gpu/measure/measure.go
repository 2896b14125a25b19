package measure

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/tensor"
)

// Options say how to measure.
type Options struct {
	Device   string // cuda or, in small, cpu
	Small    bool   // sizes for the CPU and the emulator
	Exchange string // folder in which PyTorch gets the weights; empty: it does not get them
	Window   time.Duration
}

// Named returns the sections with these names; all if there are no names.
func Named(names []string) ([]Section, error) {
	if len(names) == 0 {
		return Sections, nil
	}
	var todo []Section
	for _, name := range names {
		i := slices.IndexFunc(Sections, func(s Section) bool { return s.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no section %s; `gpu list` names them", name)
		}
		todo = append(todo, Sections[i])
	}
	return todo, nil
}

// Run measures sections and prints their rows.
func (o Options) Run(names []string, out io.Writer) error {
	todo, err := Named(names)
	if err != nil {
		return err
	}
	dev, closer, err := OpenDevice(o.Device)
	if err != nil {
		return err
	}
	defer closer()
	for _, s := range todo {
		_, failed := o.Section(dev, s, out)
		err = errors.Join(err, failed)
	}
	return err
}

// Section measures a section on a device, and prints rows as they come.
func (o Options) Section(dev tensor.Device, s Section, out io.Writer) ([]Row, error) {
	m := &meter{dev: dev, device: o.Device, section: s.Name, small: o.Small, exchange: o.Exchange, length: o.Window.Seconds(), out: out}
	var err error
	if panicked := tensor.Try(func() { err = s.run(m) }); panicked != nil {
		err = panicked
	}
	return m.rows, err
}

// Print prints rows in the form that ParseRow reads, and returns the text.
func Print(out io.Writer, rows []Row) string {
	var text strings.Builder
	for _, r := range rows {
		digits := 4
		if r.Unit == LossUnit {
			digits = 6
		}
		fmt.Fprintf(&text, "%s\t%s\t%s\t%s\t%.*g\t%.*g\t%.*g\n", r.Section, r.What, r.Variant, r.Unit,
			digits, r.Median, digits, r.Low, digits, r.High)
	}
	fmt.Fprint(out, text.String())
	return text.String()
}
