package main

import (
	"os"

	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
)

// doctorCmd is `ringo doctor`.
type doctorCmd struct {
	Device string `default:"cpu" env:"RINGO_DEVICE" placeholder:"NAME" help:"What training needs: cpu or cuda."`
	JSON   bool   `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo doctor -h`.
func (*doctorCmd) Help() string {
	return `Shows what Ringo finds on this machine: instruction sets, shared memory, limits, and for GPUs the driver, NVRTC, cuBLASLt, NCCL
and NVML with their paths and versions; what is missing, and the command that gets it. The exit status is 0 when nothing that the
device needs is missing; the CPU needs no library.

  ringo doctor
  ringo doctor -device cuda && ringo run -n 8 ./prog -device cuda`
}

// Run prints what was found. It returns an error if something is missing for the device.
func (c *doctorCmd) Run() error {
	if c.Device != "cpu" && c.Device != "cuda" {
		return usageOf("doctor", "-device %q is not cpu or cuda", c.Device)
	}
	d := doctor.Examine(c.Device == "cuda")
	if c.JSON {
		if err := printJSON(d); err != nil {
			return err
		}
	} else {
		d.Write(os.Stdout)
	}
	return d.Err()
}
