// Package agree lets the members of a failed group agree on who goes on: all of them decide the same list, or none decides. It is a state
// machine. It sends through a function of its user, never waits, and has no clock and no lock.
//
// The agreement is Lamport's single-decree Paxos ("Paxos Made Simple", 2001) among the members of the old group. They decide the list of
// members of the new group. A member that asks for a new group tells all others so, and whom it can reach (Join). The member with the
// lowest number that has joined leads. When it has heard from every member, or need not wait any longer (Hurry), it proposes the members
// that have joined and reach one another. If the leader is lost, the next one finishes what it began. A list must be a quorum of the old
// group: more than half of its members, or exactly half with the first member. Any two quorums have a common member. So if a network is
// cut in two parts, at most one part goes on, and a few ranks that do not wait cannot go on without the majority.
//
// MPI's ULFM (MPIX_Comm_shrink) leaves out the members that are known to be dead, and trusts its failure detector. For NCCL
// (ncclCommShrink) and PyTorch (shrink_group), the caller must say who is left out, the same on all ranks.
package agree
