package doctor

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// Shared says how processes of this host can share memory.
type Shared struct {
	Ranks   bool   `json:"ranks"` // whether ranks that are processes can
	Problem string `json:"problem,omitempty"`
	DevShm  int64  `json:"dev_shm_bytes"` // size of /dev/shm, where NCCL shares memory; 0: there is none
}

// Limit is one of the system's limits of this process.
type Limit struct {
	Name   string `json:"name"`
	Option string `json:"ulimit"`         // the option of the shell's ulimit
	Value  int64  `json:"value"`          // files or bytes; -1 for no limit
	Note   string `json:"note,omitempty"` // what the limit prevents, if it is low
}

// Limits below these get a note.
const (
	enoughFiles   = 1024     // each pair of ranks on two hosts has at least one connection
	enoughAddress = 96 << 30 // a rank reserves 80 GiB of addresses, not of memory (dist/shm)
)

func (l *Limit) judge() {
	switch {
	case l.Value < 0:
	case l.Option == "n" && l.Value < enoughFiles:
		l.Note = "few for jobs of many ranks: ulimit -n 65536"
	case l.Option == "l":
		l.Note = "NCCL over InfiniBand locks more: ulimit -l unlimited"
	case l.Option == "v" && l.Value < enoughAddress:
		l.Note = "ranks that are processes reserve 80 GiB of addresses to share memory: ulimit -v unlimited, or RINGO_SHM=0"
	}
}

// String returns the value with its unit, and the note.
func (l Limit) String() string {
	text := fmt.Sprint(l.Value)
	switch {
	case l.Value < 0:
		text = "unlimited"
	case l.Option != "n":
		text = byteText(l.Value)
	}
	if l.Note != "" {
		text += " (" + l.Note + ")"
	}
	return text
}

// Write prints the diagnosis as text.
func (d *Diagnosis) Write(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", what, fmt.Sprintf(format, args...)) }
	line("ringo", "%s, %s", d.Ringo, d.Go)
	system := d.OS
	if d.Kernel != "" {
		system += ", kernel " + d.Kernel
	}
	line("system", "%s", system)
	line("CPU", "%s", d.CPU)
	line("shared memory", "%s", d.Shared)
	line("MPI", "%s", d.MPI)
	for _, l := range d.Limits {
		line(l.Name, "%s", l)
	}
	_ = w.Flush() // errors are ignored, as with other prints
	fmt.Fprintln(out)
	if !d.OpensLibs {
		fmt.Fprintln(out, "This binary was built with -tags nodl or for a system without shared libraries: it trains on the CPU only.")
		return
	}
	d.writeCUDA(out)
}

// writeCUDA prints libraries and GPUs, and what to do.
func (d *Diagnosis) writeCUDA(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, l := range d.Libraries {
		found := "not found"
		switch {
		case l.Problem == "":
			found = fmt.Sprintf("%s, %s", l.Version, l.Path)
		case l.Found:
			found = "not usable: " + l.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Name, l.For, found)
	}
	_ = w.Flush() // errors are ignored, as with other prints
	for _, g := range d.GPUs {
		fmt.Fprintf(out, "GPU %d: %s, compute capability %s, %.1f GiB, PCI %s\n",
			g.Index, g.Name, capability(g), float64(g.Memory)/(1<<30), g.PCIBusID)
	}
	fmt.Fprintln(out)
	fmt.Fprintln(out, d.advice())
}

// advice returns what to do next.
func (d *Diagnosis) advice() string {
	driver := d.Libraries[0]
	switch {
	case len(d.GPUs) > 0 && d.Get == "":
		return "Everything is there for training on GPUs."
	case len(d.GPUs) > 0:
		return "For training on GPUs, get what is missing:\n  " + d.Get
	}
	text := "Training runs on the CPU, which needs no library. There is no usable GPU: "
	switch {
	case driver.Problem == "":
		return text + "the driver shows none."
	case driver.Found:
		text += driver.Problem + "."
	case len(d.Hardware) > 0:
		text += fmt.Sprintf("one is on the PCI bus (%s), but no libcuda; %s.", strings.Join(d.Hardware, ", "), driver.Get)
	default:
		text += "no libcuda was found, and no NVIDIA GPU on the PCI bus; " + driver.Get + "."
	}
	if d.Get != "" {
		text += "\nAfter the driver, get the libraries:\n  " + d.Get
	}
	return text
}

// byteText writes a number of bytes with its unit.
func byteText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// capability writes sm_90 as 9.0.
func capability(g cuda.Info) string {
	digits := strings.TrimPrefix(g.Arch, "sm_")
	return digits[:len(digits)-1] + "." + digits[len(digits)-1:]
}

// String is a line for people.
func (c CPU) String() string {
	model := c.Model
	if model == "" {
		model = "model not known"
	}
	text := fmt.Sprintf("%s, %d cores, kernels use %s", model, c.Cores, c.Instructions)
	if c.Asked != "" {
		text += fmt.Sprintf(" (RINGO_CPU=%s)", c.Asked)
	}
	return text
}

// String is a line for people.
func (s Shared) String() string {
	text := "ranks that are processes share it"
	if !s.Ranks {
		text = "not for ranks that are processes: " + s.Problem
	}
	if s.DevShm > 0 {
		text += fmt.Sprintf("; /dev/shm, for NCCL, has %s", byteText(s.DevShm))
	}
	return text
}
