package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// source has the names of one launcher's variables; a field is "" if the launcher has no such variable.
type source struct {
	name                             string
	rank, size, localRank, localSize string
}

// sources are in the order of precedence, the innermost launcher first. mpirun and mpiexec start their helpers with srun, so under them
// Slurm's numbers are those of the helpers.
var sources = []*source{
	{name: "ringo", rank: "RINGO_RANK", size: "RINGO_WORLD_SIZE", localRank: "RINGO_LOCAL_RANK", localSize: "RINGO_LOCAL_SIZE"},
	{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", localRank: "LOCAL_RANK", localSize: "LOCAL_WORLD_SIZE"},
	{name: "openmpi", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
		localRank: "OMPI_COMM_WORLD_LOCAL_RANK", localSize: "OMPI_COMM_WORLD_LOCAL_SIZE"},
	{name: "pmi", rank: "PMI_RANK", size: "PMI_SIZE", localRank: "MPI_LOCALRANKID", localSize: "MPI_LOCALNRANKS"},
	{name: "slurm", rank: "SLURM_PROCID", size: "SLURM_NTASKS", localRank: "SLURM_LOCALID"},
	{name: "pmix", rank: "PMIX_RANK", size: "RINGO_WORLD_SIZE"},
	{name: "kubernetes", rank: "JOB_COMPLETION_INDEX", size: "RINGO_WORLD_SIZE"},
}

// present reports whether variables of the launcher are set, maybe not all of them.
func (p *parser) present(s *source) bool {
	has := func(name string) bool { return name != "" && p.get(name) != "" }
	switch s.name {
	case "ringo":
		// PMIx and Kubernetes tell no size: with them RINGO_WORLD_SIZE may be set alone.
		alone := p.get("PMIX_RANK") == "" && p.get("JOB_COMPLETION_INDEX") == ""
		return has(s.rank) || has(s.localRank) || has(s.localSize) || has(s.size) && alone
	case "slurm":
		return p.inSlurmStep()
	case "kubernetes":
		// An indexed Job without Ringo's variables runs independent programs.
		return has(s.rank) && (has(s.size) || has("RINGO_MASTER"))
	case "pmi", "openmpi":
		return has(s.rank) || has(s.size)
	case "pmix":
		return has(s.rank)
	}
	return has(s.rank) || has(s.size) || has(s.localRank) || has(s.localSize)
}

// pick returns the launcher whose variables count; nil if there is none.
func (p *parser) pick() *source {
	var found []*source
	for _, s := range sources {
		if p.present(s) {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil
	}
	first := found[0]
	if len(found) == 1 {
		return first
	}
	next := found[1]
	byHand := first.name == "torchrun" && p.get("TORCHELASTIC_RUN_ID") == ""
	switch {
	case byHand, first.name == "slurm" && next.name == "pmix":
		p.agree(first, next)
	case first.name == "pmi" && next.name == "slurm" && p.same(first.rank, next.rank) && p.same(first.size, next.size):
		return next // srun --mpi=pmi2: Slurm also knows the hosts
	}
	return first
}

func (p *parser) same(a, b string) bool { return p.get(a) == p.get(b) }

// agree notes an error if the numbers of two launchers differ.
func (p *parser) agree(a, b *source) {
	for _, pair := range [][2]string{{a.rank, b.rank}, {a.size, b.size}} {
		x, y := p.get(pair[0]), p.get(pair[1])
		if x != "" && y != "" && x != y {
			p.fail(a.name, pair[0], x, "%s says %s=%s; remove the variables of one of them", b.name, pair[1], y)
		}
	}
}

// inSlurmStep reports whether srun started this process. Batch scripts and interactive shells also have SLURM_PROCID=0. They have no
// step, or one of the special steps, which have the largest numbers.
func (p *parser) inSlurmStep() bool {
	const firstSpecialStep = 0xfffffff0
	s := p.get("SLURM_STEP_ID")
	if s == "" || p.get("SLURM_PROCID") == "" && p.get("SLURM_NTASKS") == "" {
		return false
	}
	step, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.fail("slurm", "SLURM_STEP_ID", s, "not a whole number")
	}
	return step < firstSpecialStep
}

// slurmHost returns the first host of the step, where rank 0 is.
func (p *parser) slurmHost() (host, from string) {
	for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"} {
		if list := p.get(name); list != "" {
			host, err := firstHost(list)
			if err != nil {
				p.fail("slurm", name, list, "%v", err)
			}
			return host, "first host of " + name
		}
	}
	p.fail("slurm", "SLURM_PROCID", p.get("SLURM_PROCID"), "set without SLURM_STEP_NODELIST; set RINGO_MASTER=host:port on every rank")
	return "", ""
}

// firstHost returns the first name of a Slurm host list such as "a[02-05,9]b[1-3],c".
func firstHost(list string) (string, error) {
	var host strings.Builder
	for rest := list; rest != "" && rest[0] != ','; {
		if rest[0] != '[' {
			n := strings.IndexAny(rest, "[,]")
			if n < 0 {
				n = len(rest)
			}
			if n == 0 {
				return "", fmt.Errorf("unexpected ] in the host list")
			}
			host.WriteString(rest[:n])
			rest = rest[n:]
			continue
		}
		inside, after, ok := strings.Cut(rest[1:], "]")
		first := inside
		if n := strings.IndexAny(inside, ",-"); n >= 0 {
			first = inside[:n]
		}
		if _, err := strconv.ParseUint(first, 10, 64); !ok || err != nil {
			return "", fmt.Errorf("bad range [%.32s in the host list", rest[1:])
		}
		host.WriteString(first)
		rest = after
	}
	for _, c := range host.String() {
		if !(c == '-' || c == '.' || c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return "", fmt.Errorf("%q in a host name", c)
		}
	}
	if host.Len() == 0 {
		return "", fmt.Errorf("no host in the list")
	}
	return host.String(), nil
}

// slurmLocalSize returns the number of ranks on this node; 0 if Slurm does not tell.
func (p *parser) slurmLocalSize(size int) int {
	list := p.get("SLURM_STEP_TASKS_PER_NODE")
	node, ok := p.integer("slurm", "SLURM_NODEID", 0, maxRanks)
	if list == "" || !ok {
		return 0
	}
	n, err := tasksOn(list, node)
	if err == nil && n > size {
		err = fmt.Errorf("%d ranks on node %d, but SLURM_NTASKS=%d", n, node, size)
	}
	if err != nil {
		p.fail("slurm", "SLURM_STEP_TASKS_PER_NODE", list, "%v", err)
	}
	return n
}

// tasksOn returns entry node of a list such as "4(x2),3": nodes 0 and 1 have 4 tasks, node 2 has 3.
func tasksOn(list string, node int) (int, error) {
	left := node // nodes to skip
	for item := range strings.SplitSeq(list, ",") {
		count, repeat, repeated := strings.Cut(item, "(x")
		n, err := strconv.Atoi(count)
		times := 1
		if repeated && err == nil {
			digits, ok := strings.CutSuffix(repeat, ")")
			if times, err = strconv.Atoi(digits); !ok || times < 1 {
				err = strconv.ErrSyntax
			}
		}
		if err != nil || n < 1 {
			return 0, fmt.Errorf("want a list such as 4(x2),3")
		}
		if left < times {
			return n, nil
		}
		left -= times
	}
	return 0, fmt.Errorf("SLURM_NODEID=%d is not in the list", node)
}
