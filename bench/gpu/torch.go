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

// torch is a Python that measures the sections it reads. Its errors appear on the standard error.
type torch struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	words string // versions and the device

	deadline time.Time
}

// compiling is how long a section may take: torch.compile needs a minute or more where it has not run before.
const compiling = 150 * time.Second

func (o *options) startTorch() (peer, error) {
	t := &torch{cmd: exec.Command(o.python, "-u", "-c", torchProgram, o.device, fmt.Sprint(o.window.Seconds())), deadline: o.deadline}
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.cmd.Stderr = os.Stderr
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	t.out = bufio.NewScanner(out)
	defer t.limit().Stop()
	if !t.out.Scan() {
		t.close()
		return nil, fmt.Errorf("%s ended at once: is PyTorch installed there?", o.python)
	}
	t.words = t.out.Text()
	return t, nil
}

// limit ends the program when it takes too long.
func (t *torch) limit() *time.Timer {
	return time.AfterFunc(min(time.Until(t.deadline), compiling), func() { _ = t.cmd.Process.Kill() })
}

func (t *torch) about() string { return t.words }

// measure asks for a section and reads rows until the line that ends it.
func (t *torch) measure(section string) ([]row, error) {
	if _, err := fmt.Fprintln(t.in, section); err != nil {
		return nil, err
	}
	defer t.limit().Stop()
	var rows []row
	for t.out.Scan() {
		line := t.out.Text()
		if problem, ok := strings.CutPrefix(line, "end"); ok {
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
	return rows, fmt.Errorf("python ended within the section, or was stopped after %v", compiling)
}

func (t *torch) close() {
	_ = t.in.Close()         // ends the program
	_ = t.cmd.Process.Kill() // in case it does not listen
	_ = t.cmd.Wait()         // its rows have been read
}
