package dist

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Mesh arranges the ranks of a group in a grid with named axes, such as "dp=2,ep=2,tp=2". The last axis varies fastest: ranks that differ
// only in it are neighbors.
type Mesh struct {
	g     *Group
	spec  string
	all   *Group // the ranks of g, with the spec as its name; parent of the groups of the mesh
	names []string
	sizes []int
	made  map[string]*Group
}

// Mesh returns a grid over g. The product of its sizes must be Size(). It is collective, like With, but no rank waits. If ranks give
// different specs, the groups of the mesh fail with an error that has both. The first mesh over all ranks gives the job its axes (see
// Group.Axes); one that comes later, and has others, is an error. So make the mesh with all axes first.
func (g *Group) Mesh(spec string) (*Mesh, error) {
	m := &Mesh{g: g, spec: spec, made: map[string]*Group{}}
	total := 1
	for _, item := range strings.Split(spec, ",") {
		name, size, _ := strings.Cut(strings.TrimSpace(item), "=")
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 || name == "" {
			return nil, fmt.Errorf("dist: mesh %q: %q is not like dp=2", spec, item)
		}
		if slices.Contains(m.names, name) {
			return nil, fmt.Errorf("dist: mesh %q: axis %s is there twice", spec, name)
		}
		m.names, m.sizes = append(m.names, name), append(m.sizes, n)
		total *= n
	}
	if total != g.Size() {
		return nil, fmt.Errorf("dist: mesh %q has %d places, group %s has %d ranks", spec, total, g.name, g.Size())
	}
	if err := g.grid.fix(m); err != nil {
		return nil, err
	}
	m.all = g.With(Name("mesh " + spec))
	m.all.Barrier().settle() // it compares the names; nobody waits for it
	m.all.see()
	return m, nil
}

// Size returns the length of an axis.
func (m *Mesh) Size(axis string) int { return m.sizes[m.axis(axis)] }

// Coord returns this rank's coordinate on an axis.
func (m *Mesh) Coord(axis string) int { return m.coord(m.g.rank, m.axis(axis)) }

// axis returns the number of an axis. It panics with a *tensor.Failure if there is no such axis.
func (m *Mesh) axis(name string) int {
	i := slices.Index(m.names, name)
	if i < 0 {
		panic(&tensor.Failure{Op: "mesh", Err: fmt.Errorf("no axis %q; there are %s", name, strings.Join(m.names, ", "))})
	}
	return i
}

func (m *Mesh) coord(rank, axis int) int {
	for _, n := range m.sizes[axis+1:] {
		rank /= n
	}
	return rank % m.sizes[axis]
}

// Group returns the group of the ranks with this rank's coordinates on all axes but the given ones. For example, Group("dp") is the ranks
// with which this one averages gradients. Several axes make one group of their product, in the order of the mesh. Group does not wait,
// and the same axes return the same group again.
func (m *Mesh) Group(axes ...string) *Group {
	var picked uint64
	for _, a := range axes {
		picked |= 1 << m.axis(a)
	}
	var names []string
	id := backend.Hash64(backend.Hash64(m.all.id, backend.HashString(m.all.name)), picked)
	for i, name := range m.names {
		if picked>>i&1 == 1 {
			names = append(names, name)
		} else {
			id = backend.Hash64(id, uint64(m.coord(m.g.rank, i)))
		}
	}
	name := strings.Join(names, ",")
	if g := m.made[name]; g != nil {
		return g
	}
	m.made[name] = m.all.sub(id, name, m.along(picked))
	return m.made[name]
}

// along returns the ranks of m.g that have this rank's coordinates on all axes that are not picked.
func (m *Mesh) along(picked uint64) (members []int) {
	for r := range m.g.ranks {
		same := true
		for i := range m.names {
			same = same && (picked>>i&1 == 1 || m.coord(r, i) == m.coord(m.g.rank, i))
		}
		if same {
			members = append(members, r)
		}
	}
	return members
}
