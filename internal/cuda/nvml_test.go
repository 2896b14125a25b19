package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

func TestTopology(t *testing.T) {
	emu.Start(t, emu.Config{})
	top, err := cuda.ReadTopology()
	require.NoError(t, err)
	if emu.OnGPU() {
		require.NotEmpty(t, top.DriverVersion)
		require.NotEmpty(t, top.GPUs)
		for i, gpu := range top.GPUs {
			t.Logf("%+v %v", gpu, top.Paths[i])
			require.True(t, gpu.Name != "" && gpu.Total > gpu.Used && gpu.Total>>30 > 0, "%+v", gpu)
			require.Regexp(t, `^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.0$`, gpu.BusID)
		}
		return
	}
	require.Equal(t, "580.65.06", top.DriverVersion)
	require.Len(t, top.GPUs, 4)
	require.Equal(t, cuda.GPU{Name: "CPU emulator 2", UUID: "GPU-00000002", BusID: "0000:03:00.0", Total: 4 << 30, Used: 1 << 30,
		NUMA: top.GPUs[2].NUMA}, top.GPUs[2])
	require.Equal(t, [][]string{
		{"X", "NV2", "SYS", "SYS"},
		{"NV2", "X", "SYS", "SYS"},
		{"SYS", "SYS", "X", "PIX"},
		{"SYS", "SYS", "PIX", "X"},
	}, top.Paths)
}

func TestLinksThroughSwitches(t *testing.T) {
	const gpu, s1, s2 = "0000:01:00.0", "0000:a0:00.0", "0000:a1:00.0"
	require.Equal(t, 4, cuda.Joined(map[string]int{gpu: 4, s1: 2}, map[string]int{s1: 2}, gpu))
	require.Equal(t, 5, cuda.Joined(map[string]int{s1: 2, s2: 4}, map[string]int{s1: 3, s2: 3}, gpu))
	require.Zero(t, cuda.Joined(map[string]int{s1: 2}, map[string]int{s2: 3}, gpu))
}
