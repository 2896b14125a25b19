package nvml_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/nvml"
	"github.com/ringo-ml/ringo/internal/nvml/nvmltest"
)

func TestLinks(t *testing.T) {
	path := nvmltest.Build(t)
	ids := []string{"0000:01:00.0", "00000000:02:00.0", "0000:03:00.0", "0000:04:00.0"}
	for host, want := range map[string][4][4]string{
		"pairs":  {{"", "NV3", "SYS", "SYS"}, {"NV3", "", "SYS", "SYS"}, {"SYS", "SYS", "", "NV3"}, {"SYS", "SYS", "NV3", ""}},
		"switch": {{"", "NV18", "NV18", "NV18"}, {"NV18", "", "NV18", "NV18"}, {"NV18", "NV18", "", "NV18"}, {"NV18", "NV18", "NV18", ""}},
		"pcie":   {{"", "PIX", "SYS", "SYS"}, {"PIX", "", "SYS", "SYS"}, {"SYS", "SYS", "", "PIX"}, {"SYS", "SYS", "PIX", ""}},
	} {
		t.Run(host, func(t *testing.T) {
			t.Setenv("FAKE_NVML", host)
			lib, err := nvml.Open(path)
			require.NoError(t, err)
			assert.Equal(t, "580.159.04", lib.Driver)
			gpus, err := lib.GPUs(ids)
			require.NoError(t, err)
			for i, g := range gpus {
				assert.Equal(t, [2]int{5, 16}, [2]int{g.PCIeGeneration, g.PCIeWidth})
				for j, link := range g.Links {
					if i != j {
						assert.Equal(t, want[i][j], link.String(), "%d to %d", i, j)
					}
				}
			}
			assert.Equal(t, nvml.SYS, gpus[0].Links[2].Path)
		})
	}
}

func TestErrors(t *testing.T) {
	path := nvmltest.Build(t)
	_, err := nvml.Open(path + ".none")
	assert.ErrorContains(t, err, "NVML comes with NVIDIA's driver")

	lib, err := nvml.Open(path)
	require.NoError(t, err)
	_, err = lib.GPUs([]string{"0000:99:00.0"})
	assert.EqualError(t, err, "nvml: nvmlDeviceGetHandleByPciBusId of 0000:99:00.0: fake error (6)")

	t.Setenv("FAKE_NVML", "broken")
	_, err = nvml.Open(path)
	assert.EqualError(t, err, "nvml: nvmlInit: Driver Not Loaded (9)")
	assert.Equal(t, "path 7", nvml.Path(7).String())
}
