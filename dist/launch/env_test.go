package launch

import (
	"maps"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vars makes a map of "NAME=value" words.
func vars(words string) map[string]string {
	m := map[string]string{}
	for w := range strings.FieldsSeq(words) {
		name, value, _ := strings.Cut(w, "=")
		m[name] = value
	}
	return m
}

func fromMap(m map[string]string) (Env, error) {
	return FromEnv(func(name string) string { return m[name] })
}

const secret = "RINGO_JOB_SECRET=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff "

func TestFromEnv(t *testing.T) {
	slurm := secret + "SLURM_STEP_ID=2 SLURM_JOB_ID=77 SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 " +
		"SLURM_STEP_NODELIST=gpu-[07-08] SLURM_STEP_TASKS_PER_NODE=4(x2) "
	ompi := secret + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 "
	torch := secret + "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=29500 "
	slurmPort, _ := jobPort(0, "slurm-77.2", "")
	mpiPort, _ := jobPort(0, "prte-1@1", "")
	cases := []struct {
		name, vars string
		want       Env
	}{
		{"nobody", "", Env{}},
		{"nobody, with settings", "RINGO_TIMEOUT=1m30s RINGO_JOIN_TIMEOUT=5m RINGO_THREADS=2 RINGO_DEVICE=cpu RINGO_BIND=10.0.0.7",
			Env{Timeout: 90 * time.Second, JoinTimeout: 5 * time.Minute, Threads: 2, Device: "cpu", Bind: "10.0.0.7"}},
		{"ringo", secret +
			"RINGO_RANK=1 RINGO_WORLD_SIZE=2 RINGO_LOCAL_RANK=1 RINGO_LOCAL_SIZE=2 RINGO_MASTER=127.0.0.1:4000 RINGO_JOB_ID=j RINGO_GENERATION=2",
			Env{Generation: 2, Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Addr: "127.0.0.1:4000", AddrFrom: "RINGO_MASTER", Job: "j",
				Source: "ringo"}},
		{"rank 0 listens", secret + "RINGO_RANK=0 RINGO_WORLD_SIZE=2 RINGO_MASTER=h:1 RINGO_LISTEN_FD=4",
			Env{Size: 2, Addr: "h:1", AddrFrom: "RINGO_MASTER", Source: "ringo", ListenFD: 4}},
		{"one rank needs no secret and no address", "RINGO_RANK=0 RINGO_WORLD_SIZE=1", Env{Size: 1, Source: "ringo"}},
		{"MPI connects the ranks itself", "RINGO_BACKEND=mpi PMI_RANK=1 PMI_SIZE=2", Env{Rank: 1, Size: 2, Source: "pmi", Backend: "mpi"}},
		{"torchrun", torch,
			Env{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Addr: "node0:29501", AddrFrom: "MASTER_PORT=29500 plus 1", Source: "torchrun"}},
		{"torchrun restarts", "TORCHELASTIC_RESTART_COUNT=2 " + torch, Env{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Addr: "node0:29501",
			AddrFrom: "MASTER_PORT=29500 plus 1", Source: "torchrun", Generation: 3}},
		{"torchrun with RINGO_PORT", torch + "RINGO_PORT=5",
			Env{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Addr: "node0:5", AddrFrom: "RINGO_PORT", Source: "torchrun"}},
		{"torchrun on IPv6", secret + "RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1",
			Env{Size: 2, Addr: "[::1]:2", AddrFrom: "MASTER_PORT=1 plus 1", Source: "torchrun"}},
		{"torchrun inside Slurm", "TORCHELASTIC_RUN_ID=run7 " + torch + slurm,
			Env{Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Addr: "node0:29501", AddrFrom: "MASTER_PORT=29500 plus 1", Job: "run7",
				Source: "torchrun"}},
		{"ringo inside torchrun", torch + "RINGO_RANK=0 RINGO_WORLD_SIZE=1", Env{Size: 1, Source: "ringo"}},
		{"slurm", slurm, Env{Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Job: "slurm-77.2", Source: "slurm",
			Addr:     net.JoinHostPort("gpu-07", strconv.Itoa(slurmPort)),
			AddrFrom: "first host of SLURM_STEP_NODELIST, port from the job's name slurm-77.2"}},
		{"slurm and RANK agree", slurm + "RANK=5 WORLD_SIZE=8 RINGO_MASTER=h:9",
			Env{Rank: 5, Size: 8, Addr: "h:9", AddrFrom: "RINGO_MASTER", Source: "torchrun"}},
		{"slurm batch script", "SLURM_JOB_ID=77 SLURM_PROCID=0 SLURM_NTASKS=8", Env{}},
		{"slurm interactive step", "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_NTASKS=8", Env{}},
		{"mpirun's helper is a Slurm step",
			ompi + "OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=prte-1@1 PMIX_RANK=1 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1",
			Env{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4, Job: "prte-1@1", Source: "openmpi",
				Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(mpiPort)), AddrFrom: "all ranks are on this host, port from the job's name prte-1@1"}},
		{"openmpi on two hosts", ompi + "OMPI_COMM_WORLD_LOCAL_SIZE=2 RINGO_MASTER=a:7 RINGO_PORT=7",
			Env{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, Addr: "a:7", AddrFrom: "RINGO_MASTER", Source: "openmpi"}},
		{"pmi", secret + "PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3 RINGO_PORT=88",
			Env{Rank: 2, Size: 3, LocalRank: 2, LocalSize: 3, Addr: "127.0.0.1:88", AddrFrom: "all ranks are on this host, RINGO_PORT",
				Source: "pmi"}},
		{"srun --mpi=pmi2", slurm + "PMI_RANK=5 PMI_SIZE=8 RINGO_MASTER=h:9", Env{Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Job: "slurm-77.2",
			Addr: "h:9", AddrFrom: "RINGO_MASTER", Source: "slurm"}},
		{"mpiexec inside Slurm", slurm + "PMI_RANK=1 PMI_SIZE=3 RINGO_MASTER=h:9",
			Env{Rank: 1, Size: 3, Addr: "h:9", AddrFrom: "RINGO_MASTER", Source: "pmi"}},
		{"pmix", secret + "PMIX_RANK=1 RINGO_WORLD_SIZE=2 RINGO_MASTER=h:9",
			Env{Rank: 1, Size: 2, Addr: "h:9", AddrFrom: "RINGO_MASTER", Source: "pmix"}},
		{"kubernetes", secret + "JOB_COMPLETION_INDEX=1 RINGO_WORLD_SIZE=3 RINGO_MASTER=job-0.svc:29400 RINGO_JOB_ID=k",
			Env{Rank: 1, Size: 3, Addr: "job-0.svc:29400", AddrFrom: "RINGO_MASTER", Job: "k", Source: "kubernetes"}},
		{"kubernetes, independent programs", "JOB_COMPLETION_INDEX=1", Env{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { requireEnv(t, c.want, vars(c.vars)) })
	}
}

// requireEnv wants an Env from variables; if there is a launcher, with the secret.
func requireEnv(t *testing.T, want Env, m map[string]string) {
	t.Helper()
	got, err := fromMap(m)
	require.NoError(t, err)
	if want.Source != "" {
		want.Secret = m["RINGO_JOB_SECRET"]
	}
	assert.Equal(t, want, got)
}

func TestFromEnvErrors(t *testing.T) {
	torch := "RANK=0 WORLD_SIZE=4 MASTER_ADDR=n MASTER_PORT=29500 "
	cases := []struct{ vars, want string }{
		{"RANK=4 WORLD_SIZE=4", "RANK=4 (torchrun): WORLD_SIZE=4, so ranks are 0 to 3"},
		{"RANK=x WORLD_SIZE=4", "RANK=x (torchrun): not a whole number"},
		{"RANK=-1 WORLD_SIZE=4", "RANK=-1 (torchrun): want 0 to"},
		{"RANK=1", "RANK=1 (torchrun): set without WORLD_SIZE"},
		{"WORLD_SIZE=2", "WORLD_SIZE=2 (torchrun): set without RANK"},
		{"WORLD_SIZE=0 RANK=0", "WORLD_SIZE=0 (torchrun): want 1 to"},
		{"WORLD_SIZE=99999999999999999999 RANK=0", "WORLD_SIZE=99999999999999999999 (torchrun): too large"},
		{"LOCAL_RANK=1", "LOCAL_RANK=1 (torchrun): set without RANK and WORLD_SIZE"},
		{torch + "LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2 (torchrun): this host has 2 ranks"},
		{torch + "LOCAL_WORLD_SIZE=5", "LOCAL_WORLD_SIZE=5 (torchrun): more than WORLD_SIZE=4"},
		{"RANK=0 WORLD_SIZE=2", "RANK=0 (torchrun): set without MASTER_ADDR"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=n", "MASTER_ADDR=n (torchrun): set without MASTER_PORT"},
		{torch + "MASTER_PORT=65535", "MASTER_PORT=65535 (torchrun): the next port"},
		{torch + "MASTER_PORT=70000", "MASTER_PORT=70000 (torchrun): want 1 to 65535"},
		{torch, "openssl rand -hex 32"},
		{torch + "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4", "RANK=0 (torchrun): slurm says SLURM_PROCID=1"},
		{torch + "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=8", "WORLD_SIZE=4 (torchrun): slurm says SLURM_NTASKS=8"},
		{torch + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4", "RANK=0 (torchrun): openmpi says OMPI_COMM_WORLD_RANK=1"},
		{"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4 PMIX_RANK=2", "SLURM_PROCID=1 (slurm): pmix says PMIX_RANK=2"},
		{"SLURM_STEP_ID=0 SLURM_PROCID=1", "SLURM_PROCID=1 (slurm): set without SLURM_NTASKS"},
		{"SLURM_STEP_ID=x SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_STEP_ID=x (slurm): not a whole number"},
		{"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2", "SLURM_PROCID=1 (slurm): set without SLURM_STEP_NODELIST"},
		{"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODELIST=a[", "SLURM_NODELIST=a[ (slurm): bad range"},
		{"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=2 is not in the list"},
		{"RINGO_RANK=2 RINGO_WORLD_SIZE=2", "RINGO_RANK=2 (ringo): RINGO_WORLD_SIZE=2"},
		{"RINGO_WORLD_SIZE=2", "RINGO_WORLD_SIZE=2 (ringo): set without RINGO_RANK"},
		{"RINGO_RANK=0 RINGO_WORLD_SIZE=2", "RINGO_WORLD_SIZE=2 (ringo): where rank 0 listens is not known; set RINGO_MASTER"},
		{"RINGO_RANK=0 RINGO_WORLD_SIZE=2 RINGO_MASTER=h", "RINGO_MASTER=h (ringo): want host:port"},
		{"RINGO_RANK=0 RINGO_WORLD_SIZE=2 RINGO_MASTER=h:http", "RINGO_MASTER=h:http (ringo): want host:port"},
		{"RINGO_RANK=0 RINGO_WORLD_SIZE=2 RINGO_MASTER=h:1 RINGO_PORT=2", "RINGO_MASTER=h:1 (ringo): RINGO_PORT=2 says another port"},
		{"RINGO_RANK=1 RINGO_WORLD_SIZE=2 RINGO_MASTER=h:1 RINGO_LISTEN_FD=4", "RINGO_LISTEN_FD=4 (ringo): only rank 0 listens"},
		{"RINGO_MASTER=h:1 RINGO_TIMEOUT=1s", "RINGO_MASTER=h:1 (ringo): set, but neither RINGO_RANK"},
		{"RINGO_BACKEND=gloo", "RINGO_BACKEND=gloo (ringo): the only value is mpi; without it, Ringo uses its own engines"},
		{"RINGO_BACKEND=mpi", "RINGO_BACKEND=mpi (ringo): no launcher started this process; start it with mpiexec"},
		{"RINGO_BACKEND=mpi RINGO_RANK=0 RINGO_WORLD_SIZE=1", "RINGO_BACKEND=mpi (ringo): ringo starts no MPI job; start the ranks with mpiexec"},
		{"RINGO_BACKEND=mpi RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=1", "torchrun starts no MPI job"},
		{"RINGO_TIMEOUT=5", "RINGO_TIMEOUT=5 (ringo): not a positive duration such as 5s"},
		{"RINGO_TIMEOUT=-5s", "RINGO_TIMEOUT=-5s (ringo)"},
		{"RINGO_RANK=0 RINGO_WORLD_SIZE=1 RINGO_GENERATION=0", "RINGO_GENERATION=0 (ringo): want 1 to"},
		{torch + "TORCHELASTIC_RESTART_COUNT=-1", "TORCHELASTIC_RESTART_COUNT=-1 (torchrun): want 0 to"},
		{"RINGO_THREADS=0", "RINGO_THREADS=0 (ringo): want 1 to"},
		{"JOB_COMPLETION_INDEX=0 RINGO_MASTER=h:1", "JOB_COMPLETION_INDEX=0 (kubernetes): set without RINGO_WORLD_SIZE"},
		{"PMIX_RANK=0", "PMIX_RANK=0 (pmix): set without RINGO_WORLD_SIZE"},
		{"PMI_RANK=3 PMI_SIZE=3", "PMI_RANK=3 (pmi): PMI_SIZE=3"},
		{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_RANK=0 (openmpi): set without OMPI_COMM_WORLD_SIZE"},
		{"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_SIZE=2 (openmpi): where rank 0 listens is not known"},
	}
	for _, c := range cases {
		got, err := fromMap(vars(c.vars))
		if assert.Error(t, err, c.vars) {
			assert.Contains(t, err.Error(), c.want, c.vars)
		}
		assert.Zero(t, got, c.vars)
	}
}

func TestFirstHost(t *testing.T) {
	good := map[string]string{"a": "a", "a,b": "a", "gpu-[07-08]": "gpu-07", "n[3,7-9],x": "n3", "r[0-1]n[00-15].dc": "r0n00.dc",
		"a1b[2]c": "a1b2c"}
	for list, want := range good {
		got, err := firstHost(list)
		assert.NoError(t, err, list)
		assert.Equal(t, want, got)
	}
	for _, list := range []string{"", ",a", "a[", "a[1", "a[]", "a[x]", "a]", "a[1-2]]", "a b", "a/b", "[[1]]", "é"} {
		_, err := firstHost(list)
		assert.Error(t, err, list)
	}
}

func TestTasksOn(t *testing.T) {
	for node, want := range []int{4, 4, 1, 3} {
		got, err := tasksOn("4(x2),1,3", node)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, list := range []string{"", "x", "2(x", "2(x1", "2(x0)", "0", "2,", "-1", "1(x2)"} {
		_, err := tasksOn(list, 2)
		assert.Error(t, err, list)
	}
}

func FuzzFromEnv(f *testing.F) {
	f.Add("RANK=1 WORLD_SIZE=2 MASTER_ADDR=n MASTER_PORT=1 " + secret)
	f.Add(secret + "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NODELIST=a[1-2] SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_NODEID=1")
	f.Add(secret + "RINGO_RANK=0 RINGO_WORLD_SIZE=3 RINGO_MASTER=[::1]:2 RINGO_LISTEN_FD=4 RINGO_TIMEOUT=5s RINGO_THREADS=2")
	f.Add(secret + "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=x")
	f.Add("RANK=1 WORLD_SIZE=2 MASTER_ADDR=[ MASTER_PORT=2 " + secret)
	f.Add(secret + "JOB_COMPLETION_INDEX=1 RINGO_WORLD_SIZE=3 RINGO_MASTER=job-0.svc:29400")
	f.Fuzz(func(t *testing.T, words string) {
		m := vars(words)
		before := maps.Clone(m)
		e, err := fromMap(m)
		assert.Equal(t, before, m)
		if err != nil {
			assert.Zero(t, e)
			if s := m["RINGO_JOB_SECRET"]; len(s) == 64 {
				assert.NotContains(t, err.Error(), s)
			}
			return
		}
		if e.Source == "" {
			assert.Zero(t, e.Size)
			return
		}
		assert.True(t, e.Rank >= 0 && e.Rank < e.Size && e.Size <= maxRanks, "rank %d of %d", e.Rank, e.Size)
		assert.True(t, e.LocalSize == 0 || e.LocalRank < e.LocalSize && e.LocalSize <= e.Size)
		if e.Size > 1 {
			assert.NotEmpty(t, e.Secret)
			host, port, err := net.SplitHostPort(e.Addr)
			require.NoError(t, err)
			n, err := strconv.Atoi(port)
			require.NoError(t, err)
			assert.True(t, host != "" && n > 0 && n < 65536, e.Addr)
		}
	})
}
