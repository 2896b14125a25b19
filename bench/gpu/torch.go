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
)

//go:embed torch_gpu.py
var torchProgram string

// torch measures by a Python that reads names of sections. One in which something failed, or that took too long, is ended:
// its device may be of no use any more. The next section gets another.
type torch struct {
	o     *options
	most  time.Duration // for a section
	words string        // versions and the device

	cmd *exec.Cmd // nil: none runs
	in  io.WriteCloser
	out io.ReadCloser
	say *bufio.Scanner // of out
}

// compiling is how long a section may take: torch.compile needs a minute or more where it has not run before.
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

// limit ends the program when it takes too long. Its own children may keep its output open: nobody is to wait for them.
func (t *torch) limit() *time.Timer {
	cmd, out := t.cmd, t.out
	return time.AfterFunc(min(time.Until(t.o.deadline), t.most), func() {
		_ = cmd.Process.Kill()
		_ = out.Close()
	})
}

func (t *torch) about() string { return t.words }

func (t *torch) measure(section string) (rows []row, err error) {
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
func (t *torch) ask(section string) ([]row, error) {
	defer t.limit().Stop()
	if _, err := fmt.Fprintln(t.in, section); err != nil {
		return nil, err
	}
	var rows []row
	for t.say.Scan() {
		line := t.say.Text()
		if problem, ok := strings.CutPrefix(line, "end "); ok {
			if problem = strings.TrimSpace(problem); problem != "" {
				return rows, fmt.Errorf("%s", problem)
			}
			return rows, nil
		}
		r, err := parseRow(line)
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
	_ = t.cmd.Process.Kill() // in case it does not listen
	_ = t.out.Close()
	_ = t.cmd.Wait() // its rows have been read
	t.cmd = nil
}

// compileAhead lets PyTorch compile GPT-2 while something else is done: its caches on the disk have the code when it is measured. The
// result waits until that is over.
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
