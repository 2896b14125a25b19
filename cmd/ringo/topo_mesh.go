package main

import "fmt"

// maxTensor is the largest recommended number of ranks for tensor parallelism: with more, the part of a layer on each rank is too small.
const maxTensor = 8

// placements returns meshes that fit ranks on these hosts (hostOf[rank], numbered from 0), the simplest first. Tensor parallelism
// sends activations several times in each layer and cannot hide it, so it stays inside a host, among ranks that are near each other.
// Data parallelism sends gradients once a step, and pipelines send activations only to neighbors, so they go between hosts.
func placements(hostOf []int, near func(a, b int) bool) []placement {
	n, hosts := len(hostOf), 0
	for _, h := range hostOf {
		hosts = max(hosts, h+1)
	}
	out := []placement{{fmt.Sprintf("dp=%d", n), "the model and its optimizer fit on one rank"}}
	tp := tensorWidth(n, near)
	linked := "inside a host"
	if tp < tensorWidth(n, func(a, b int) bool { return hostOf[a] == hostOf[b] }) {
		linked = "between GPUs that are linked closely"
	}
	switch {
	case n == 1:
	case tp == 1 && linked != "inside a host":
		out = append(out,
			placement{fmt.Sprintf("pp=%d", n), "they do not: no neighbors have GPUs that are linked closely, pipeline between them"})
	case tp == 1 && hosts == n:
		out = append(out, placement{fmt.Sprintf("pp=%d", n), "they do not: one rank on each host, pipeline across"})
	case tp == 1 && hosts == 1:
		out[0].When += "; for others, start a power of two of ranks"
	case tp == 1:
		out[0].When += "; for others, put the same number of ranks on each host, those of a host next to each other"
	case tp == n:
		out = append(out, placement{fmt.Sprintf("tp=%d", n), "they do not: tensor parallel inside the host"})
	default:
		out = append(out, placement{fmt.Sprintf("dp=%d,tp=%d", n/tp, tp),
			fmt.Sprintf("they do not, but on %d: tensor parallel %s, data parallel across", tp, linked)})
		if hosts > 1 && inOrder(hostOf, hosts) {
			out = append(out, acrossHosts(n, hosts, tp))
		}
	}
	return out
}

// inOrder reports whether all hosts have the same number of ranks, and the ranks of a host have consecutive numbers.
func inOrder(hostOf []int, hosts int) bool {
	for r, h := range hostOf {
		if len(hostOf)%hosts != 0 || h != r/(len(hostOf)/hosts) {
			return false
		}
	}
	return true
}

// acrossHosts returns the mesh for a model that needs all hosts.
func acrossHosts(n, hosts, tp int) placement {
	p := placement{fmt.Sprintf("pp=%d,tp=%d", hosts, tp), "nor on one host: tensor parallel inside a host, pipeline across"}
	if dp := n / hosts / tp; dp > 1 {
		p.Mesh = fmt.Sprintf("pp=%d,dp=%d,tp=%d", hosts, dp, tp)
	}
	return p
}

// tensorWidth returns the largest power of two, at most maxTensor, for which each block of so many ranks has only ranks that are near
// each other.
func tensorWidth(n int, near func(a, b int) bool) int {
	best := 1
	for width := 2; width <= maxTensor && n%width == 0; width *= 2 {
		for a := range n {
			for b := a / width * width; b < a; b++ {
				if !near(a, b) {
					return best
				}
			}
		}
		best = width
	}
	return best
}
