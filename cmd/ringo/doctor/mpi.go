package doctor

import (
	"io/fs"
	"strings"

	"github.com/ringo-ml/ringo/internal/mpi"
)

// MPI is the MPI library that RINGO_BACKEND=mpi would use.
type MPI struct {
	Library string   `json:"library"` // with its ABI and thread level; "" if there is none
	Problem string   `json:"problem,omitempty"`
	RDMA    []string `json:"rdma_devices"` // network devices that MPI can use, and TCP cannot
}

func examineMPI(root fs.FS) (m MPI) {
	m.RDMA = rdmaDevices(root)
	library, err := mpi.Describe()
	if err != nil {
		m.Problem = err.Error()
		return m
	}
	m.Library = library
	return m
}

// rdmaDevices lists the devices for InfiniBand, RoCE and the like.
func rdmaDevices(root fs.FS) (names []string) {
	entries, _ := fs.ReadDir(root, "sys/class/infiniband") // without the folder there is none
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// String is the line that the doctor prints.
func (m MPI) String() string {
	text := m.Library
	if text == "" {
		text = "none: " + m.Problem
	}
	if len(m.RDMA) > 0 {
		text += "; RDMA devices " + strings.Join(m.RDMA, ", ") + ": MPI uses them with RINGO_BACKEND=mpi, TCP does not"
	}
	return text
}
