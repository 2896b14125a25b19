package agree

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind is what a Message says.
type Kind uint8

// The messages. Ballots order the attempts to decide: a later one has the greater number.
const (
	Join     Kind = iota // the sender asks for a new group; List: the members that it reaches, and itself
	Leave                // the sender gave up
	Prepare              // may I lead Ballot?
	Promise              // yes; if Voted is not 0, the sender voted for List in ballot Voted
	Refuse               // no: the sender has promised Ballot to another member
	Vote                 // vote for List in Ballot
	Voted                // the sender has voted in Ballot
	Decided              // List is decided
	numKinds = iota
)

// Message goes from one member to another.
type Message struct {
	Kind   Kind
	Ballot uint64
	Voted  uint64
	List   []int // members, by their numbers in the old group
}

// Check returns an error if m is not valid in a group of n.
func (m *Message) Check(n int) error {
	if m.Kind >= numKinds {
		return fmt.Errorf("message of unknown kind %d", m.Kind)
	}
	for i, x := range m.List {
		if x < 0 || x >= n || i > 0 && x <= m.List[i-1] {
			return fmt.Errorf("list %v of a group of %d", m.List, n)
		}
	}
	return nil
}

// peer is what a member knows of another one, or of itself.
type peer struct {
	joined    bool // has joined
	lost      bool // cannot be reached any more
	reachable []int
}

// Node is one member's part. It is not safe for concurrent use; send is called from inside its methods.
type Node struct {
	me          int
	peers       []peer
	send        func(to int, m Message)
	skipWaiting bool
	decided     []int

	// As a voter.
	promised, voted uint64
	vote            []int

	// As a leader: the current ballot.
	ballot     uint64 // 0: none
	preparing  bool   // collecting promises; after that, votes
	answered   []int
	bestBallot uint64 // the highest ballot in which a member voted
	proposed   []int
	retry      bool // the ballot failed: the next Tick begins another
}

// New returns the Node of member me of a group of n. Send sends a message to another member; it must not call the Node.
func New(n, me int, send func(to int, m Message)) *Node {
	return &Node{me: me, peers: make([]peer, n), send: send}
}

// Quorum reports whether so many members may go on without the others of a group of n. First says whether member 0 is one of them.
func Quorum(n, members int, first bool) bool { return 2*members > n || 2*members == n && first }

func (v *Node) quorum(list []int) bool {
	return Quorum(len(v.peers), len(list), slices.Contains(list, 0))
}

// Decided returns the members of the new group, by their numbers in the old one; nil before a decision.
func (v *Node) Decided() []int { return v.decided }

// Join asks for a new group.
func (v *Node) Join() {
	v.peers[v.me].joined = true
	v.sendJoin()
	v.maybeBegin()
}

// sendJoin tells all others that this member has joined, and which members it reaches.
func (v *Node) sendJoin() {
	me := &v.peers[v.me]
	me.reachable = nil
	for i := range v.peers {
		if !v.peers[i].lost {
			me.reachable = append(me.reachable, i)
		}
	}
	v.broadcast(Message{Kind: Join, List: me.reachable})
}

// Leave takes Join back, unless there is a decision. Promises and votes stay.
func (v *Node) Leave() {
	if v.decided == nil {
		v.peers[v.me] = peer{}
		v.ballot = 0
		v.broadcast(Message{Kind: Leave})
	}
}

// Lost tells the Node that a member cannot be reached any more.
func (v *Node) Lost(i int) {
	if i == v.me || v.peers[i].lost {
		return
	}
	v.peers[i] = peer{lost: true}
	v.retry = v.ballot != 0
	if v.peers[v.me].joined {
		v.sendJoin()
	}
	v.maybeBegin()
}

// Hurry tells the Node not to wait for members that it reaches but that have not joined.
func (v *Node) Hurry() {
	v.skipWaiting = true
	v.maybeBegin()
}

// Tick begins another ballot if the last one failed. Call it from time to time, at other times than the other members do.
func (v *Node) Tick() {
	if v.retry {
		v.retry, v.ballot = false, 0
		v.maybeBegin()
	}
}

// Waiting returns the members that are reached and have not joined.
func (v *Node) Waiting() []int {
	var out []int
	for i, p := range v.peers {
		if !p.lost && !p.joined {
			out = append(out, i)
		}
	}
	return out
}

// Here returns the members that are reached and have joined, this one included.
func (v *Node) Here() []int {
	var out []int
	for i, p := range v.peers {
		if p.joined {
			out = append(out, i)
		}
	}
	return out
}

// Hopeless reports that there is no member to wait for, and that too few have joined.
func (v *Node) Hopeless() bool {
	return v.decided == nil && v.myTurn() && v.ballot == 0 && !v.quorum(v.candidates())
}

// consistent reports whether all joined members agree on who reaches whom. If a reaches b, but b does not reach a, then a is dead or will
// notice it, too. In both cases another message will come.
func (v *Node) consistent() bool {
	here := v.Here()
	for _, i := range here {
		for _, k := range here {
			if slices.Contains(v.peers[i].reachable, k) != slices.Contains(v.peers[k].reachable, i) {
				return false
			}
		}
	}
	return true
}

// linked reports whether i and k reach each other.
func (v *Node) linked(i, k int) bool {
	return slices.Contains(v.peers[i].reachable, k) && slices.Contains(v.peers[k].reachable, i)
}

// myTurn reports whether it is this member's turn to propose. It waits for messages that must come. Otherwise the member that noticed a
// death first could be left out instead of the dead one.
func (v *Node) myTurn() bool {
	here := v.Here()
	return v.peers[v.me].joined && here[0] == v.me && (v.skipWaiting || len(v.Waiting()) == 0 && v.consistent())
}

// candidates returns joined members that all reach one another. Those with most links are taken first: one member with a bad connection,
// or one that has just died, must not keep two others out.
func (v *Node) candidates() []int {
	here := v.Here()
	count := func(i int) int {
		n := 0
		for _, k := range here {
			n += b2i(v.linked(i, k))
		}
		return n
	}
	order := slices.Clone(here)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(b2i(b == v.me), b2i(a == v.me)), cmp.Compare(count(b), count(a)))
	})
	var list []int
	for _, i := range order {
		fits := true
		for _, k := range list {
			fits = fits && v.linked(i, k)
		}
		if fits {
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return list
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maybeBegin begins a ballot if it is this member's turn and there is a quorum.
func (v *Node) maybeBegin() {
	if v.decided != nil || v.ballot != 0 || !v.myTurn() || !v.quorum(v.candidates()) {
		return
	}
	n := uint64(len(v.peers))
	v.ballot = (v.promised/n+1)*n + uint64(v.me) // greater than all ballots seen so far, and different from those of others
	v.preparing, v.answered, v.bestBallot, v.proposed, v.retry = true, nil, 0, nil, false
	v.sendTo(v.Here(), Message{Kind: Prepare, Ballot: v.ballot})
}

// sendTo sends m to some members, this one last.
func (v *Node) sendTo(to []int, m Message) {
	self := false
	for _, i := range to {
		if i == v.me {
			self = true
		} else {
			v.send(i, m)
		}
	}
	if self {
		v.Handle(v.me, m)
	}
}

// broadcast sends m to all others that can be reached.
func (v *Node) broadcast(m Message) {
	for i := range v.peers {
		if i != v.me && !v.peers[i].lost {
			v.send(i, m)
		}
	}
}

// reply answers a message.
func (v *Node) reply(to int, m Message) { v.sendTo([]int{to}, m) }

// Handle takes a message from a member. m must have passed Check.
func (v *Node) Handle(from int, m Message) {
	if v.peers[from].lost {
		return
	}
	if v.decided != nil {
		if m.Kind != Decided && m.Kind != Leave && from != v.me {
			v.reply(from, Message{Kind: Decided, List: v.decided})
		}
		return
	}
	switch m.Kind {
	case Join:
		v.peers[from] = peer{joined: true, reachable: m.List}
		v.maybeBegin()
	case Leave:
		v.peers[from] = peer{} // it may join again
		v.retry = v.ballot != 0
		v.maybeBegin()
	case Prepare, Vote:
		v.answerLeader(from, m)
	case Refuse:
		v.promised = max(v.promised, m.Ballot)
		v.retry = v.retry || v.ballot != 0 && m.Ballot > v.ballot
	case Promise, Voted:
		if m.Ballot == v.ballot && v.ballot != 0 && !slices.Contains(v.answered, from) && v.preparing == (m.Kind == Promise) {
			v.answered = append(v.answered, from)
			v.countAnswer(m)
		}
	case Decided:
		v.decide(m.List)
	}
}

// answerLeader answers a leader.
func (v *Node) answerLeader(from int, m Message) {
	if m.Ballot < v.promised {
		v.reply(from, Message{Kind: Refuse, Ballot: v.promised})
		return
	}
	v.promised = m.Ballot
	if m.Kind == Prepare {
		v.reply(from, Message{Kind: Promise, Ballot: m.Ballot, Voted: v.voted, List: v.vote})
		return
	}
	v.voted, v.vote = m.Ballot, m.List
	v.reply(from, Message{Kind: Voted, Ballot: m.Ballot})
}

// countAnswer counts a promise or a vote.
func (v *Node) countAnswer(m Message) {
	if m.Kind == Promise && m.Voted > v.bestBallot {
		v.bestBallot, v.proposed = m.Voted, m.List
	}
	if !v.quorum(v.answered) {
		return
	}
	if !v.preparing {
		v.decide(v.proposed)
		return
	}
	if v.bestBallot == 0 {
		if v.proposed = v.candidates(); !v.myTurn() || !v.quorum(v.proposed) {
			v.ballot = 0
			return
		}
	}
	v.preparing, v.answered = false, nil
	v.sendTo(v.Here(), Message{Kind: Vote, Ballot: v.ballot, List: v.proposed})
}

// decide keeps the decision and sends it to all others: the member that decided first may die before all have its message.
func (v *Node) decide(list []int) {
	if v.decided == nil {
		v.decided = list
		v.ballot, v.retry = 0, false
		v.broadcast(Message{Kind: Decided, List: list})
	}
}
