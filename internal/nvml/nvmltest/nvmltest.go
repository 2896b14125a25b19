package nvmltest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/fake.c
var source []byte

// Build compiles the library and returns its path; the environment variable RINGO_NVML_LIB takes it. The test is skipped
// where there is no gcc. Another variable, FAKE_NVML, names the host, whose GPUs have the bus ids 0000:01:00.0,
// 0000:02:00.0 and so on: "pairs" has NVLinks between 0 and 1, and between 2 and 3; "switch" has 18 of each GPU into
// switches; "pcie" has none. GPUs 0 and 1 are on one PCIe switch, 2 and 3 as well, and the pairs on different NUMA nodes.
func Build(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the fake NVML is made by gcc, which is not installed")
	}
	dir := t.TempDir()
	file, lib := filepath.Join(dir, "fake.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return lib
}
