package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// linked makes the links of a host from the notation of nvidia-smi, a row for each GPU.
func linked(rows ...string) *cuda.Topology {
	t := new(cuda.Topology)
	for i, r := range rows {
		t.GPUs = append(t.GPUs, cuda.GPU{BusID: fmt.Sprintf("0000:%02x:00.0", 0xa0+i)})
		t.Paths = append(t.Paths, strings.Fields(r))
	}
	return t
}

func TestPlacementsOnGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		links *cuda.Topology
		ranks int
		want  string
	}{
		"all by NVLink":            {linked("X NV NV NV", "NV X NV NV", "NV NV X NV", "NV NV NV X"), 4, "dp=4 tp=4"},
		"pairs by NVLink":          {linked("X NV PHB PHB", "NV X PHB PHB", "PHB PHB X NV", "PHB PHB NV X"), 4, "dp=4 dp=2,tp=2"},
		"one host bridge":          {linked("X PHB", "PHB X"), 2, "dp=2 tp=2"},
		"two sockets":              {linked("X SYS", "SYS X"), 2, "dp=2 pp=2"},
		"a ring is not enough":     {linked("X NV SYS NV", "NV X NV SYS", "SYS NV X NV", "NV SYS NV X"), 4, "dp=4 dp=2,tp=2"},
		"more ranks than GPUs":     {linked("X SYS", "SYS X"), 4, "dp=4 pp=4"},
		"fewer ranks than GPUs":    {linked("X NV SYS SYS", "NV X SYS SYS", "SYS SYS X NV", "SYS SYS NV X"), 2, "dp=2 tp=2"},
		"one GPU, ranks share it":  {linked("X"), 2, "dp=2 tp=2"},
		"neighbors are the others": {linked("X SYS NV SYS", "SYS X SYS NV", "NV SYS X SYS", "SYS NV SYS X"), 4, "dp=4 pp=4"},
	} {
		t.Run(name, func(t *testing.T) {
			n := len(c.links.GPUs)
			h := hostInfo{GPUs: make([]gpuInfo, n)}
			for i, g := range c.links.GPUs {
				h.GPUs[i].PCIBusID = strings.ToUpper(g.BusID)
			}
			h.setLinks(c.links)
			for r := range c.ranks {
				h.Ranks = append(h.Ranks, r)
			}
			hosts := []hostInfo{h}
			var got []string
			for _, p := range placements(make([]int, c.ranks), nearRanks(hosts)) {
				got = append(got, p.Mesh)
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
			notes := gpuNotes(hosts)
			assert.Equal(t, c.ranks != n, len(notes) == 1)
		})
	}
}

func TestNearWithoutNVML(t *testing.T) {
	h := hostInfo{GPUs: []gpuInfo{{NUMA: 0}, {NUMA: 0}, {NUMA: 1}}}
	h.guessNear()
	assert.Equal(t, []bool{true, true, false}, h.GPUs[0].Near)
	assert.Equal(t, []bool{false, false, true}, h.GPUs[2].Near)
}

// topo runs `ringo topo -json` with more variables.
func topo(t *testing.T, env ...string) (topology, string) {
	t.Helper()
	cmd, out, errs, _ := command(t, "topo", "-json", "-ranks", "2", "-backend", "local")
	cmd.Env = append(cmd.Env, env...)
	require.NoError(t, cmd.Run(), errs)
	var top topology
	require.NoError(t, json.Unmarshal(out.Bytes(), &top))
	var text strings.Builder
	top.write(&text)
	return top, text.String()
}

func TestTopoWithGPUs(t *testing.T) {
	emu.Start(t, emu.Config{}) // two devices
	top, text := topo(t)
	require.Len(t, top.Hosts[0].GPUs, 2)
	assert.Equal(t, []string{"X", "NV2"}, top.Hosts[0].GPUs[0].Links)
	assert.Equal(t, "tp=2", top.Meshes[1].Mesh)
	assert.Regexp(t, `GPU 0: CPU emulator 0, sm_90, 4.0 GiB, PCI 0000:01:00.0`, text)
	assert.Regexp(t, `links +GPU 0 +GPU 1\n +GPU 0 +X +NV2\n +GPU 1 +NV2 +X\n`, text)

	top, text = topo(t, "RINGO_NVML_LIB=/none")
	assert.Nil(t, top.Hosts[0].GPUs[0].Links)
	assert.Contains(t, text, "how the GPUs are linked is not known: cuda: NVML comes with NVIDIA's driver")

	if reliability.Long(t) { // on a machine without GPUs, all other tests of topo have none
		top, _ = topo(t, "RINGO_CUDA_LIB=/none")
		assert.Empty(t, top.Hosts[0].GPUs)
		assert.Empty(t, top.Hosts[0].Notes)
	}
}

func TestLongTopoWithGPUs(t *testing.T) { reliability.AsLong(t, TestTopoWithGPUs) }

func TestNUMANodeOfGPU(t *testing.T) {
	emu.Start(t, emu.Config{})
	var h hostInfo
	h.findGPUs(fstest.MapFS{"sys/bus/pci/devices/0000:02:00.0/numa_node": {Data: []byte("1\n")}})
	require.Len(t, h.GPUs, 2)
	assert.Equal(t, [2]int{-1, 1}, [2]int{h.GPUs[0].NUMA, h.GPUs[1].NUMA})
	assert.Equal(t, []bool{true, true}, h.GPUs[0].Near)
}

func TestGPUsThatNVMLDoesNotShow(t *testing.T) {
	h := hostInfo{GPUs: []gpuInfo{{Info: cuda.Info{PCIBusID: "0000:01:00.0"}}}}
	h.setLinks(linked("X"))
	assert.Equal(t, []string{"how the GPUs are linked is not known: NVML does not show 0000:01:00.0"}, h.Notes)
	assert.Equal(t, []bool{true}, h.GPUs[0].Near)
}
