package doctor

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// Diagnosis is what was found; `ringo doctor -json` prints it.
type Diagnosis struct {
	Ringo     string      `json:"ringo"`
	Go        string      `json:"go"`
	OS        string      `json:"os"`
	Kernel    string      `json:"kernel"`
	OpensLibs bool        `json:"opens_libraries"` // false with -tags nodl
	CPU       CPU         `json:"cpu"`
	Shared    Shared      `json:"shared_memory"`
	Limits    []Limit     `json:"limits"`
	Libraries []Library   `json:"libraries"`
	Hardware  []string    `json:"nvidia_pci_devices"` // also without a driver
	GPUs      []cuda.Info `json:"gpus"`
	Get       string      `json:"get"`   // the command for all missing libraries, "" when there is none
	Wrong     []string    `json:"wrong"` // what the device that was asked for lacks
}

// CPU is what kernels run on.
type CPU struct {
	Model        string `json:"model"`
	Cores        int    `json:"cores"`
	Instructions string `json:"instructions"` // that kernels use
	Asked        string `json:"ringo_cpu"`    // the variable RINGO_CPU
}

// Examine looks at this machine. wantGPU says that a missing one is wrong.
func Examine(wantGPU bool) *Diagnosis {
	root := os.DirFS("/")
	d := &Diagnosis{
		Ringo: Version(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: Text(root, "proc/sys/kernel/osrelease"),
		OpensLibs: dl.Enabled, Shared: sharedMemory(), Limits: limits(), Hardware: nvidiaHardware(root),
		CPU: CPU{Field(root, "proc/cpuinfo", "model name"), runtime.NumCPU(), kernel.CPU(), os.Getenv("RINGO_CPU")},
	}
	if err := kernel.CPUError(); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	if _, err := launch.FromEnv(os.Getenv); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	d.examineCUDA(wantGPU)
	return d
}

// Err is what the device that was asked for lacks, nil when it lacks nothing.
func (d *Diagnosis) Err() error {
	if len(d.Wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(d.Wrong, "; "))
}

// Text returns a file without white space around it, "" where there is none.
func Text(root fs.FS, file string) string {
	b, err := fs.ReadFile(root, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Field returns what stands behind "name:" in a file of /proc.
func Field(root fs.FS, file, name string) string {
	for line := range strings.Lines(Text(root, file)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Version is that of Ringo, with the commit if known.
func Version() string {
	version, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value
			}
		}
	}
	return version + commit
}
