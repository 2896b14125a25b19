package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
)

//go:embed torch_gpu.py
var torchProgram string

// torch measures with a Python process that reads names of sections. If something in a section fails or takes too long, the process is
// ended, because its device may be unusable. The next section gets a new one.
type torch struct {
	o     *options
	most  time.Duration // longest time for a section
	words string        // versions and the device

	cmd *exec.Cmd // nil: no process runs
	in  io.WriteCloser
	out io.ReadCloser
	say *bufio.Scanner // reads out
}

// compiling is the longest time for a section: torch.compile needs a minute or more the first time.
const compiling = 150 * time.Second

func (o *options) startTorch(most time.Duration) (peer, error) {
	t := &torch{o: o, most: most}
	return t, t.start()
}

func (t *torch) start() error {
	device := t.o.device
	if t.o.small {
		device = "cpu"
	}
	cmd := exec.Command(t.o.python, "-u", "-c", torchProgram, device, fmt.Sprint(t.o.window.Seconds()), t.o.exchange)
	cmd.Stderr, cmd.WaitDelay = io.Writer(os.Stderr), waitDelay
	if t.o.logs != "" {
		cmd.Stderr = logWriter{t.o, "torch.log"}
	}
	var err error
	if t.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if t.out, err = cmd.StdoutPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.cmd, t.say = cmd, bufio.NewScanner(t.out)
	defer t.limit().Stop()
	if !t.say.Scan() {
		t.close()
		return fmt.Errorf("%s ended at once: is PyTorch installed there?", t.o.python)
	}
	t.words = t.say.Text()
	return nil
}

// limit kills the process when it takes too long. Its own child processes may keep its output open; nobody waits for them.
func (t *torch) limit() *time.Timer {
	cmd, out := t.cmd, t.out
	return time.AfterFunc(min(time.Until(t.o.deadline), t.most), func() {
		_ = cmd.Process.Kill()
		_ = out.Close()
	})
}

func (t *torch) about() string { return t.words }

func (t *torch) measure(section string) (rows []measure.Row, err error) {
	if t.cmd == nil {
		err = t.start()
	}
	if err == nil {
		rows, err = t.ask(section)
	}
	if err != nil {
		t.close()
	}
	return rows, err
}

// ask asks for a section and reads rows until the line that ends it.
func (t *torch) ask(section string) ([]measure.Row, error) {
	defer t.limit().Stop()
	if _, err := fmt.Fprintln(t.in, section); err != nil {
		return nil, err
	}
	var rows []measure.Row
	for t.say.Scan() {
		line := t.say.Text()
		if problem, ok := strings.CutPrefix(line, "end "); ok {
			if problem = strings.TrimSpace(problem); problem != "" {
				return rows, fmt.Errorf("%s", problem)
			}
			return rows, nil
		}
		r, err := measure.ParseRow(line)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	return rows, fmt.Errorf("python ended within the section, or was stopped after %v (or at -limit)", t.most)
}

func (t *torch) close() {
	if t.cmd == nil {
		return
	}
	_ = t.in.Close()         // ends the program
	_ = t.cmd.Process.Kill() // if it does not end itself
	_ = t.out.Close()
	_ = t.cmd.Wait() // its rows have been read, so the error does not matter
	t.cmd = nil
}

// compileAhead makes PyTorch compile GPT-2 while something else runs, so that its caches on disk have the code for the measurement. wait
// waits until that is done.
func (o *options) compileAhead() (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o.python == "" {
			return
		}
		other, err := o.startTorch(compiling)
		if err == nil {
			_, err = other.measure("compile")
			other.close()
		}
		if err != nil {
			o.log("torch.log", fmt.Appendf(nil, "compiling ahead: %v\n", err))
		}
	}()
	return func() { <-done }
}
