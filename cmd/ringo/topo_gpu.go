package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/internal/cuda"
)

// gpuInfo is a GPU of a host and its links.
type gpuInfo struct {
	cuda.Info
	NUMA  int      `json:"numa"`            // node; -1 if the system does not tell
	Links []string `json:"links,omitempty"` // to each GPU of the host, in the notation of `nvidia-smi topo -m`; nil without NVML
	Near  []bool   `json:"near"`            // which GPUs of the host it may share tensor-parallel layers with
}

// findGPUs fills in the GPUs of this host that a program can use, and notes what prevents their use. A host without a driver has none.
func (h *hostInfo) findGPUs(root fs.FS) {
	driver, err := cuda.Load()
	if err != nil {
		return
	}
	found, err := driver.Devices()
	if err != nil {
		h.Notes = append(h.Notes, err.Error())
		return
	}
	for _, g := range found {
		node, err := strconv.Atoi(doctor.Text(root, "sys/bus/pci/devices/"+strings.ToLower(g.PCIBusID)+"/numa_node"))
		if err != nil {
			node = -1
		}
		h.GPUs = append(h.GPUs, gpuInfo{Info: g, NUMA: node})
	}
	if len(found) == 0 {
		return
	}
	links, err := cuda.ReadTopology()
	if err != nil {
		h.Notes = append(h.Notes, "how the GPUs are linked is not known: "+err.Error())
		h.guessNear()
		return
	}
	h.setLinks(links)
}

// setLinks sets the links that NVML knows, of the GPUs that CUDA shows. Two GPUs are near each other if NVLink joins them. On a host
// without NVLink they are near if the path between them stays within one PCI Express host bridge.
func (h *hostInfo) setLinks(t *cuda.Topology) {
	at := make([]int, len(h.GPUs)) // indices into t
	for i, g := range h.GPUs {
		at[i] = slices.IndexFunc(t.GPUs, func(x cuda.GPU) bool { return strings.EqualFold(x.BusID, g.PCIBusID) })
		if at[i] < 0 {
			h.Notes = append(h.Notes, "how the GPUs are linked is not known: NVML does not show "+g.PCIBusID)
			h.guessNear()
			return
		}
	}
	byNVLink := false
	for i := range h.GPUs {
		for j := range h.GPUs {
			word := t.Paths[at[i]][at[j]]
			h.GPUs[i].Links = append(h.GPUs[i].Links, word)
			byNVLink = byNVLink || strings.HasPrefix(word, "NV")
		}
	}
	for i := range h.GPUs {
		for _, word := range h.GPUs[i].Links {
			pcie := word == "PIX" || word == "PXB" || word == "PHB"
			h.GPUs[i].Near = append(h.GPUs[i].Near, word == "X" || strings.HasPrefix(word, "NV") || pcie && !byNVLink)
		}
	}
}

// guessNear is setLinks without NVML: GPUs on one NUMA node are near each other.
func (h *hostInfo) guessNear() {
	for i := range h.GPUs {
		h.GPUs[i].Near = make([]bool, len(h.GPUs))
		for j := range h.GPUs {
			h.GPUs[i].Near[j] = h.GPUs[i].NUMA == h.GPUs[j].NUMA
		}
	}
}

// nearRanks reports whether two ranks may share layers: they are on one host, and their GPUs are near each other. Rank k of a host has
// its GPU k.
func nearRanks(hosts []hostInfo) func(a, b int) bool {
	type place struct{ host, k int }
	at := map[int]place{}
	for i, h := range hosts {
		for k, rank := range h.Ranks {
			at[rank] = place{i, k}
		}
	}
	return func(a, b int) bool {
		x, y := at[a], at[b]
		gpus := hosts[x.host].GPUs
		n := len(gpus)
		return x.host == y.host && (n == 0 || gpus[x.k%n].Near[y.k%n])
	}
}

// gpuNotes says where the number of ranks does not fit the GPUs.
func gpuNotes(hosts []hostInfo) []string {
	var out []string
	for i, h := range hosts {
		if n := len(h.GPUs); n > 0 && n != len(h.Ranks) {
			out = append(out, fmt.Sprintf("host %d has %s and %s: on GPUs, start one rank for each (ringo run -n %d)",
				i, viz.Counted(n, "GPU"), viz.Counted(len(h.Ranks), "rank"), n))
		}
	}
	return out
}

// writeGPUs prints the GPUs of a host and the table of their links.
func (h *hostInfo) writeGPUs(out io.Writer) {
	for _, g := range h.GPUs {
		line := fmt.Sprintf("GPU %d: %s, %s, %.1f GiB, PCI %s", g.Index, g.Name, g.Arch, float64(g.Memory)/(1<<30), g.PCIBusID)
		if g.NUMA >= 0 {
			line += fmt.Sprintf(", NUMA node %d", g.NUMA)
		}
		fmt.Fprintf(out, "  %s\n", line)
	}
	if len(h.GPUs) > 1 && h.GPUs[0].Links != nil {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "  links")
		for _, g := range h.GPUs {
			fmt.Fprintf(w, "\tGPU %d", g.Index)
		}
		fmt.Fprintln(w)
		for _, g := range h.GPUs {
			fmt.Fprintf(w, "  GPU %d\t%s\n", g.Index, strings.Join(g.Links, "\t"))
		}
		_ = w.Flush() // errors are ignored, as with other prints
	}
	for _, note := range h.Notes {
		fmt.Fprintf(out, "  %s\n", note)
	}
}

// gpusOfHost returns the GPUs that the first rank of a host found; other ranks of the host do not look.
func gpusOfHost(hosts []hostInfo, rank int) hostInfo {
	var found hostInfo
	for _, h := range hosts {
		if h.Ranks[0] == rank {
			found.findGPUs(os.DirFS("/"))
		}
	}
	return found
}
