package gpt_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/nn"
)

// fused are the matrices of files that are several layers here, by the names of their modules, with their rows and columns in testdata.
var fused = map[string]map[string][2]int{
	"gpt2": {"h.1.attn.c_attn": {36, 12}},
	"phi3": {"model.layers.0.self_attn.qkv_proj": {16, 8}, "model.layers.0.mlp.gate_up_proj": {20, 8}},
}

// matrixIn returns a matrix of a folder's file, in float64.
func matrixIn(t *testing.T, dir, name string) (values []float64, dims []int) {
	file, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	h, err := safetensors.Read("", bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	for _, x := range h.Tensors {
		if x.Name != name && x.Name != "transformer."+name {
			continue
		}
		b := file[h.Size+x.Start : h.Size+x.End]
		for i := range x.Len() {
			if x.DType == "F64" {
				values = append(values, math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
			} else {
				values = append(values, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))))
			}
		}
		return values, x.Shape
	}
	require.Fail(t, "no tensor", name)
	return nil, nil
}

// ramp is a matrix whose rows differ.
func ramp(rows, columns int) (x []float64) {
	for i := range rows * columns {
		x = append(x, float64(i/columns)+float64(i%columns*7%5)/8)
	}
	return x
}

// adapterFolder writes adapters of modules as PEFT does: lora_A is one row of ones, lora_B is a ramp.
func adapterFolder(t *testing.T, prefix string, modules map[string][2]int) (dir string) {
	var tensors []safetensors.Tensor
	values, list := map[string][]float64{}, ""
	for name, dims := range modules {
		a, b := prefix+name+".lora_A.weight", prefix+name+".lora_B.weight"
		tensors = append(tensors, safetensors.Tensor{Name: a, DType: "F64", Shape: []int{1, dims[1]}},
			safetensors.Tensor{Name: b, DType: "F64", Shape: []int{dims[0], 1}})
		values[a], values[b] = ramp(1, dims[1]), ramp(dims[0], 1)
		list += fmt.Sprintf(", %q", name)
	}
	h, err := safetensors.New(tensors, nil)
	require.NoError(t, err)
	file := h.Encode()
	for _, x := range h.Tensors {
		for _, v := range values[x.Name] {
			file = binary.LittleEndian.AppendUint64(file, math.Float64bits(v))
		}
	}
	dir = t.TempDir()
	config := fmt.Sprintf(`{"peft_type": "LORA", "r": 1, "lora_alpha": 0.5, "target_modules": [%s]}`, list[2:])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, peft.File), file, 0o666))
	return dir
}

// The parts of a matrix have their own rows of its adapter: what is merged and saved is the matrix of the file + alpha/r·B·A.
func TestFusedAdapterRows(t *testing.T) {
	for kind, modules := range fused {
		base := filepath.Join("testdata", kind)
		prefix := map[string]string{"gpt2": "base_model.model.transformer.", "phi3": "base_model.model."}[kind]
		m, _ := withAdapters(t, base, adapterFolder(t, prefix, modules))
		nn.Merge(m)
		whole := merged(t, m)
		for name, dims := range modules {
			want, shape := matrixIn(t, base, name+".weight")
			got, _ := matrixIn(t, whole, name+".weight")
			require.Len(t, want, dims[0]*dims[1])
			a, b := ramp(1, dims[1]), ramp(dims[0], 1)
			for i := range want {
				row, column := i/shape[1], i%shape[1]
				if shape[0] == dims[1] { // [in, out]
					row, column = column, row
				}
				want[i] += 0.5 * b[row] * a[column]
			}
			require.InDeltaSlice(t, want, got, 1e-12, name)
		}
	}
}
