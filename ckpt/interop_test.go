package ckpt

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// pythonRead lists what Python's safetensors reads from a folder with an index.
const pythonRead = `
import hashlib, json, os, sys
from safetensors import deserialize
folder, out = sys.argv[1], []
index = json.load(open(os.path.join(folder, "model.safetensors.index.json")))
for file in sorted(set(index["weight_map"].values())):
    for name, t in deserialize(open(os.path.join(folder, file), "rb").read()):
        assert index["weight_map"][name] == file
        out.append({"Name": name, "DType": t["dtype"], "Shape": t["shape"], "Hash": hashlib.sha256(bytes(t["data"])).hexdigest()})
print(json.dumps(out))
`

// pythonWrite writes a folder as Hugging Face's libraries do.
const pythonWrite = `
import json, os, sys
import ctypes
from safetensors import TensorSpec, serialize_file
folder = sys.argv[1]
sizes = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1, "float8_e4m3fn": 1}
weights, alive = {}, []
for k, (dtype, size) in enumerate(sizes.items()):
    data = bytes((7 * i + k) % 2 if dtype == "bool" else (31 * i + 7 * k) % 120 for i in range(15 * size))
    file = "model-0000%d-of-00002.safetensors" % (1 + k % 2)
    alive.append(ctypes.create_string_buffer(data, len(data)))
    weights.setdefault(file, {})["w." + dtype] = TensorSpec(dtype=dtype, shape=[5, 3], data_ptr=ctypes.addressof(alive[-1]), data_len=len(data))
for file, tensors in weights.items():
    serialize_file(tensors, os.path.join(folder, file), metadata={"format": "pt"})
index = {"metadata": {"total_size": 15 * sum(sizes.values())}, "weight_map": {n: f for f, ts in weights.items() for n in ts}}
json.dump(index, open(os.path.join(folder, "model.safetensors.index.json"), "w"))
`

// python runs a script if there is a Python with safetensors. If RINGO_PYTHON names an interpreter, it must have it.
// The flag -I keeps Python from importing the directory safetensors here.
func python(t *testing.T, script string, args ...string) []byte {
	t.Helper()
	name := cmp.Or(os.Getenv("RINGO_PYTHON"), "python3")
	if out, err := exec.Command(name, "-I", "-c", "from safetensors import TensorSpec").CombinedOutput(); err != nil {
		if os.Getenv("RINGO_PYTHON") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("no Python with safetensors")
	}
	out, err := exec.Command(name, append([]string{"-I", "-c", script}, args...)...).Output()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%s", exit.Stderr)
	}
	require.NoError(t, err)
	return out
}

func TestPythonReads(t *testing.T) {
	for _, name := range []string{"ddp2", "tp2fsdp2"} {
		path := save(t, t.TempDir(), layouts[name], 2)
		var got []struct {
			Name, DType, Hash string
			Shape             []int
		}
		require.NoError(t, json.Unmarshal(python(t, pythonRead, path), &got))
		require.Len(t, got, len(specs))
		onRanks(t, 1, func(g *dist.Group) error {
			want := newState(t, g, layouts["ddp1"], 2)
			for _, x := range got {
				p := want.Params.ByName(x.Name)
				b := tensor.ToHost(p.Local).Bytes()
				shape := append([]int{}, p.Dims()...)
				if p.Transposed() {
					slices.Reverse(shape)
					b = byColumns(b, shape[0], shape[1], p.Local.DType().Size())
				}
				require.Equal(t, storage.Sum(b), x.Hash, x.Name)
				require.Equal(t, string(storage.DTypes[p.Local.DType()]), x.DType)
				require.Equal(t, shape, x.Shape)
			}
			return nil
		})
	}
}

// byColumns returns a matrix of rows and cols column by column.
func byColumns(b []byte, cols, rows, size int) (out []byte) {
	for c := range cols {
		for r := range rows {
			at := (r*cols + c) * size
			out = append(out, b[at:at+size]...)
		}
	}
	return out
}

func TestPythonWrites(t *testing.T) {
	dir := t.TempDir()
	python(t, pythonWrite, dir)
	v := mustVerify(t, dir, inspect.VerifyConfig{Layout: "fsdp=2"})
	require.True(t, v.OK, v.Errors)
	require.Equal(t, 9, v.Tensors)
	require.Equal(t, int64(15*31), v.Bytes)
	onRanks(t, 2, func(g *dist.Group) error {
		var params nn.Params
		order := []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16, tensor.Int64, tensor.Int32, tensor.Uint8,
			tensor.Bool}
		for _, d := range order {
			p := tensor.NewParam(tensor.Constant(0), 5, 3)
			p.SetName("w." + d.String())
			p.Shard(layout.Share(15, g.Rank(), 2))
			p.Local = tensor.New(g.Device(), d, p.Placement().Len())
			params = append(params, p)
		}
		_, err := Load(context.Background(), g, dir, &State{Params: params}, LoadConfig{})
		require.ErrorContains(t, err, "unexpected: model:w.float8_e4m3fn")
		r, err := Load(context.Background(), g, dir, &State{Params: params}, LoadConfig{Partial: true})
		require.NoError(t, err)
		require.Equal(t, 8, r.Tensors)
		for k, p := range params {
			first, _ := p.Placement().Range()
			for i, b := range p.Local.Bytes() {
				i += first * p.Local.DType().Size()
				want := (31*i + 7*k) % 120
				if p.Local.DType() == tensor.Bool {
					want = (7*i + k) % 2
				}
				require.Equal(t, byte(want), b, "%s byte %d", p.Name(), i)
			}
		}
		return nil
	})
	to := filepath.Join(t.TempDir(), "new")
	require.NoError(t, inspect.Convert(context.Background(), dir, to, inspect.ConvertConfig{}))
	require.True(t, mustVerify(t, to, inspect.VerifyConfig{}).OK)
	d, err := inspect.Diff(context.Background(), dir, to, nil)
	require.NoError(t, err)
	require.True(t, d.Same)
	python(t, pythonRead, to)
}

// pythonFile reads a file of SaveFile and, if there is PyTorch, loads it into the same model.
const pythonFile = `
import json, sys
from safetensors import safe_open
from safetensors.numpy import load_file
tensors = load_file(sys.argv[1])
meta = safe_open(sys.argv[1], "np").metadata()
out = {"names": sorted(tensors), "format": meta["format"], "step": json.loads(meta["ringo"])["checkpoint"]["step"]}
out["sum"] = float(sum(t.astype("float64").sum() for t in tensors.values()))
try:
    import torch
except ImportError:
    torch = None
if torch:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)).double()
    state = {k: torch.from_numpy(t) for k, t in tensors.items()}
    model.load_state_dict({k: t for k, t in state.items() if not k.startswith("optimizer.")}, strict=True)
    model.eval()
    out["logits"] = model(torch.linspace(-1, 1, 32, dtype=torch.float64).reshape(2, 1, 4, 4)).flatten().tolist()
    adam = torch.optim.AdamW(model.parameters())
    for name, p in model.named_parameters():
        assert state["optimizer.state." + name + ".exp_avg"].shape == p.shape
        assert state["optimizer.state." + name + ".exp_avg_sq"].shape == p.shape
print(json.dumps(out))
`

func TestPythonReadsFile(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	model := nn.Sequential{nn.NewConv2d(1, 2, 3, ops.Conv2dOptions{}), nn.NewBatchNorm2d(2), nn.ReLU, nn.Flatten{}, nn.NewLinear(8, 3)}
	params := nn.Init(model, dev, tensor.Float64, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{})
	st := State{Step: 1, Params: params, Optimizer: opt}
	pictures := tensor.New(dev, tensor.Float64, 2, 1, 4, 4)
	for i, v := 0, tensor.Data[float64](pictures); i < 32; i++ {
		v[i] = -1 + float64(i)*2/31
	}
	tape := tensor.NewTape(dev)
	tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(pictures)), tensor.FromSlice([]int64{1, 2}, 2)))
	require.NoError(t, opt.Step())
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, SaveFile(t.Context(), path, st))

	var got struct {
		Names  []string
		Format string
		Step   int
		Sum    float64
		Logits []float64
	}
	require.NoError(t, json.Unmarshal(python(t, pythonFile, path), &got))
	items, err := st.items()
	require.NoError(t, err)
	names, total := []string{}, 0.0
	for _, x := range items {
		names = append(names, storage.SingleName(x.Model, x.Name))
		for _, v := range tensor.Floats(x.data) {
			total += v
		}
	}
	slices.Sort(names)
	require.Contains(t, names, "1.running_var")
	require.Contains(t, names, "optimizer.state.0.weight.exp_avg_sq")
	require.Equal(t, names, got.Names)
	require.Equal(t, "pt", got.Format)
	require.Equal(t, 1, got.Step)
	require.InDelta(t, total, got.Sum, 1e-9)
	if got.Logits == nil {
		t.Log("no PyTorch")
		return
	}
	eval := tensor.NewTape(dev, tensor.NoGrad())
	require.InDeltaSlice(t, tensor.Floats(model.Forward(eval.Input(pictures))), got.Logits, 1e-12)
}
