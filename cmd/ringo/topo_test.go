package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopo(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"local", "tcp"} {
		if backend == "tcp" {
			needsProcesses(t)
		}
		stdout, stderr, code := run(t, "topo", "-json", "-ranks", "3", "-backend", backend)
		require.Equal(t, 0, code, stderr)
		var top topology
		require.NoError(t, json.Unmarshal([]byte(stdout), &top), stdout)
		assert.Equal(t, 3, top.Ranks)
		assert.Equal(t, backend, top.Backend)
		require.Len(t, top.Hosts, 1)
		assert.Equal(t, []int{0, 1, 2}, top.Hosts[0].Ranks)
		assert.Positive(t, top.Hosts[0].Cores)
		for from := range 3 {
			for to := range 3 {
				assert.Equal(t, from != to, top.LatencyUS[from][to] > 0, "%s, %d to %d", backend, from, to)
				assert.Equal(t, from != to, top.Bandwidth[from][to] > 0, "%s, %d to %d", backend, from, to)
			}
		}
		require.NotEmpty(t, top.Meshes)
		assert.Equal(t, "dp=3", top.Meshes[0].Mesh)
	}
	stdout, _, code := run(t, "topo", "-ranks", "2", "-backend", "local")
	assert.Equal(t, 0, code)
	for _, want := range []string{"host 0: ", ", ranks 0-1\n", "2 ranks, local", "GB/s, from", "tp=2"} {
		assert.Contains(t, stdout, want)
	}
	for args, want := range map[string]string{
		"-ranks=-1": "-ranks -1", "-ranks 0": "-ranks 0: want 1 to 1024", "-backend mpi": `"mpi" is not local, shm or tcp`,
	} {
		_, stderr, code := run(t, append([]string{"topo"}, strings.Fields(args)...)...)
		assert.Equal(t, 2, code)
		assert.Contains(t, stderr, want)
	}
}

func TestPlacements(t *testing.T) {
	for _, c := range []struct{ hosts, want string }{
		{"0", "dp=1"},
		{"00", "dp=2 tp=2"},
		{"000", "dp=3"},
		{"0000", "dp=4 tp=4"},
		{"000000000000", "dp=12 dp=3,tp=4"},
		{"0000000000000000", "dp=16 dp=2,tp=8"},
		{"01", "dp=2 pp=2"},
		{"0011", "dp=4 dp=2,tp=2 pp=2,tp=2"},
		{"0101", "dp=4"},
		{"001", "dp=3"},
		{"0000111122223333", "dp=16 dp=4,tp=4 pp=4,tp=4"},
		{"000000111111", "dp=12 dp=6,tp=2 pp=2,dp=3,tp=2"},
		{"000011", "dp=6 dp=3,tp=2"},
	} {
		var hostOf []int
		for _, h := range c.hosts {
			hostOf = append(hostOf, int(h-'0'))
		}
		var got []string
		for _, p := range placements(hostOf, func(a, b int) bool { return hostOf[a] == hostOf[b] }) {
			got = append(got, p.Mesh)
			assert.NotEmpty(t, p.When)
		}
		assert.Equal(t, c.want, strings.Join(got, " "), c.hosts)
	}
}

func TestReadSystem(t *testing.T) {
	files := fstest.MapFS{
		"proc/cpuinfo":                             {Data: []byte("processor\t: 0\nmodel name\t: Some CPU\n")},
		"proc/meminfo":                             {Data: []byte("MemTotal:       1024 kB\n")},
		"sys/devices/system/node/node0/cpulist":    {Data: []byte("0-1\n")},
		"sys/devices/system/node/node0/meminfo":    {Data: []byte("Node 0 MemTotal:       512 kB\n")},
		"sys/devices/system/node/node1/cpulist":    {Data: []byte("2-3\n")},
		"sys/devices/system/cpu/cpu0/online":       {Data: []byte("1\n")},
		"sys/devices/system/cpu/cpufreq/boost":     {Data: []byte("1\n")},
		"sys/devices/system/cpu/cpu1/cache/uevent": {},
	}
	cache := func(cpu, index, level, kind, size, shared string) {
		dir := "sys/devices/system/cpu/cpu" + cpu + "/cache/index" + index + "/"
		for name, text := range map[string]string{"level": level, "type": kind, "size": size, "shared_cpu_list": shared} {
			files[dir+name] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
	}
	cache("0", "0", "1", "Data", "48K", "0")
	cache("1", "0", "1", "Data", "48K", "1")
	cache("0", "1", "3", "Unified", "32M", "0-1")
	cache("1", "1", "3", "Unified", "32M", "0-1")
	h := hostInfo{Cores: 2, OS: "linux/amd64"}
	h.readSystem(files)
	assert.Equal(t, []string{"Some CPU, 2 cores, linux/amd64, 0.0 GiB", "NUMA node 0: cores 0-1, 0.0 GiB", "NUMA node 1: cores 2-3, 0.0 GiB",
		"caches: L1 data 48K × 2, L3 unified 32M × 1"}, h.lines())
	assert.Equal(t, 1<<20, h.Memory)
	assert.Equal(t, 512<<10, h.NUMA[0].Memory)
	nothing := hostInfo{Cores: 1, OS: "x/y"}
	nothing.readSystem(fstest.MapFS{})
	assert.Equal(t, []string{"CPU not known, 1 cores, x/y"}, nothing.lines())
	assert.Equal(t, "0-2,5,7-8", numbers([]int{0, 1, 2, 5, 7, 8}))
}
